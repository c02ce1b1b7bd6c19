// Which techniques a plan combines, which of a suite's plans a quick run tries, and a record of
// what parity has seen.
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::test {

/// "tp", "sp", "zb-h1", "cp-ring", "zero3", ...: all that are told apart, in the order of tables.
const std::vector<std::string>& all_techniques();

/// Techniques that a plan has, by index into all_techniques(), ascending.
std::vector<std::size_t> techniques_of(const program::Plan& plan);

/// Pairs of techniques, and techniques alone: bit pair_index(a, b), a <= b; (a, a) is a alone.
constexpr std::size_t kMostTechniques = 40;
using PairSet = std::bitset<kMostTechniques * kMostTechniques>;
constexpr std::size_t pair_index(std::size_t a, std::size_t b) {
  return a * kMostTechniques + b;
}
PairSet pairs_of(const program::Plan& plan);

/// The whole matrix, not its quick part: MESHPLAN_PARITY=full in the environment.
bool full_parity();

/// Indexes, ascending, of plans that together have every pair of techniques that `plans` have: at
/// each turn the first of those with most pairs that none before it has.
/// @param covered  pairs that need no plan
std::vector<std::size_t> covering_plans(const std::vector<program::Plan>& plans,
                                        PairSet covered = {});

/// All plans of a suite, or in a quick run its covering_plans().
std::vector<std::size_t> plans_to_run(const std::vector<program::Plan>& plans);

/// Appends a line to the file that MESHPLAN_PARITY_LOG names, if it names one: what
/// scripts/full_parity.sh counts. To be called on one rank.
/// @param error  relative, of the worst gradient
void record_parity(std::string_view suite, const program::Plan& plan, double error);

}  // namespace meshplan::test
