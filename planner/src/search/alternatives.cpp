#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "search/evaluation.hpp"

namespace meshplan::planner {
namespace {

constexpr std::array kChoices = {
    Choice::Tp,  Choice::Sp,         Choice::Cp,        Choice::Pp,       Choice::Dp,  Choice::Ep,
    Choice::Etp, Choice::MicroBatch, Choice::Recompute, Choice::Schedule, Choice::Zero};

/// Equal for candidates with the same label, which takes longer to make.
std::pair<int, int> key_of(Choice choice, const Candidate& candidate) {
  const program::ParallelConfig& p = candidate.parallel;
  switch (choice) {
    case Choice::Tp:
      return {p.tp, 0};
    case Choice::Sp:
      return {p.sp ? 1 : 0, 0};
    case Choice::Cp:
      return {p.cp, static_cast<int>(candidate.context_parallel)};
    case Choice::Pp:
      return {p.pp, 0};
    case Choice::Dp:
      return {p.dp, 0};
    case Choice::Ep:
      return {p.ep, candidate.expert_node_ranks};
    case Choice::Etp:
      return {p.etp, 0};
    case Choice::Zero:
      return {candidate.zero_stage, candidate.zero_shard_group};
    case Choice::MicroBatch:
      return {candidate.micro_batch_size, 0};
    case Choice::Recompute:
      return {static_cast<int>(candidate.recompute.kind), 0};
    case Choice::Schedule:
      return {static_cast<int>(candidate.schedule), p.vpp};
  }
  throw InvariantError("unknown choice");
}

ChoiceValues values_of(Choice choice, const std::vector<Evaluation>& evaluations) {
  ChoiceValues values{.choice = choice};
  std::map<std::pair<int, int>, int> known;
  values.value_of.reserve(evaluations.size());
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    const Candidate& candidate = evaluations[i].candidate;
    const auto [entry, fresh] = known.try_emplace(key_of(choice, candidate), 0);
    if (fresh) {
      const std::string name = label(choice, candidate);
      const auto place = std::ranges::find(values.names, name);  // several keys have one label
      entry->second = static_cast<int>(place - values.names.begin());
      if (place == values.names.end()) {
        values.names.push_back(name);
        values.first_of.push_back(i);
      }
    }
    values.value_of.push_back(entry->second);
  }
  return values;
}

/// @param ranking  those that fit, fastest first    @param misses  those that only lack memory
std::vector<Offer> best_offers(const ChoiceValues& choice,
                               const std::vector<Evaluation>& evaluations,
                               const std::vector<std::size_t>& ranking,
                               const std::vector<std::size_t>& misses) {
  std::vector<Offer> offers;
  for (std::size_t value = 0; value < choice.names.size(); ++value)
    offers.push_back({.choice = choice.names[value], .first = choice.first_of[value]});
  const auto value_of = [&](std::size_t i) { return at(choice.value_of[i]); };
  for (const std::size_t i : ranking)
    if (!offers[value_of(i)].fastest) offers[value_of(i)].fastest = i;
  std::vector<std::vector<std::size_t>> misses_of(offers.size());
  for (const std::size_t i : misses)
    if (!offers[value_of(i)].fastest) misses_of[value_of(i)].push_back(i);
  for (std::size_t value = 0; value < offers.size(); ++value)
    if (!misses_of[value].empty()) offers[value].miss = nearest_of(misses_of[value], evaluations);
  return offers;
}

}  // namespace

std::vector<ChoiceValues> choice_values(const std::vector<Evaluation>& evaluations) {
  std::vector<ChoiceValues> all;
  all.reserve(kChoices.size());
  for (const Choice choice : kChoices) all.push_back(values_of(choice, evaluations));
  return all;
}

std::vector<Offer> offers_beside(const Evaluation& best, const std::vector<ChoiceValues>& choices,
                                 const std::vector<Evaluation>& evaluations) {
  std::vector<Offer> offers;
  const std::vector<std::size_t> ranking = rank(evaluations);
  std::vector<std::size_t> misses;
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    if (!evaluations[i].broken && !evaluations[i].fits()) misses.push_back(i);
  for (const ChoiceValues& choice : choices) {
    const std::string chosen = label(choice.choice, best.candidate);
    for (Offer& offer : best_offers(choice, evaluations, ranking, misses))
      if (offer.choice != chosen) offers.push_back(std::move(offer));
  }
  return offers;
}

}  // namespace meshplan::planner
