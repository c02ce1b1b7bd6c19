#include "planner/search.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "evaluation.hpp"
#include "planner/explain.hpp"
#include "stage_division.hpp"

namespace meshplan::planner {
namespace {

constexpr int kMostPlayed = 16;  // estimates are within a few percent, so the best is among these

SearchCounts count(const std::vector<Evaluation>& evaluations) {
  SearchCounts counts;
  for (const Evaluation& evaluation : evaluations) {
    if (evaluation.refined) {
      ++counts.refined;
      continue;
    }
    ++counts.total;
    if (evaluation.broken)
      ++counts.broke_a_rule;
    else if (evaluation.fits())
      ++counts.ranked;
    else
      ++counts.did_not_fit;
  }
  return counts;
}

bool differ_in_schedule_only(const Candidate& a, Candidate b) {
  b.schedule = a.schedule;
  return a == b;
}

// Variants that refinement found next to a better one of the same mesh are steps on the way.
bool is_step_on_the_way(const Candidate& better, const Candidate& worse) {
  return better.parallel == worse.parallel && better.micro_batch_size == worse.micro_batch_size &&
         better.schedule == worse.schedule && better.recompute.kind == worse.recompute.kind &&
         better.zero_stage == worse.zero_stage && better.zero_shard_group == worse.zero_shard_group;
}

std::vector<std::size_t> winners(const std::vector<Evaluation>& evaluations, int most) {
  std::vector<std::size_t> chosen;
  for (const std::size_t i : rank(evaluations)) {
    if (chosen.size() == static_cast<std::size_t>(most)) break;
    const Candidate& candidate = evaluations[i].candidate;
    const bool repeats = std::ranges::any_of(chosen, [&](std::size_t other) {
      const Candidate& better = evaluations[other].candidate;
      return differ_in_schedule_only(better, candidate) || is_step_on_the_way(better, candidate);
    });
    if (!repeats) chosen.push_back(i);
  }
  return chosen;
}

RankedPlan ranked_plan(const SearchContext& context, const Evaluation& evaluation) {
  const SearchRequest& request = context.request;
  RankedPlan ranked{.plan = make_plan(request, evaluation.candidate),
                    .estimate = *evaluation.estimate};
  ranked.plan.model_hash = hex(content_hash(models::to_json(request.model)));
  // As a plan file holds it, so that a plan equals what is read back.
  std::string cluster = sim::to_json(request.cluster);
  cluster.erase(cluster.find_last_not_of('\n') + 1);
  ranked.plan.cluster_hash = hex(content_hash(cluster));
  ranked.plan.cluster_json = std::move(cluster);
  return ranked;
}

// The candidates that are worth playing: as many as the budget allows.
std::size_t num_played(const std::vector<RankedPlan>& ranked, const CostModel& costs) {
  if (!costs.simulate) return 0;
  double spent = 0;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    spent += costs.simulation_cost(ranked[i].plan);
    if (spent > costs.simulation_budget) return i;
  }
  return ranked.size();
}

// Played times replace estimates only if all plans that are shown could be played: the two must
// not be mixed.
void play_and_cut(std::vector<RankedPlan>& ranked, std::size_t top, const CostModel& costs,
                  const ParallelFor& parallel_for) {
  const std::size_t shown = std::min(top, ranked.size());
  const std::size_t played = num_played(ranked, costs);
  if (played < shown) {
    ranked.resize(shown);
    return;
  }
  ranked.resize(played);
  parallel_for.run(played, [&](std::size_t i, int) {
    ranked[i].simulated_step_time_s = costs.simulate(ranked[i].plan);
  });
  std::ranges::stable_sort(ranked, {}, &RankedPlan::step_time_s);
  ranked.resize(shown);
}

// Where the difference to another plan lies; parts of played times are not known.
std::string parts_of_difference(const RankedPlan& faster, const RankedPlan& slower) {
  const std::string parts = time_differences(faster.estimate, slower.estimate);
  if (parts.empty()) return "";
  return fmt::format(": {}{}", parts, faster.simulated_step_time_s ? " (as estimated)" : "");
}

std::string gain_over_next(const RankedPlan& best, const RankedPlan& next) {
  const double gain = next.step_time_s() - best.step_time_s();
  return fmt::format("{} ({:.1f} %) faster than #2, {}{}", format_seconds(gain),
                     100 * gain / next.step_time_s(), describe(candidate_of(next.plan)),
                     parts_of_difference(best, next));
}

std::string loss_against_best(const RankedPlan& best, const RankedPlan& plan) {
  const double loss = plan.step_time_s() - best.step_time_s();
  return fmt::format("{} slower than #1{}", format_seconds(loss), parts_of_difference(best, plan));
}

void add_predictions(std::vector<RankedPlan>& ranked) {
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    RankedPlan& plan = ranked[i];
    const double step = plan.step_time_s();
    std::vector<std::string> reasons = own_reasons(plan);
    if (i == 0 && ranked.size() > 1)
      reasons.insert(reasons.begin(), gain_over_next(plan, ranked[1]));
    if (i > 0) reasons.insert(reasons.begin(), loss_against_best(ranked[0], plan));
    plan.plan.prediction = {.step_time_s = step,
                            .peak_memory_bytes = plan.estimate.peak_memory_bytes,
                            .mfu = plan.estimate.mfu * plan.estimate.step_time_s / step,
                            .reasons = std::move(reasons)};
  }
}

