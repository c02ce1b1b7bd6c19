#include "runtime/parity/parity_techniques.hpp"

#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <stdexcept>

#include "support/cases.hpp"

namespace meshplan::test {

using program::Plan;

const std::vector<std::string>& all_techniques() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const program::Technique& technique : program::techniques())
      names.push_back(technique.name);
    return names;
  }();
  return kNames;
}

std::vector<std::size_t> techniques_of(const Plan& plan) {
  return program::techniques_of(plan, program::techniques());
}

PairSet pairs_of(const Plan& plan) {
  return program::pairs_of(plan, program::techniques());
}

std::vector<std::size_t> covering_plans(const std::vector<Plan>& plans, PairSet covered) {
  std::vector<PairSet> sets;
  for (const Plan& plan : plans) sets.push_back(pairs_of(plan));
  return program::covering_sets(sets, covered);
}

std::vector<std::size_t> plans_to_run(const std::vector<Plan>& plans) {
  if (!testing::all_cases()) {
    std::vector<PairSet> alone(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i)
      for (const std::size_t technique : techniques_of(plans[i]))
        alone[i].set(pair_index(technique, technique));
    return program::covering_sets(alone);
  }
  std::vector<std::size_t> all(plans.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

void record_parity(std::string_view suite, const Plan& plan, double error) {
  const char* file = std::getenv("MESHPLAN_PARITY_LOG");
  if (file == nullptr) return;
  std::vector<std::string> names;
  for (const std::size_t i : techniques_of(plan)) names.push_back(all_techniques()[i]);
  std::ofstream log(file, std::ios::app);
  log << fmt::format("{}\t{}\t{}\t{:.3e}\n", suite, plan.model.name, fmt::join(names, ","), error);
  if (!log.flush())  // else plans that ran would be said not to be covered
    throw std::runtime_error(fmt::format("MESHPLAN_PARITY_LOG: cannot append to {}", file));
}

}  // namespace meshplan::test
