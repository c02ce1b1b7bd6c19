#include "program/shard_layout.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::program {

std::vector<ShardPiece> shard_pieces(const Parameter& parameter, int tp_rank) {
  if (parameter.shard_dim < 0) return {{.size = parameter.global_shape.front(), .copy = tp_rank}};
  const std::int64_t end = parameter.global_shape[static_cast<std::size_t>(parameter.shard_dim)];
  std::vector<ShardPiece> pieces;
  std::int64_t local = 0;
  for (const ShardSection& section : parameter.sections) {
    const std::int64_t begin = section.begin + tp_rank / section.copies * section.size;
    const std::int64_t size = std::clamp<std::int64_t>(end - begin, 0, section.size);
    if (size > 0)
      pieces.push_back({.local_begin = local,
                        .global_begin = begin,
                        .size = size,
                        .copy = tp_rank % section.copies});
    local += section.size;
  }
  return pieces;
}

std::vector<HeldRange> held_ranges(const Parameter& parameter, int tp) {
  if (parameter.shard_dim < 0) return {{{0, parameter.elements()}, tp}};
  const bool copied = std::ranges::any_of(
      parameter.sections, [](const ShardSection& section) { return section.copies > 1; });
  if (!copied) return {{{0, parameter.elements()}, 1}};
  require_invariant(parameter.shard_dim == 0, parameter.name + ": only whole rows are held twice");
  const std::int64_t row = parameter.elements() / parameter.local_shape.front();
  std::vector<HeldRange> ranges;
  std::int64_t begin = 0;
  for (const ShardSection& section : parameter.sections) {
    const std::int64_t end = begin + section.size * row;
    if (!ranges.empty() && ranges.back().copies == section.copies)
      ranges.back().range.end = end;
    else
      ranges.push_back({{begin, end}, section.copies});
    begin = end;
  }
  return ranges;
}

}  // namespace meshplan::program
