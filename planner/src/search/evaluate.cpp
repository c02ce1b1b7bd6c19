#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/checks/check.hpp"
#include "search/evaluation.hpp"

namespace meshplan::planner {
namespace {

bool keeps_all(const Candidate& candidate) {
  return candidate.recompute.kind == program::RecomputeKind::None;
}

template <class CandidateOf>
std::vector<std::vector<std::size_t>> batches(std::size_t count, const CandidateOf& candidate_of) {
  std::map<std::tuple<int, bool, int, program::ContextMethod, int, int>, std::vector<std::size_t>>
      by_block;
  for (std::size_t i = 0; i < count; ++i) {
    const Candidate& candidate = candidate_of(i);
    by_block[{candidate.parallel.tp, candidate.parallel.sp, candidate.parallel.cp,
              candidate.context_parallel, candidate.parallel.ep, candidate.parallel.etp}]
        .push_back(i);
  }
  std::vector<std::vector<std::size_t>> lists;
  lists.reserve(by_block.size());
  for (auto& [key, indexes] : by_block) {
    std::ranges::stable_sort(indexes, {}, [&](std::size_t i) {
      return std::pair(keeps_all(candidate_of(i)), candidate_of(i).micro_batch_size);
    });
    lists.push_back(std::move(indexes));
  }
  return lists;
}

/// Candidates that do not fit, by what they have in common with those that need more.
class Misses {
 public:
  explicit Misses(const SearchRequest& request)
      : global_batch_size_(request.workload.global_batch_size),
        uneven_(request.constraints.uneven_batch) {}

  void add(std::size_t index, const Candidate& candidate) {
    misses_[key_of(candidate)].push_back(
        {keeps_all(candidate), candidate.micro_batch_size, sequences_of(candidate), index});
  }

  std::optional<std::size_t> smaller_than(const Candidate& candidate) const {
    const auto found = misses_.find(key_of(candidate));
    if (found == misses_.end()) return std::nullopt;
    for (const Miss& miss : found->second)
      if (miss.keeps_all <= keeps_all(candidate) &&
          miss.micro_batch_size <= candidate.micro_batch_size && is_comparable(miss, candidate))
        return miss.index;
    return std::nullopt;
  }

 private:
  struct Miss {
    bool keeps_all = false;
    int micro_batch_size = 0;
    std::int64_t sequences = 0;
    std::size_t index = 0;
  };
  /// In an uneven batch a larger micro-batch may leave fewer sequences to keep, and one that is no
  /// multiple may need a thousandth less, as a schedule seldom keeps all of one micro-batch.
  bool is_comparable(const Miss& miss, const Candidate& candidate) const {
    return !uneven_ || (miss.sequences <= sequences_of(candidate) &&
                        candidate.micro_batch_size % miss.micro_batch_size == 0);
  }
  /// Sequences of a replica in a step, empty ones included.
  std::int64_t sequences_of(const Candidate& candidate) const {
    return candidate.micro_batch_size * program::microbatches_of(global_batch_size_,
                                                                 candidate.micro_batch_size,
                                                                 candidate.parallel.dp);
  }
  /// Full recompute of a stage's only layer needs all of it at once, which may be more than a
  /// selective one keeps, and so do whole modules: they are compared with their like only.
  static std::pair<MeshKey, std::int64_t> key_of(Candidate candidate) {
    candidate.micro_batch_size = 0;
    const program::RecomputedPart part = program::recomputed_part(candidate.recompute);
    return {mesh_key(candidate), part.modules == program::kCheapModules ? 0 : part.key()};
  }

