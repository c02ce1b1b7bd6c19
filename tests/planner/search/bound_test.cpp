// The search prices a part of the space and answers for all of it: here all of it is priced.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "planner/search/search.hpp"
#include "program/checks/check.hpp"
#include "search/evaluation.hpp"
#include "search/stage_division.hpp"
#include "search/variants.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"
#include "support/cases.hpp"

namespace meshplan::planner {
namespace {

struct BoundCase {
  const char* model;
  int ranks;
  std::int64_t seq_len;
  std::int64_t batch;
  const char* software = "meshplan";
  double mtbf_hours = 0;  // of a device; 0 = nothing fails
};
const BoundCase kCases[] = {{"gpt2-124m", 8, 1024, 16},
                            {"gpt2-124m", 16, 1024, 32, "meshplan", 50},
                            {"tiny-moe", 8, 256, 16},
                            {"llama3.2-1b", 16, 4096, 32},
                            {"llama3-8b", 8, 16384, 8},
                            {"llama3-8b", 16, 4096, 32, "megatron-core"},
                            {"mixtral-8x7b", 16, 4096, 32, "megatron-core"},
                            {"llama3-8b", 16, 4096, 32, "torchtitan"}};

std::span<const BoundCase> cases() {
  return std::span(kCases).first(testing::few_cases() ? 3 : std::size(kCases));
}

SearchRequest request_of(const BoundCase& one) {
  SearchRequest request;
  request.model = models::load_preset(one.model);
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), one.ranks);
  request.workload = {
      .seq_len = one.seq_len, .global_batch_size = one.batch, .precision = DType::BF16};
  request.space = space_preset("offload");
  request.stack.software = one.software;
  request.space = space_of(request);
  if (one.mtbf_hours > 0)
    request.failures = FailureAssumptions{.device_mtbf_hours = one.mtbf_hours, .repair_hours = 1};
  return request;
}

bool obeys_rules(const program::Plan& plan) {
  return program::check(plan).empty() && sim::software_violations(plan).empty();
}

std::vector<Candidate> candidates_of(const SearchRequest& request) {
  return enumerate(request.model, request.workload,
                   {request.cluster.num_ranks(), request.cluster.devices_per_node},
                   request.constraints, request.space);
}

/// Calls visit(variant, schedule, recompute) for every variant of a candidate, itself among them.
template <class Visit>
void for_each_variant(const SearchRequest& request, const Candidate& candidate,
                      const Visit& visit) {
  const Variants variants = variants_of(request, candidate);
  for (const auto& [stage, group] : variants.zero)
    for (const Offloading offload : variants.offload)
      for (const ScheduleVariant& schedule : variants.schedules)
        for (const std::optional<int> layers : schedule.recompute_layers)
          for (const std::string& order : variants.rank_orders)
            for (const std::int64_t bytes : variants.bucket_bytes) {
              Candidate variant = candidate;
              variant.zero_stage = stage;
              variant.zero_shard_group = group;
              set_offloading(variant, offload);
              variant.schedule = schedule.schedule;
              variant.parallel.vpp = schedule.vpp;
              variant.count_ends_as_layers = schedule.ends;
              variant.recompute.num_layers = layers;
              variant.rank_order = order;
              variant.bucket_bytes = bytes;
              visit(variant, schedule, layers);
            }
}

/// The fastest of each enumerated candidate and all its variants, fastest first.
template <class Evaluations>
std::vector<double> best_of_families(const Evaluations& evaluations) {
  std::vector<double> times;
  for (const auto& [family, time] : evaluations) times.push_back(time);
  std::ranges::sort(times);
  return times;
}

void keep_least(std::map<std::string, double>& best, const std::string& family, double time) {
  const auto [entry, fresh] = best.try_emplace(family, time);
  if (!fresh) entry->second = std::min(entry->second, time);
}

/// The enumerated candidate that it is a variant of, but for what ZeRO and the schedule change.
std::string family_of(Candidate candidate) {
  candidate.zero_stage = std::min(candidate.zero_stage, candidate.parallel.pp > 1 ? 1 : 3);
  if (candidate.parallel.pp > 1) candidate.zero_shard_group = 0;
  set_offloading(candidate, Offloading::None);
  if (candidate.schedule != program::ScheduleKind::GPipe)
    candidate.schedule = program::ScheduleKind::OneFOneB;
  candidate.parallel.vpp = 1;
  candidate.count_ends_as_layers = false;
  candidate.recompute.num_layers.reset();
  candidate.rank_order = program::Mesh::kDefaultOrder;
  candidate.bucket_bytes = 0;
  return describe(candidate);
}

}  // namespace

