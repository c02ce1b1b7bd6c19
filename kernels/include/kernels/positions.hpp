#pragma once

#include <cstdint>

namespace meshplan::kernels {

/// Position of local row r: first_position + (first_row + r) % seq_len. A plain micro-batch has
/// both offsets 0; a token shard that starts inside a sequence sets first_row; a context-parallel
/// chunk has the chunk's length as seq_len and its place in the sequence as first_position.
struct RowPositions {
  std::int64_t seq_len = 1;
  std::int64_t first_row = 0;
  std::int64_t first_position = 0;
  constexpr std::int64_t of(std::int64_t row) const {
    return first_position + (first_row + row) % seq_len;
  }
  bool operator==(const RowPositions&) const = default;
};

}  // namespace meshplan::kernels
