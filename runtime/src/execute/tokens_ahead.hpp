// What prediction modules read: ids and targets of tokens further on.
#pragma once

#include <cstdint>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::runtime {

/// The id that stands for tokens beyond a sequence. Only positions that count in no loss read it,
/// behind all that do.
constexpr std::int32_t kBeyondSequence = 0;

/// Adds to every micro-batch's rows those that the plan's prediction modules read: module k those k
/// tokens further on in the same sequence.
/// @param rows    (microbatches, sequences, S): ids or targets
/// @param beyond  what stands for tokens beyond the sequence
/// @returns (microbatches, 1 + modules, sequences, S)
std::vector<std::int32_t> with_tokens_ahead(const program::Plan& plan,
                                            const std::vector<std::int32_t>& rows,
                                            std::int32_t beyond);

}  // namespace meshplan::runtime