TEST_CASE("The first ten of the whole space are found without pricing all of it",
          "[planner][bound]") {
  for (const BoundCase& one : cases()) {
    const SearchRequest request = request_of(one);
    const CostModel costs = cost_model(request);
    const ParallelFor parallel_for = serial();
    Estimators estimators(costs, 1);
    std::optional<FailureModel> failures;
    if (request.failures)
      failures.emplace(request.model, request.constraints.frozen, request.cluster,
                       *request.failures);
    const auto effective_s = [&](const program::Plan& plan, double step_time_s) {
      return failures ? failures->goodput(plan, step_time_s).effective_s(step_time_s) : step_time_s;
    };
    const SearchContext context{
        request, parallel_for, estimators, {}, failures ? &*failures : nullptr};
    const std::vector<Candidate> candidates = candidates_of(request);
    const std::vector<Evaluation> enumerated = evaluate_all(context, candidates, {});
    const VariantResults results = price_variants(context, enumerated);

    std::map<std::string, double> found, all;
    for (const std::vector<Evaluation>& evaluations : {enumerated, results.best})
      for (const Evaluation& evaluation : evaluations)
        if (evaluation.fits())
          keep_least(found, family_of(evaluation.candidate), evaluation.effective_s());
    std::size_t total = 0;
    const CostModel::Estimate estimate = costs.estimator();
    for (const Candidate& candidate : candidates)
      for_each_variant(request, candidate, [&](const Candidate& variant, const auto&, const auto&) {
        ++total;
        const program::Plan plan = make_plan(request, variant);
        if (!obeys_rules(plan)) return;
        const sim::StepPrediction step = estimate(plan, {});
        if (step.fits(request.memory_reserve))
          keep_least(all, family_of(variant), effective_s(plan, step.step_time_s));
      });
    INFO(one.software << ": " << one.model << " on " << one.ranks);
    CHECK(total == candidates.size() + results.counts.total);
    CHECK(results.counts.total == results.counts.broke_a_rule + results.counts.did_not_fit +
                                      results.counts.ranked + results.counts.bounded);
    CHECK(results.counts.bounded > results.counts.ranked);
    const std::vector<double> expected = best_of_families(all), times = best_of_families(found);
    REQUIRE(expected.size() >= 10);
    for (std::size_t i = 0; i < 10; ++i) {
      INFO("place " << i);
      CHECK(times[i] == Approx(expected[i]).epsilon(1e-9));
    }
  }
}

TEST_CASE("No variant is faster than its bound", "[planner][bound]") {
  for (const BoundCase& one : cases()) {
    const SearchRequest request = request_of(one);
    const CostModel::Estimate estimate = cost_model(request).estimator();
    std::size_t compared = 0;
    double tightest = 0, fullest = 0;
    std::size_t unfinished = 0;  // whose schedule was not solved, for they were not wanted
    constexpr double kLessThanAny = 1e-9;
    const sim::Wanted nothing{.step_time_s = kLessThanAny, .memory_reserve = std::nullopt};
    for (const Candidate& candidate : candidates_of(request)) {
      const program::Plan plan = make_plan(request, candidate);
      if (!obeys_rules(plan)) continue;
      const sim::StepPrediction core = estimate(plan, {});
      for_each_variant(request, candidate,
                       [&](const Candidate& variant, const ScheduleVariant& schedule,
                           std::optional<int> layers) {
                         const program::Plan varied = make_plan(request, variant);
                         if (++compared % 11 != 0 || !obeys_rules(varied)) return;
                         const double least =
                             least_step_s(candidate, core, schedule, layers, request);
                         const double step = estimate(varied, {}).step_time_s;
                         const sim::StepPrediction unwanted = estimate(varied, nothing);
                         unfinished += unwanted.at_least ? 1 : 0;
                         INFO(one.software << ": " << one.model << ": " << describe(variant));
                         if (unwanted.step_time_s > step) CHECK(unwanted.step_time_s <= step);
                         if (unwanted.at_least)
                           fullest = std::max(fullest, unwanted.step_time_s / step);
                         tightest = std::max(tightest, least / step);
                         if (least > step) CHECK(least <= step);
                       });
    }
    INFO(one.software << ": " << one.model);
    CHECK(compared > 1000);
    CHECK(tightest > 0.85);  // it leaves out what communication exposes
    CHECK(unfinished > 100);
    CHECK(fullest > 0.95);
  }
}

}  // namespace meshplan::planner
