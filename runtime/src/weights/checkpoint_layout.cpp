#include "weights/checkpoint_layout.hpp"

#include <algorithm>

#include "program/shard_layout.hpp"

namespace meshplan::runtime {
namespace {

using program::Coordinates;
using program::FlatRange;
using program::Parameter;
using program::Region;

std::size_t sharded_dim(const Parameter& parameter) {
  return static_cast<std::size_t>(parameter.shard_dim.value_or(0));
}

/// The global part of a box of the local tensor that lies inside `piece`.
void append_piece(const Parameter& parameter, int index, const TensorBox& local,
                  const program::ShardPiece& piece, const Coordinates& place,
                  std::vector<PlacedBox>& pieces) {
  TensorBox inside = whole_box(parameter.local_shape);
  const std::size_t dim = sharded_dim(parameter);
  inside.begin[dim] = piece.local_begin;
  inside.size[dim] = piece.size;
  const std::optional<TensorBox> both = intersection(local, inside);
  if (!both) return;
  PlacedBox held{.parameter = index,
                 .box = *both,
                 .offset = parameter.offset,
                 .strides = dense_strides(parameter.local_shape)};
  for (std::size_t d = 0; d < held.strides.size(); ++d)
    held.offset += both->begin[d] * held.strides[d];
  held.box.begin[dim] += piece.global_begin - piece.local_begin;
  if (parameter.expert) held.box.begin[0] += place.ep * parameter.local_shape[0];
  pieces.push_back(std::move(held));
}

template <class Keep>
std::vector<PlacedBox> pieces_of(const program::Program& program, const Coordinates& place,
                                 FlatRange range, Keep keep) {
  std::vector<PlacedBox> pieces;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    const std::int64_t begin = std::max(range.begin, parameter.offset);
    const std::int64_t end = std::min(range.end, parameter.offset + parameter.elements());
    for (const TensorBox& local :
         boxes_of_range(parameter.local_shape, begin - parameter.offset, end - parameter.offset))
      for (const program::ShardPiece& piece :
           program::shard_pieces(parameter, parameter.expert ? place.etp : place.tp))
        if (keep(parameter, piece))
          append_piece(parameter, static_cast<int>(i), local, piece, place, pieces);
  }
  return pieces;
}

}  // namespace

std::vector<PlacedBox> held_boxes(const program::Program& program, const Coordinates& place,
                                  FlatRange range) {
  return pieces_of(program, place, range,
                   [](const Parameter&, const program::ShardPiece&) { return true; });
}

std::vector<PlacedBox> held_boxes(const program::Program& program, const Coordinates& place) {
  return held_boxes(program, place, {0, program.parameter_elements});
}

std::vector<program::HeldRun> held_runs(const program::Program& program, const StateRegion& state,
                                        const program::ShardPlace& shard) {
  std::vector<program::HeldRun> runs = program::held_runs(program, state.region, shard);
  if (!state.frozen_only) return runs;
  const auto first = std::ranges::find(program.buckets, true, &program::Bucket::frozen);
  std::vector<program::HeldRun> frozen;
  for (const program::HeldRun& run : runs) {
    const program::HeldRun part =
        program::clipped(run, {first->range.begin, program.parameter_elements});
    if (part.range.size() > 0) frozen.push_back(part);
  }
  return frozen;
}

std::vector<PlacedBox> saved_boxes(const program::Program& program, const Coordinates& place,
                                   FlatRange range) {
  return pieces_of(program, place, range,
                   [&](const Parameter& parameter, const program::ShardPiece& piece) {
                     return !parameter.tied_copy && piece.copy == 0;
                   });
}

}  // namespace meshplan::runtime
