#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/index.hpp"
#include "planner/search/reasons.hpp"
#include "search/evaluation.hpp"

namespace meshplan::planner {
namespace {

// The choice that a rule of program::check speaks about; empty = the model or workload itself.
std::string family_of_rule(const std::string& rule, const Candidate& candidate) {
  const bool spread = candidate.parallel.ep > 1 || candidate.parallel.etp > 1;
  if (spread && (rule == "experts" || rule == "mesh"))
    return fmt::format("{} {}", label(Choice::Ep, candidate), label(Choice::Etp, candidate));
  if (rule == "zero") return label(Choice::Zero, candidate);
  if (rule == "heads" || rule == "kv-heads" || rule == "ffn" || rule == "experts")
    return label(Choice::Tp, candidate);
  if (rule == "sp") return fmt::format("{} with sp", label(Choice::Tp, candidate));
  if (rule == "context") return label(Choice::Cp, candidate);
  if (rule == "stages") return label(Choice::Pp, candidate);
  if (rule == "batch")
    return fmt::format("{} {}", label(Choice::Dp, candidate), label(Choice::MicroBatch, candidate));
  return "every plan";
}

std::vector<Rejection> broken_rules(const std::vector<Evaluation>& evaluations) {
  std::vector<Rejection> found;
  std::map<std::pair<std::string, std::string>, std::size_t> place;  // (rule, family)
  for (const Evaluation& evaluation : evaluations) {
    if (!evaluation.broken) continue;
    const auto& [rule, message] = *evaluation.broken;
    const std::string family = family_of_rule(rule, evaluation.candidate);
    const auto [entry, is_new] = place.try_emplace({rule, family}, found.size());
    if (is_new) found.push_back({.family = family, .rule = rule, .message = message});
    ++found[entry->second].plans;
  }
  return found;
}

using Indexes = std::vector<std::size_t>;

Rejection memory_rejection(const std::string& family, const Indexes& members,
                           const std::vector<Evaluation>& evaluations) {
  return {.family = family,
          .rule = "memory",
          .message = memory_shortage(nearest_of(members, evaluations), evaluations),
          .plans = members.size()};
}

// One value of one choice of which no plan fits, e.g. "pp=1".
struct HopelessValue {
  const ChoiceValues* choice = nullptr;
  int value = 0;
  Indexes explains;
};

std::vector<HopelessValue> hopeless_values(const std::vector<ChoiceValues>& choices,
                                           const std::vector<Evaluation>& evaluations) {
  std::vector<HopelessValue> found;
  for (const ChoiceValues& choice : choices) {
    std::vector<bool> fits(choice.names.size(), false);
    std::vector<Indexes> too_large(choice.names.size());
    for (std::size_t i = 0; i < evaluations.size(); ++i) {
      const auto value = at(choice.value_of[i]);
      if (evaluations[i].fits())
        fits[value] = true;
      else if (!evaluations[i].broken)
        too_large[value].push_back(i);
    }
    if (choice.names.size() < 2) continue;  // pinned: it explains nothing
    for (std::size_t value = 0; value < fits.size(); ++value)
      if (!fits[value] && !too_large[value].empty())
        found.push_back({&choice, static_cast<int>(value), std::move(too_large[value])});
  }
  return found;
}

// Explains as many plans as possible by one value of one choice, largest family first.
// @param explained  gets true for every plan that has a family
std::vector<Rejection> families_of_one_choice(const std::vector<Evaluation>& evaluations,
                                              std::vector<bool>& explained) {
  const std::vector<ChoiceValues> choices = choice_values(evaluations);
  std::vector<HopelessValue> hopeless = hopeless_values(choices, evaluations);
  std::vector<Rejection> found;
  while (true) {
    for (HopelessValue& value : hopeless)
      std::erase_if(value.explains, [&](std::size_t i) { return explained[i]; });
    const auto largest = std::ranges::max_element(
        hopeless, {}, [](const HopelessValue& value) { return value.explains.size(); });
    if (largest == hopeless.end() || largest->explains.empty()) break;
    const std::string& family = largest->choice->names[at(largest->value)];
    found.push_back(memory_rejection(family, largest->explains, evaluations));
    for (const std::size_t i : largest->explains) explained[i] = true;
  }
  return found;
}

// What no single choice explains, by tp and pp.
std::vector<Rejection> memory_families(const std::vector<Evaluation>& evaluations) {
  std::vector<bool> explained(evaluations.size(), false);
  std::vector<Rejection> found = families_of_one_choice(evaluations, explained);
  struct Mesh {
    bool some_fit = false;
    Indexes too_large;
  };
  std::map<std::pair<int, int>, Mesh> meshes;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    if (evaluations[i].broken) continue;
    const program::ParallelConfig& parallel = evaluations[i].candidate.parallel;
    Mesh& mesh = meshes[{parallel.tp, parallel.pp}];
    if (evaluations[i].fits())
      mesh.some_fit = true;
    else if (!explained[i])
      mesh.too_large.push_back(i);
  }
  for (const auto& [degrees, mesh] : meshes)
    if (!mesh.too_large.empty())
      found.push_back(memory_rejection(fmt::format("{}tp={} pp={}", mesh.some_fit ? "part of " : "",
                                                   degrees.first, degrees.second),
                                       mesh.too_large, evaluations));
  return found;
}

}  // namespace

std::string memory_shortage(std::size_t index, const std::vector<Evaluation>& evaluations) {
  const std::optional<std::size_t> smaller = evaluations[index].smaller;
  const Evaluation& known = evaluations[smaller.value_or(index)];
  const std::string plan = describe(known.candidate);
  const std::string missing =
      shortage(known.step().peak_memory_bytes, known.step().usable_bytes(known.reserve),
               known.step().of_host);
  return smaller ? fmt::format("needs more than {}, which needs {}", plan, missing)
                 : fmt::format("needs {}; nearest miss {}", missing, plan);
}

std::vector<Rejection> group_rejections(const std::vector<Evaluation>& evaluations) {
  std::vector<Rejection> found = broken_rules(evaluations);
  std::ranges::move(memory_families(evaluations), std::back_inserter(found));
  return found;
}

std::vector<Rejection> too_long(const std::vector<Evaluation>& evaluations) {
  std::vector<Rejection> found;
  for (const Evaluation& evaluation : evaluations) {
    if (evaluation.refined || !evaluation.broken || evaluation.broken->rule != kTooLong) continue;
    if (found.empty())
      found.push_back(
          {.family = "every plan", .rule = kTooLong, .message = evaluation.broken->message});
    ++found.front().plans;
  }
  return found;
}

}  // namespace meshplan::planner
