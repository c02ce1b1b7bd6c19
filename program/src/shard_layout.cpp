#include "program/shard_layout.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {

std::vector<ShardPiece> shard_pieces(const Parameter& parameter, int tp_rank) {
  if (!parameter.shard_dim) return {{.size = parameter.global_shape.front(), .copy = tp_rank}};
  const std::int64_t end = parameter.global_shape[at(*parameter.shard_dim)];
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

std::vector<CopiedRange> copied_ranges(const Parameter& parameter, int tp) {
  if (!parameter.shard_dim) return {{{0, parameter.elements()}, tp}};
  const bool copied = std::ranges::any_of(
      parameter.sections, [](const ShardSection& section) { return section.copies > 1; });
  if (!copied) return {{{0, parameter.elements()}, 1}};
  require_invariant(parameter.shard_dim == 0, parameter.name + ": only whole rows are held twice");
  const std::int64_t row = parameter.elements() / parameter.local_shape.front();
  std::vector<CopiedRange> ranges;
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

std::vector<MatrixPiece> matrix_pieces(const Parameter& parameter, const Coordinates& place) {
  // (experts, rows, columns), of which a plain matrix has one; a vector has one column as well, one
  // of each expert one row
  const bool vectors = parameter.expert && parameter.local_shape.size() == 2;
  const std::size_t first = parameter.expert && !vectors ? 1 : 0;
  const bool matrix = parameter.local_shape.size() > first + 1;
  const std::int64_t rows = vectors ? 1 : parameter.local_shape[first];
  const std::int64_t columns = matrix ? parameter.local_shape[first + 1] : 1;
  const std::int64_t experts = parameter.expert ? parameter.local_shape.front() : 1;
  const std::int64_t first_expert = parameter.expert ? place.ep * experts : 0;
  const std::int64_t global_rows = vectors ? 1 : parameter.global_shape[first];
  const bool by_column = parameter.shard_dim == static_cast<int>(first) + 1;
  std::vector<ShardPiece> held = {{.size = rows, .copy = place.etp}};
  if (!parameter.expert || parameter.shard_dim)
    held = shard_pieces(parameter, parameter.expert ? place.etp : place.tp);
  std::vector<MatrixPiece> pieces;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (const ShardPiece& piece : held)
      pieces.push_back(
          {.local_offset = expert * rows * columns +
                           (by_column ? piece.local_begin : piece.local_begin * columns),
           .local_stride = columns,
           .global_row =
               (first_expert + expert) * global_rows + (by_column ? 0 : piece.global_begin),
           .global_column = by_column ? piece.global_begin : 0,
           .rows = by_column ? rows : piece.size,
           .columns = by_column ? piece.size : columns,
           .copy = piece.copy});
  return pieces;
}

}  // namespace meshplan::program
