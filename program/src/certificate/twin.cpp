#include "program/certificate/twin.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "certificate/shrink_plan.hpp"
#include "plan/techniques.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::program {
namespace {

bool has_uneven_stages(const Plan& plan) {
  const std::vector<int> layers = resolved_layers_per_stage(plan);
  return plan.parallel.pp > 1 &&
         std::ranges::any_of(layers, [&](int own) { return own != layers.front(); });
}

bool has_stage_without_layers(const Plan& plan) {
  return std::ranges::any_of(resolved_layers_per_stage(plan), [](int own) { return own == 0; });
}

/// What a plan may lose as it shrinks, beside its techniques. Each must be in some twin.
const std::vector<Technique>& marks() {
  static const std::vector<Technique> kAll = {
      {"a stage in the middle", [](const Plan& p) { return p.parallel.pp > 2; }},
      {"cp over more than two ranks", [](const Plan& p) { return p.parallel.cp > 2; }},
      {"custom schedule",
       [](const Plan& p) {
         return p.schedule == ScheduleKind::Custom && p.parallel.pp * p.parallel.vpp > 1;
       }},
      {"uneven stages", has_uneven_stages},
      {"a stage without layers", has_stage_without_layers},
      {"copied key heads", [](const Plan& p) { return kv_copies(p) > 1; }},
      {"embedding at both ends",
       [](const Plan& p) { return models::ending_reads_embedding(p.model) && p.parallel.pp > 1; }},
      {"experts on one rank each",
       [](const Plan& p) { return p.parallel.ep > 1 && p.parallel.edp() == 1; }},
      {"experts on several ranks",
       [](const Plan& p) { return p.parallel.ep > 1 && p.parallel.edp() > 1; }},
      {"offloaded optimizer", [](const Plan& p) { return p.offload_optimizer; }},
      {"offloaded parameters", [](const Plan& p) { return p.offload_parameters; }},
      {"offloaded activations", [](const Plan& p) { return p.offload_activations > 0; }},
      {"an empty micro-batch",
       [](const Plan& p) { return p.empty_sequences() >= p.micro_batch_size; }},
      {"a micro-batch empty in part",
       [](const Plan& p) { return p.empty_sequences() % p.micro_batch_size != 0; }},
      {"progress thread", [](const Plan& p) { return p.progress_thread; }},
  };
  return kAll;
}

bool is_precision(const Technique& technique) {
  return technique.name == "bf16" || technique.name == "fp16" || technique.name == "fp8" ||
         technique.name == "fp8-dispatch";
}

bool is_compression(const Technique& technique) {
  return technique.name == "int8" || technique.name == "top-k";
}

/// Everything that twins are to have of plans: techniques, then marks.
std::vector<Technique> all_to_show(TwinPrecision precision) {
  std::vector<Technique> all;
  for (const Technique& technique : techniques())
    if (precision == TwinPrecision::Own || !is_precision(technique)) all.push_back(technique);
  all.insert(all.end(), marks().begin(), marks().end());
  return all;
}

/// All pairs of techniques; marks alone.
PairSet without_pairs_of_marks(PairSet pairs, std::size_t count) {
  const std::size_t first_mark = count - marks().size();
  for (std::size_t b = first_mark; b < count; ++b)
    for (std::size_t a = 0; a < b; ++a) pairs.reset(pair_index(a, b));
  return pairs;
}

/// Pairs with compression; the others are for twins without.
PairSet with_compression(PairSet pairs, const std::vector<Technique>& all) {
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a; b < all.size(); ++b)
      if (!is_compression(all[a]) && !is_compression(all[b])) pairs.reset(pair_index(a, b));
  return pairs;
}

std::vector<std::string> names_of(const PairSet& pairs, const std::vector<Technique>& all) {
  std::vector<std::string> names;
  for (std::size_t a = 0; a < all.size(); ++a) {
    if (pairs.test(pair_index(a, a))) names.push_back(all[a].name);
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      const bool alone = pairs.test(pair_index(a, a)) || pairs.test(pair_index(b, b));
      if (pairs.test(pair_index(a, b)) && !alone)  // else it is clear that it has no company
        names.push_back(fmt::format("{} with {}", all[a].name, all[b].name));
    }
  }
  return names;
}

Twin twin_of(Plan plan, const std::vector<Technique>& all) {
  Twin twin;
  for (const std::size_t i : techniques_of(plan, all)) twin.techniques.push_back(all[i].name);
  twin.plan = std::move(plan);
  twin.plan.model.name += ", small";
  return twin;
}

}  // namespace

TwinSet twins_of(const Plan& plan, TwinPrecision precision) {
  const std::vector<Technique> all = all_to_show(precision);
  const bool compresses = plan.compression.kind != CompressionKind::None;
  PairSet wanted = without_pairs_of_marks(pairs_of(plan, all), all.size());
  if (compresses) wanted = with_compression(wanted, all);
  std::vector<Plan> plans;
  std::vector<PairSet> sets;
  for (const ParallelConfig& degrees : twin_degrees(plan))
    if (std::optional<Plan> shrunk = shrunk_plan(plan, degrees, precision)) {
      sets.push_back(pairs_of(*shrunk, all) & wanted);
      plans.push_back(std::move(*shrunk));
    }
  TwinSet result;
  PairSet covered;
  for (const std::size_t i : covering_sets(sets)) {
    covered |= sets[i];
    result.twins.push_back(twin_of(plans[i], all));
  }
  result.uncovered = names_of(wanted & ~covered, all);
  if (result.twins.empty() && !plans.empty())  // one rank without any technique
    result.twins.push_back(twin_of(plans.front(), all));
  if (!compresses) return result;
  Plan whole = plan;
  whole.compression = {};
  TwinSet rest = twins_of(whole, precision);
  std::ranges::move(rest.twins, std::back_inserter(result.twins));
  std::ranges::move(rest.uncovered, std::back_inserter(result.uncovered));
  return result;
}

Plan one_rank_plan(const Plan& plan) {
  Plan alone;
  alone.model = plan.model;
  alone.workload = plan.workload;
  alone.frozen = plan.frozen;
  alone.expert_imbalance = plan.expert_imbalance;
  alone.expected_expert_imbalance = plan.expected_expert_imbalance;
  return alone;
}

}  // namespace meshplan::program
