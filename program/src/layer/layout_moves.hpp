// How a value of a layer gets from one placement over the tp group to another: for activations and
// for gradients alike, so that each way exists once.
#pragma once

#include <string>
#include <vector>

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// The operations of a move: their phase, and what they are called: "x" gives "x.all_gather".
struct MoveTarget {
  Phase phase = Phase::Forward;
  int tp = 1;
  std::string name;
};

/// Appends the operations that lay out `from`, which is laid out as `have`, as `want`:
///
///   partial -> replicated: all-reduce in place        partial -> tokens: reduce-scatter
///   partial -> features: pack columns, reduce-scatter
///   tokens -> replicated: all-gather                  tokens -> features: all-gather, slice
///   features -> replicated or tokens: all-gather, unpack columns
///   replicated -> features or tokens: slice
///
/// @param columns  how tp cuts the last dimension of the value; read to and from features
/// @returns the moved value (after an all-reduce it has the memory of `from`)
/// @throws InvariantError if `want` is a partial sum, or if columns that must be put together are
/// not cut, or are held by several ranks
ValueId move_value(ShardedLayer& layer, const MoveTarget& target, ValueId from, Placement have,
                   Placement want, const std::vector<ShardSection>& columns);

/// Whether an operation only moves its input over the tp group: a collective, or a copy beside it.
/// (Exchanges between experts are operations of their own.)
bool only_moves(const Operation& operation);

std::int64_t local_size(const std::vector<ShardSection>& sections);

}  // namespace meshplan::program
