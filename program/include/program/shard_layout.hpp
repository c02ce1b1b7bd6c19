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
  bool operator==(const ShardPiece&) const = default;
};

/// What `tp_rank` holds of a parameter, along shard_dim (dimension 0 if replicated). Rows that pad
/// a vocabulary belong to no piece.
std::vector<ShardPiece> shard_pieces(const Parameter& parameter, int tp_rank);

}  // namespace meshplan::program
