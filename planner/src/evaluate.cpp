#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "evaluation.hpp"

namespace meshplan::planner {
namespace {

// Candidates with equal blocks are priced by one worker, whose estimator remembers them.
std::vector<std::vector<std::size_t>> batches_of_equal_blocks(
    const std::vector<Candidate>& candidates) {
  std::map<
      std::tuple<int, bool, int, program::ContextMethod, int, int, int, program::RecomputeKind>,
      std::vector<std::size_t>>
      batches;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    batches[{candidate.parallel.tp, candidate.parallel.sp, candidate.parallel.cp,
             candidate.context_parallel, candidate.parallel.ep, candidate.parallel.etp,
             candidate.micro_batch_size, candidate.recompute.kind}]
        .push_back(i);
  }
  std::vector<std::vector<std::size_t>> lists;
  lists.reserve(batches.size());
  for (auto& [key, indexes] : batches) lists.push_back(std::move(indexes));
  return lists;
}

}  // namespace

sim::StepPrediction Estimators::operator()(const program::Plan& plan, int worker) {
  CostModel::Estimate& estimate = per_worker_[static_cast<std::size_t>(worker)];
  if (!estimate) estimate = costs_.estimator();
  return estimate(plan);
}

Evaluation evaluate(const SearchContext& context, const Candidate& candidate, int worker) {
  const program::Plan plan = make_plan(context.request, candidate);
  std::vector<program::Violation> violations = program::check(plan);
  if (!violations.empty()) return {.candidate = candidate, .broken = std::move(violations.front())};
  return {.candidate = candidate,
          .estimate = context.estimators(plan, worker),
          .reserve = context.request.memory_reserve};
}

std::vector<Evaluation> evaluate_all(const SearchContext& context,
                                     const std::vector<Candidate>& candidates,
                                     const Progress& progress) {
  std::vector<Evaluation> evaluations(candidates.size());
  const auto batches = batches_of_equal_blocks(candidates);
  std::atomic<std::size_t> done{0};
  context.parallel_for.run(batches.size(), [&](std::size_t batch, int worker) {
    for (const std::size_t i : batches[batch]) {
      evaluations[i] = evaluate(context, candidates[i], worker);
      const std::size_t now_done = ++done;
      if (progress) progress(now_done, candidates.size());
    }
  });
  require_invariant(done == candidates.size(), "parallel_for left out an index");
  return evaluations;
}

std::vector<std::size_t> rank(const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    if (evaluations[i].fits()) order.push_back(i);
  std::ranges::sort(order, {}, [&](std::size_t i) {
    const sim::StepPrediction& estimate = *evaluations[i].estimate;
    return std::tuple(estimate.step_time_s, estimate.peak_memory_bytes, i);
  });
  return order;
}

std::optional<std::size_t> nearest_miss(const std::vector<Evaluation>& evaluations) {
  std::optional<std::size_t> nearest;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    if (!evaluations[i].estimate || evaluations[i].fits()) continue;
    if (!nearest || evaluations[i].missing_bytes() < evaluations[*nearest].missing_bytes())
      nearest = i;
  }
  return nearest;
}

}  // namespace meshplan::planner
