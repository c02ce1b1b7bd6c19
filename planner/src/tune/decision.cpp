#include "planner/tune/decision.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace meshplan::planner {
namespace {

constexpr std::size_t kFirstTogether = 3;

/// Plans that neither ran nor failed, the most promising first.
std::vector<std::size_t> waiting(const std::vector<TuneCandidate>& candidates) {
  std::vector<std::size_t> indexes;
  std::vector<double> least_s;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    least_s.push_back(0);
    if (!candidates[i].rounds.empty() || candidates[i].failure) continue;
    least_s.back() = optimistic_s(candidates[i], candidates);
    indexes.push_back(i);
  }
  std::ranges::stable_sort(indexes, {}, [&](std::size_t i) { return least_s[i]; });
  return indexes;
}

std::size_t fastest_that_ran(const std::vector<TuneCandidate>& candidates) {
  std::size_t fastest = candidates.size();
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].has_run() &&
        (fastest == candidates.size() || median_s(candidates[i]) < median_s(candidates[fastest])))
      fastest = i;
  return fastest;
}

/// Those of them whose optimistic time is less.
std::vector<std::size_t> waiting_below(const std::vector<TuneCandidate>& candidates,
                                       double seconds) {
  std::vector<std::size_t> indexes = waiting(candidates);
  std::erase_if(indexes,
                [&](std::size_t i) { return optimistic_s(candidates[i], candidates) >= seconds; });
  return indexes;
}

/// Of a first turn: what the search alone would have chosen is always among them.
std::vector<std::size_t> first_turn(const std::vector<TuneCandidate>& candidates,
                                    const TunePolicy& policy) {
  std::vector<std::size_t> chosen = waiting(candidates);
  if (std::erase(chosen, 0U) > 0) chosen.insert(chosen.begin(), 0U);
  chosen.resize(std::min({chosen.size(), kFirstTogether, static_cast<std::size_t>(policy.top)}));
  return chosen;
}

}  // namespace

std::vector<std::size_t> might_be_faster(const std::vector<TuneCandidate>& candidates,
                                         const TunePolicy& policy) {
  const std::size_t fastest = fastest_that_ran(candidates);
  if (fastest == candidates.size()) return waiting(candidates);
  TuneCandidate other;
  other.rounds.resize(static_cast<std::size_t>(policy.least_rounds));
  const double noise = told_apart(candidates[fastest], other, round_sigma(candidates));
  return waiting_below(candidates, median_s(candidates[fastest]) / (1 + noise));
}

std::vector<std::size_t> hidden_by_noise(const std::vector<TuneCandidate>& candidates,
                                         const TunePolicy& policy) {
  const std::size_t fastest = fastest_that_ran(candidates);
  if (fastest == candidates.size()) return {};
  std::vector<std::size_t> hidden = waiting_below(candidates, median_s(candidates[fastest]));
  const std::vector<std::size_t> open = might_be_faster(candidates, policy);
  std::erase_if(hidden, [&](std::size_t i) { return std::ranges::count(open, i) > 0; });
  return hidden;
}

TuneDecision decide(const std::vector<TuneCandidate>& candidates, const TunePolicy& policy,
                    double seconds_used) {
  const auto ran = std::ranges::count_if(candidates, &TuneCandidate::has_run);
  const auto failed = std::ranges::count_if(
      candidates, [](const TuneCandidate& candidate) { return candidate.failure.has_value(); });
  if (seconds_used >= policy.most_seconds) return {.measure = {}, .stop = TuneStop::TimeUsed};
  if (ran == 0) {
    if (failed < std::ptrdiff_t{2} * policy.top)
      if (std::vector<std::size_t> first = first_turn(candidates, policy); !first.empty())
        return {.measure = std::move(first)};
    return {.measure = {}, .stop = TuneStop::AllFailed};
  }
  std::vector<std::size_t> turn;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].has_run() && !is_settled(candidates[i], candidates, policy))
      turn.push_back(i);
  if (turn.empty()) {
    const std::vector<std::size_t> open = might_be_faster(candidates, policy);
    if (open.empty()) {
      const bool all = ran + failed == std::ssize(candidates);
      return {.measure = {}, .stop = all ? TuneStop::AllMeasured : TuneStop::Settled};
    }
    if (ran >= policy.top || failed >= std::ptrdiff_t{2} * policy.top)
      return {.measure = {}, .stop = TuneStop::TopReached};
    turn.push_back(open.front());
  }
  const std::size_t fastest = fastest_that_ran(candidates);
  if (std::ranges::find(turn, fastest) == turn.end()) turn.push_back(fastest);
  return {.measure = std::move(turn)};
}

}  // namespace meshplan::planner
