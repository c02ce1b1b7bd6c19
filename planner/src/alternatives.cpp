#include <algorithm>
#include <array>
#include <map>

#include "evaluation.hpp"
#include "planner/explain.hpp"

namespace meshplan::planner {
namespace {

constexpr std::array kChoices = {
    Choice::Tp,  Choice::Sp,         Choice::Cp,        Choice::Pp,       Choice::Dp,  Choice::Ep,
    Choice::Etp, Choice::MicroBatch, Choice::Recompute, Choice::Schedule, Choice::Zero};

ChoiceValues values_of(Choice choice, const std::vector<Evaluation>& evaluations) {
  ChoiceValues values{.choice = choice};
  std::map<std::string, int> place;
  values.value_of.reserve(evaluations.size());
  for (const Evaluation& evaluation : evaluations) {
    const std::string name = label(choice, evaluation.candidate);
    const auto [entry, is_new] = place.try_emplace(name, static_cast<int>(values.names.size()));
    if (is_new) values.names.push_back(name);
    values.value_of.push_back(entry->second);
  }
  return values;
}

// The best that a value of a choice can offer: the fastest plan that fits, else the one that lacks
// the least memory, else the first one, which breaks a rule.
struct BestOffer {
  std::optional<std::size_t> fastest;
  std::optional<std::size_t> miss;
  std::optional<std::size_t> first;
};

std::vector<BestOffer> best_offers(const ChoiceValues& choice,
                                   const std::vector<Evaluation>& evaluations,
                                   const std::vector<std::size_t>& ranking) {
  std::vector<BestOffer> offers(choice.names.size());
  const auto offer_of = [&](std::size_t i) -> BestOffer& {
    return offers[static_cast<std::size_t>(choice.value_of[i])];
  };
  for (const std::size_t i : ranking)
    if (!offer_of(i).fastest) offer_of(i).fastest = i;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    BestOffer& offer = offer_of(i);
    if (!offer.first) offer.first = i;
    const auto& estimate = evaluations[i].estimate;
    if (estimate && !estimate->fits() &&
        (!offer.miss ||
         estimate->peak_memory_bytes < evaluations[*offer.miss].estimate->peak_memory_bytes))
      offer.miss = i;
  }
  return offers;
}

Alternative describe_offer(const BestOffer& offer, const Evaluation& best,
                           const SearchContext& context,
                           const std::vector<Evaluation>& evaluations) {
  if (offer.fastest) {
    const Evaluation& other = evaluations[*offer.fastest];
    return {.plan = make_plan(context.request, other.candidate),
            .slower_by_s = other.estimate->step_time_s - best.estimate->step_time_s,
            .reason = time_differences(*best.estimate, *other.estimate)};
  }
  if (offer.miss) return {.reason = memory_shortage(evaluations[*offer.miss])};
  return {.reason = evaluations[*offer.first].broken->message};
}

}  // namespace

std::vector<ChoiceValues> choice_values(const std::vector<Evaluation>& evaluations) {
  std::vector<ChoiceValues> all;
  all.reserve(kChoices.size());
  for (const Choice choice : kChoices) all.push_back(values_of(choice, evaluations));
  return all;
}

std::vector<Alternative> alternatives_to(const Evaluation& best, const SearchContext& context,
                                         const std::vector<Evaluation>& evaluations) {
  std::vector<Alternative> alternatives;
  const std::vector<std::size_t> ranking = rank(evaluations);
  for (const ChoiceValues& choice : choice_values(evaluations)) {
    const std::string chosen = label(choice.choice, best.candidate);
    const std::vector<BestOffer> offers = best_offers(choice, evaluations, ranking);
    for (std::size_t value = 0; value < offers.size(); ++value) {
      if (choice.names[value] == chosen) continue;
      alternatives.push_back(describe_offer(offers[value], best, context, evaluations));
      alternatives.back().choice = choice.names[value];
    }
  }
  return alternatives;
}

}  // namespace meshplan::planner
