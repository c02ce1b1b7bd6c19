#pragma once

#include <cstdint>

namespace meshplan::kernels {

/// Position of local row r: with i = (first_row + r) % seq_len, first_position + i, and `jump` more
/// in the second half of the seq_len rows. A plain micro-batch has all offsets 0; a token shard
/// that starts inside a sequence sets first_row; a rank that holds two chunks of every sequence has
/// their length together as seq_len, the first one's place in the sequence as first_position, and
/// the tokens between them as jump. Where positions start anew with every document, `rows` says
/// them one by one, from row 0 of the micro-batch on, and the rest but first_row is not read.
struct RowPositions {
  std::int64_t seq_len = 1;
  std::int64_t first_row = 0;
  std::int64_t first_position = 0;
  std::int64_t jump = 0;
  const std::int32_t* rows = nullptr;
  constexpr std::int64_t of(std::int64_t row) const {
    if (rows != nullptr) return rows[first_row + row];
    const std::int64_t i = (first_row + row) % seq_len;
    return first_position + i + (i < seq_len / 2 ? 0 : jump);
  }
  /// The row of a sequence that has this position; -1 if none has. Not for `rows`.
  constexpr std::int64_t row_of(std::int64_t position) const {
    const std::int64_t half = seq_len / 2;
    const std::int64_t i = position - first_position;
    if (i >= 0 && i < (jump > 0 ? half : seq_len)) return i;
    if (jump > 0 && i - jump >= half && i - jump < seq_len) return i - jump;
    return -1;
  }
  bool operator==(const RowPositions&) const = default;
};

}  // namespace meshplan::kernels