// An alternative that was played too is compared by what was played.
void use_ranked_times(std::vector<Alternative>& alternatives,
                      const std::vector<RankedPlan>& ranked) {
  for (Alternative& alternative : alternatives)
    for (const RankedPlan& plan : ranked)
      if (alternative.plan && candidate_of(*alternative.plan) == candidate_of(plan.plan))
        alternative.slower_by_s = plan.step_time_s() - ranked.front().step_time_s();
}

InfeasibleResult infeasible(const SearchContext& context,
                            const std::vector<Evaluation>& evaluations) {
  InfeasibleResult result{.counts = count(evaluations),
                          .rejections = group_rejections(evaluations)};
  if (const auto nearest = nearest_miss(evaluations))
    result.nearest_miss = ranked_plan(context, evaluations[*nearest]);
  return result;
}

}  // namespace

ParallelFor serial() {
  return {.num_workers = 1, .run = [](std::size_t count, const ParallelFor::Body& body) {
            for (std::size_t i = 0; i < count; ++i) body(i, 0);
          }};
}

program::Plan make_plan(const SearchRequest& request, const Candidate& candidate) {
  program::Plan plan;
  plan.model = request.model;
  plan.cluster_name = request.cluster.name;
  plan.workload = request.workload;
  plan.parallel = candidate.parallel;
  plan.rank_order = request.constraints.rank_order;
  plan.schedule = candidate.schedule;
  plan.micro_batch_size = candidate.micro_batch_size;
  plan.recompute = candidate.recompute;
  plan.context_parallel = candidate.context_parallel;
  plan.zero_stage = candidate.zero_stage;
  plan.zero_shard_group = candidate.zero_shard_group;
  if (plan.parallel.cp > 1)
    plan.max_tokens_per_rank = request.constraints.max_tokens_per_rank.value_or(0);
  plan.layers_per_stage = candidate.layers_per_stage;
  plan.count_ends_as_layers = request.constraints.count_ends_as_layers;
  if (plan.schedule == program::ScheduleKind::Custom)
    plan.custom_schedule = request.constraints.custom_schedule;
  plan.bucket_bytes = request.constraints.bucket_bytes;
  plan.compression = candidate.compression;
  if (plan.parallel.ep > 1) {
    // The busiest of ep ranks has at most all rows.
    plan.expected_expert_imbalance = std::min(request.constraints.expected_expert_imbalance,
                                              static_cast<double>(plan.parallel.ep));
    plan.expert_imbalance = std::max(plan.expert_imbalance, plan.expected_expert_imbalance);
  }
  plan.frozen = request.constraints.frozen;
  plan.offload_optimizer = request.constraints.offload_optimizer;
  plan.progress_thread = request.constraints.progress_thread;
  return plan;
}

SearchOutcome search(const SearchRequest& request, const CostModel& costs,
                     const ParallelFor& parallel_for, const Progress& progress) {
  if (request.top < 1) throw ConfigError(fmt::format("top = {} must be at least 1", request.top));
  std::vector<Candidate> candidates = enumerate(
      request.model, request.workload,
      {request.cluster.num_ranks(), request.cluster.devices_per_node}, request.constraints);
  StageDivision division(request);
  for (Candidate& candidate : candidates) candidate.layers_per_stage = division.layers(candidate);
  Estimators estimators(costs, parallel_for.num_workers);
  const SearchContext context{request, parallel_for, estimators};
  std::vector<Evaluation> evaluations = evaluate_all(context, candidates, progress);
  std::vector<Evaluation> refined = refine(context, evaluations);
  const std::vector<Rejection> rejections = group_rejections(evaluations);
  std::ranges::move(refined, std::back_inserter(evaluations));
  const std::vector<std::size_t> chosen = winners(evaluations, std::max(request.top, kMostPlayed));
  if (chosen.empty()) return infeasible(context, evaluations);

  SearchResult result{.counts = count(evaluations), .rejections = rejections};
  for (const std::size_t i : chosen) result.ranked.push_back(ranked_plan(context, evaluations[i]));
  play_and_cut(result.ranked, static_cast<std::size_t>(request.top), costs, parallel_for);
  add_predictions(result.ranked);
  const auto best = std::ranges::find_if(evaluations, [&](const Evaluation& evaluation) {
    return evaluation.candidate == candidate_of(result.ranked.front().plan);
  });
  result.alternatives = alternatives_to(*best, context, evaluations);
  use_ranked_times(result.alternatives, result.ranked);
  return result;
}

}  // namespace meshplan::planner
