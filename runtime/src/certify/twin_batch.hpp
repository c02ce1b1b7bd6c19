// The tokens of a twin: a fixed function of seed, sequence and position, so that every layout sees
// the same ones and a loss can fall.
#pragma once

#include "data/packed_batch.hpp"

namespace meshplan::runtime {

/// The batch of every step, as the rank at `place` sees it.
StepBatch twin_batch(const program::Plan& plan, const program::Coordinates& place,
                     std::uint64_t seed);

/// With packed documents: a sequence of it, by its place in the global batch.
PackedTokens twin_sequence(const program::Plan& plan, std::int64_t sequence, std::uint64_t seed);

}  // namespace meshplan::runtime
