#include "planner/elastic/replan.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/units.hpp"
#include "planner/explain/explanation.hpp"
#include "planner/explain/priced_plan.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/plan/parallel_config.hpp"
#include "search/stage_division.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::planner {
namespace {

/// Copies choices that a search does not make, and that do not depend on the number of ranks.
void keep_choices(const program::Plan& before, program::Plan& plan) {
  plan.attention = before.attention;
  plan.attention_workspace_bytes = before.attention_workspace_bytes;
  plan.expert_imbalance = std::max(plan.expert_imbalance, before.expert_imbalance);
}

program::Plan with_prediction(program::Plan plan, const sim::StepPrediction& step,
                              std::string reason) {
  plan.prediction = program::Prediction{.step_time_s = step.step_time_s,
                                        .peak_memory_bytes = step.peak_memory_bytes,
                                        .mfu = step.mfu,
                                        .reasons = {std::move(reason)}};
  return plan;
}

SearchRequest search_request(const ReplanRequest& request) {
  const program::Plan& plan = request.plan;
  SearchRequest search =
      search_for(plan, {.cluster = request.cluster,
                        .memory_reserve = sim::default_memory_reserve(plan.stack, plan.model)});
  search.constraints.rank_order = {};  // another one may be best on other ranks
  search.constraints.compression = plan.compression;
  search.constraints.deterministic = plan.deterministic;
  search.constraints.progress_thread = plan.progress_thread;
  search.constraints.uneven_batch = true;
  search.top = 1;
  search.alternatives = false;
  return search;
}

/// The plan's own ranks, in its order, for StageDivision.
SearchRequest division_request(SearchRequest search, const program::Plan& plan) {
  search.constraints.rank_order = plan.rank_order;
  return search;
}

class Replanner {
 public:
  explicit Replanner(const ReplanRequest& request)
      : request_(request),
        search_(search_request(request)),
        division_request_(division_request(search_, request.plan)),
        division_(division_request_) {}

  /// The fastest plan that differs from the one before in dp, in the division of its layers where
  /// ranks differ in speed, and in what follows from these; nothing where dp cannot use all ranks,
  /// or no such plan obeys the rules and fits.
  std::optional<Replanned> with_other_dp() {
    const program::ParallelConfig& before = request_.plan.parallel;
    const int ranks = request_.cluster.num_ranks();
    const int replica = before.world_size() / before.dp;
    if (ranks % replica != 0) {
      why_not_dp_ = fmt::format("a replica has {} ranks, which do not divide {}", replica, ranks);
      return std::nullopt;
    }
    constexpr int kMostTimes = 8;  // as large as the micro-batch before
    std::optional<Replanned> best;
    for (const int size : uneven_sizes(request_.plan.workload.global_batch_size, ranks / replica,
                                       kMostTimes * request_.plan.micro_batch_size)) {
      for (std::optional<Replanned>& one : priced_with(ranks / replica, size))
        if (one && (!best || one->step_time_s < best->step_time_s)) best = std::move(one);
    }
    return best;
  }

  /// The fastest plan of a search.
  std::optional<Replanned> of_any_layout(const ParallelFor& parallel_for) {
    const SearchOutcome outcome = search(search_, cost_model(search_), parallel_for);
    const auto* found = std::get_if<SearchResult>(&outcome);
    if (found == nullptr || found->ranked.empty()) {
      const auto& none = std::get<InfeasibleResult>(outcome);
      why_none_ =
          none.rejections.empty() ? "no plan obeys the rules" : none.rejections.front().message;
      return std::nullopt;
    }
    const RankedPlan& first = found->ranked.front();
    program::Plan plan = first.plan;
    keep_choices(request_.plan, plan);
    return Replanned{.plan = std::move(plan), .step_time_s = first.step_time_s()};
  }

