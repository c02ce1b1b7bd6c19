#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// A run of the sharded dimension: local [local_begin, + size) is global [global_begin, + size).
struct ShardPiece {
  std::int64_t local_begin = 0;
  std::int64_t global_begin = 0;
  std::int64_t size = 0;
  int copy = 0;  // ranks before this one that hold the same run; a checkpoint is written by copy 0
  bool operator==(const ShardPiece&) const = default;
};

/// What `tp_rank` holds of a parameter, along shard_dim (dimension 0 if replicated). Rows that pad
/// a vocabulary belong to no piece.
std::vector<ShardPiece> shard_pieces(const Parameter& parameter, int tp_rank);

/// A run of a parameter's elements, in its own order, that `copies` adjacent tp ranks hold alike.
struct HeldRange {
  FlatRange range;
  int copies = 1;
  bool operator==(const HeldRange&) const = default;
};

/// The parameter from front to back: one range where all is held alike, more where a fused weight
/// has sections that are held by several ranks.
std::vector<HeldRange> held_ranges(const Parameter& parameter, int tp);

}  // namespace meshplan::program