  std::int64_t global_batch_size_;
  bool uneven_;
  std::map<std::pair<MeshKey, std::int64_t>, std::vector<Miss>> misses_;
};

}  // namespace

std::vector<std::vector<std::size_t>> batches_of(const std::vector<Evaluation>& evaluations,
                                                 const std::vector<std::size_t>& indexes) {
  auto lists = batches(indexes.size(), [&](std::size_t i) -> const Candidate& {
    return evaluations[indexes[i]].candidate;
  });
  for (std::vector<std::size_t>& list : lists)
    for (std::size_t& place : list) place = indexes[place];
  return lists;
}

MeshKey mesh_key(const Candidate& candidate) {
  const program::ParallelConfig& p = candidate.parallel;
  return {{p.tp, p.sp ? 1 : 0, p.cp, p.pp, p.vpp, p.dp, p.ep, p.etp, candidate.micro_batch_size,
           4 * candidate.zero_shard_group + candidate.zero_stage, candidate.expert_node_ranks},
          candidate.context_parallel,
          candidate.schedule};
}

sim::StepPrediction Estimators::operator()(const program::Plan& plan, int worker,
                                           const sim::Wanted& wanted) {
  CostModel::Estimate& estimate = per_worker_[at(worker)];
  if (!estimate) estimate = costs_.estimator();
  return estimate(plan, wanted);
}

namespace {

/// Without an estimate yet.
Evaluation check(const SearchContext& context, const Candidate& candidate,
                 const program::Plan& plan) {
  Evaluation evaluation{.candidate = candidate, .reserve = context.request.memory_reserve};
  std::vector<program::Violation> violations = program::check(plan);
  if (violations.empty()) violations = sim::software_violations(plan);
  if (!violations.empty()) evaluation.broken = std::move(violations.front());
  return evaluation;
}

/// Of an evaluation that obeys the rules; a bound from above as long as it has no estimate.
void set_goodput(const SearchContext& context, const program::Plan& plan, Evaluation& evaluation) {
  if (!context.failures || evaluation.broken) return;
  const double step = evaluation.estimate ? evaluation.estimate->step_time_s : 0;
  evaluation.goodput = context.failures->goodput(plan, step).goodput;
}

/// Keeps those that were looked at, with the places that their `smaller` have then.
std::vector<Evaluation> only(const std::vector<bool>& looked_at,
                             std::vector<Evaluation> evaluations) {
  std::vector<std::size_t> place_of(evaluations.size());
  std::vector<Evaluation> kept;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    place_of[i] = kept.size();
    if (looked_at[i]) kept.push_back(std::move(evaluations[i]));
  }
  for (Evaluation& evaluation : kept)
    if (evaluation.smaller) evaluation.smaller = place_of[*evaluation.smaller];
  return kept;
}

}  // namespace

Evaluation evaluate(const SearchContext& context, const Candidate& candidate, int worker,
                    const sim::Wanted& wanted) {
  const program::Plan plan = make_plan(context.request, candidate);
  Evaluation evaluation = check(context, candidate, plan);
  if (!evaluation.broken) evaluation.estimate = context.estimators(plan, worker, wanted);
  set_goodput(context, plan, evaluation);
  return evaluation;
}

std::vector<Evaluation> evaluate_all(const SearchContext& context,
                                     const std::vector<Candidate>& candidates,
                                     const Progress& progress) {
  std::vector<Evaluation> evaluations(candidates.size());
  const auto lists =
      batches(candidates.size(), [&](std::size_t i) -> const Candidate& { return candidates[i]; });
  std::atomic<std::size_t> done{0};
  std::vector<std::size_t> looked_at(lists.size());  // of each list
  context.parallel_for.run(lists.size(), [&](std::size_t batch, int worker) {
    Misses misses(context.request);
    for (const std::size_t i : lists[batch]) {
      if (context.stops()) return;
      ++looked_at[batch];
      const program::Plan plan = make_plan(context.request, candidates[i]);
      Evaluation& evaluation = evaluations[i] = check(context, candidates[i], plan);
      if (!evaluation.broken) {
        evaluation.smaller = misses.smaller_than(candidates[i]);
        if (!evaluation.smaller) evaluation.estimate = context.estimators(plan, worker);
        set_goodput(context, plan, evaluation);
        if (evaluation.estimate && !evaluation.fits()) misses.add(i, candidates[i]);
      }
      const std::size_t now_done = ++done;
      if (progress) progress(now_done, candidates.size());
    }
  });
  if (done == candidates.size()) return evaluations;
  require_invariant(context.cut_short, "parallel_for left out an index");
  std::vector<bool> kept(candidates.size(), false);
  for (std::size_t list = 0; list < lists.size(); ++list)
    for (std::size_t i = 0; i < looked_at[list]; ++i) kept[lists[list][i]] = true;
  return only(kept, std::move(evaluations));
}

std::vector<std::size_t> rank(const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    if (evaluations[i].fits()) order.push_back(i);
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::tuple(evaluations[i].estimated_s(), evaluations[i].estimate->peak_memory_bytes, i);
  });
  return order;
}

std::size_t nearest_of(const std::vector<std::size_t>& members,
                       const std::vector<Evaluation>& evaluations) {
  return *std::ranges::min_element(members, {}, [&](std::size_t i) {
    const Evaluation& known = evaluations[evaluations[i].smaller.value_or(i)];
    return std::pair(evaluations[i].smaller.has_value(), known.missing_bytes());
  });
}

std::optional<std::size_t> nearest_miss(const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> misses;
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    if (!evaluations[i].broken && evaluations[i].estimate && !evaluations[i].fits())
      misses.push_back(i);
  if (misses.empty()) return std::nullopt;
  return nearest_of(misses, evaluations);
}

}  // namespace meshplan::planner
