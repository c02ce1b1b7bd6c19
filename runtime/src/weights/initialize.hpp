#pragma once

#include <cstdint>

#include "execute/arena.hpp"
#include "kernels/backend.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::runtime {

/// Fills the weights of a rank from (seed, parameter name, global position), so that every plan
/// starts from the same model. Optimizer state, gradients and padding are zero.
void initialize_parameters(const program::Program& program, const program::Coordinates& place,
                           const program::ShardPlace& shard, std::uint64_t seed,
                           kernels::Backend& backend, const Arena& arena);

/// Rounds the fp32 master weights to the compute dtype, where that is another one.
void refresh_compute_weights(const program::Program& program, const program::ShardPlace& shard,
                             kernels::Backend& backend, const Arena& arena);

}  // namespace meshplan::runtime
