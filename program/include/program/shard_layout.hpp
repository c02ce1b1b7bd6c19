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
struct CopiedRange {
  FlatRange range;
  int copies = 1;
  bool operator==(const CopiedRange&) const = default;
};

/// The parameter from front to back: one range where all is held alike, more where a fused weight
/// has sections that are held by several ranks.
std::vector<CopiedRange> copied_ranges(const Parameter& parameter, int tp);

/// A dense part of a parameter that a rank holds, with the parameter seen as a matrix: one of more
/// dimensions has all but the last as its rows.
struct MatrixPiece {
  std::int64_t local_offset = 0;  // elements, of its first one in the local tensor
  std::int64_t local_stride = 0;  // elements from one row to the next
  std::int64_t global_row = 0;
  std::int64_t global_column = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  int copy = 0;  // of the tp ranks that hold the same, this is number `copy`
  bool operator==(const MatrixPiece&) const = default;
};

/// What the rank at `place` holds of a parameter: of the experts', those of its ep rank and of each
/// its etp rank's part; of any other, its tp rank's part.
std::vector<MatrixPiece> matrix_pieces(const Parameter& parameter, const Coordinates& place);

}  // namespace meshplan::program
