#include <algorithm>
#include <array>
#include <map>

#include "evaluation.hpp"

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

std::vector<Offer> best_offers(const ChoiceValues& choice,
                               const std::vector<Evaluation>& evaluations,
                               const std::vector<std::size_t>& ranking) {
  std::vector<Offer> offers;
  for (const std::string& name : choice.names) offers.push_back({.choice = name});
  const auto offer_of = [&](std::size_t i) -> Offer& {
    return offers[static_cast<std::size_t>(choice.value_of[i])];
  };
  for (const std::size_t i : ranking)
    if (!offer_of(i).fastest) offer_of(i).fastest = i;
  std::vector<std::vector<std::size_t>> misses(offers.size());
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    Offer& offer = offer_of(i);
    if (!offer.first) offer.first = i;
    if (!offer.fastest && !evaluations[i].broken)
      misses[static_cast<std::size_t>(choice.value_of[i])].push_back(i);
  }
  for (std::size_t value = 0; value < offers.size(); ++value)
    if (!misses[value].empty()) offers[value].miss = nearest_of(misses[value], evaluations);
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
  for (const ChoiceValues& choice : choices) {
    const std::string chosen = label(choice.choice, best.candidate);
    for (Offer& offer : best_offers(choice, evaluations, ranking))
      if (offer.choice != chosen) offers.push_back(std::move(offer));
  }
  return offers;
}

}  // namespace meshplan::planner
