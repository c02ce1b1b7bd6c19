// Which of a suite's plans a quick run tries, and a record of what parity has seen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/techniques.hpp"

namespace meshplan::test {

using program::pair_index;
using program::PairSet;

/// Names of program::techniques(), in their order.
const std::vector<std::string>& all_techniques();
std::vector<std::size_t> techniques_of(const program::Plan& plan);
PairSet pairs_of(const program::Plan& plan);

/// Indexes, ascending, of plans that together have every pair of techniques that `plans` have.
/// @param covered  pairs that need no plan
std::vector<std::size_t> covering_plans(const std::vector<program::Plan>& plans,
                                        PairSet covered = {});

/// All plans of a suite; in a quick run as many as have every technique that `plans` have, since
/// parity_pairs_mpi_test.cpp has every pair.
std::vector<std::size_t> plans_to_run(const std::vector<program::Plan>& plans);

/// Appends a line to the file that MESHPLAN_PARITY_LOG names, if it names one: what
/// scripts/full_parity.sh counts. To be called on one rank.
/// @param error  relative, of the worst gradient
void record_parity(std::string_view suite, const program::Plan& plan, double error);

}  // namespace meshplan::test