  ReplanOutcome choose(std::optional<Replanned> same, std::optional<Replanned> any) const {
    if (!same && !any) return NoReplan{why_none_};
    if (!same) {
      any->reason = why_not_dp_;
      return finished(*std::move(any));
    }
    const bool faster = any && any->step_time_s * (1 + request_.worth) < same->step_time_s;
    if (!faster) {
      same->reason = any ? "no other layout is clearly faster" : "no other layout fits";
      return finished(*std::move(same));
    }
    any->reason = fmt::format("{:.0f} % faster than {} alone",
                              100 * (same->step_time_s / any->step_time_s - 1),
                              program::to_string(same->plan.parallel));
    return finished(*std::move(any));
  }

 private:
  /// With the layers divided as before, and by the speed of stages where that is another division.
  std::array<std::optional<Replanned>, 2> priced_with(int dp, int micro_batch_size) {
    program::Plan plan = plan_with(dp, micro_batch_size);
    std::array<std::optional<Replanned>, 2> priced;
    std::vector<int> layers = division_.layers(candidate_of(plan));
    priced[0] = price(plan);
    if (layers.empty() || layers == program::resolved_layers_per_stage(plan)) return priced;
    plan.layers_per_stage = std::move(layers);
    plan.count_ends_as_layers = false;
    priced[1] = price(std::move(plan));
    return priced;
  }

  program::Plan plan_with(int dp, int micro_batch_size) const {
    program::Plan plan = request_.plan;
    const bool default_buckets = plan.bucket_bytes == default_bucket_bytes(plan.parallel);
    plan.parallel.dp = dp;
    plan.micro_batch_size = micro_batch_size;
    plan.cluster_name = request_.cluster.name;
    if (default_buckets) plan.bucket_bytes = default_bucket_bytes(plan.parallel);
    const std::int64_t round = std::int64_t{micro_batch_size} * dp;
    plan.uneven_batch = plan.workload.global_batch_size % round != 0;
    if (plan.zero_shard_group > 0 && dp * plan.parallel.cp % plan.zero_shard_group != 0)
      plan.zero_shard_group = 0;
    return plan;
  }

  std::optional<Replanned> price(program::Plan plan) {
    const std::vector<program::Violation> broken = broken_rules(plan);
    if (!broken.empty()) {
      why_not_dp_ = broken.front().message;
      return std::nullopt;
    }
    const sim::SimulatedStep played = sim::simulate_step(plan, request_.cluster);
    if (!played.step.fits(search_.memory_reserve)) {
      why_not_dp_ = fmt::format("{} needs {} of {}", program::to_string(plan.parallel),
                                format_bytes(played.step.peak_memory_bytes),
                                format_bytes(played.step.usable_bytes(search_.memory_reserve)));
      return std::nullopt;
    }
    return Replanned{.plan = with_prediction(std::move(plan), played.step, ""),
                     .step_time_s = played.step.step_time_s,
                     .only_dp = true};
  }

  Replanned finished(Replanned chosen) const {
    chosen.change = fmt::format("{} -> {}", layout_text(request_.plan), layout_text(chosen.plan));
    chosen.plan.prediction->reasons = {chosen.reason};
    return chosen;
  }

  const ReplanRequest& request_;
  SearchRequest search_;
  SearchRequest division_request_;
  StageDivision division_;
  std::string why_not_dp_;
  std::string why_none_ = "no plan fits";
};

}  // namespace

std::string layout_text(const program::Plan& plan) {
  const std::string layout = describe(candidate_of(plan));
  if (plan.layers_per_stage.empty()) return layout;
  return fmt::format("{}, layers {}", layout, fmt::join(plan.layers_per_stage, " "));
}

ReplanOutcome replan(const ReplanRequest& request, const ParallelFor& parallel_for) {
  Replanner replanner(request);
  std::optional<Replanned> same = replanner.with_other_dp();
  std::optional<Replanned> any = replanner.of_any_layout(parallel_for);
  return replanner.choose(std::move(same), std::move(any));
}

}  // namespace meshplan::planner
