// All ranks compare their ledgers.
#pragma once

#include <vector>

#include "certify/ledger.hpp"
#include "program/certificate/exact_check.hpp"

namespace meshplan::runtime {

/// Compares what this rank received, and what it has of sums, with the ledgers of all ranks, and
/// clears the ledger:
/// - each block that arrived has the hash of the block that its sender passed in;
/// - all ranks of an all_reduce have the same bits;
/// - each element of a sum is what its inputs can add up to (sum_check.hpp): each rank checks its
///   part of the result, for which the others send it theirs of the inputs;
/// - a sum over more than two ranks, done once more, gives the same bits.
/// Collective over `world`, the inner one of the ledger's world; nothing may be in flight.
/// @param when  opens the name of each difference: "step 1"
/// @returns what this rank has found
std::vector<program::ExactCheck> settle(Ledger& ledger, Communicator& world,
                                        const std::string& when);

/// Adds up what the ranks have found. Collective. @returns on rank 0; nothing on the others
std::vector<program::ExactCheck> all_checks(const std::vector<program::ExactCheck>& own,
                                            Communicator& world);

}  // namespace meshplan::runtime
