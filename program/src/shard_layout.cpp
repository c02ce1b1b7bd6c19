#include "program/shard_layout.hpp"

#include <algorithm>

namespace meshplan::program {

std::vector<ShardPiece> shard_pieces(const Parameter& parameter, int tp_rank) {
  if (parameter.shard_dim < 0) return {{.size = parameter.global_shape.front()}};
  const std::int64_t end = parameter.global_shape[static_cast<std::size_t>(parameter.shard_dim)];
  std::vector<ShardPiece> pieces;
  std::int64_t local = 0;
  for (const ShardSection& section : parameter.sections) {
    const std::int64_t begin = section.begin + tp_rank * section.size;
    const std::int64_t size = std::clamp<std::int64_t>(end - begin, 0, section.size);
    if (size > 0) pieces.push_back({.local_begin = local, .global_begin = begin, .size = size});
    local += section.size;
  }
  return pieces;
}

}  // namespace meshplan::program
