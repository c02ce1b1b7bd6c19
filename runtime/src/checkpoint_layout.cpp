#include "runtime/checkpoint_layout.hpp"

#include <algorithm>

#include "program/shard_layout.hpp"

namespace meshplan::runtime {
namespace {

using program::FlatRange;
using program::Parameter;
using program::Region;

std::size_t sharded_dim(const Parameter& parameter) {
  return static_cast<std::size_t>(std::max(parameter.shard_dim, 0));
}

/// The global part of a box of the local tensor that lies inside `piece`.
void append_piece(const Parameter& parameter, int index, const TensorBox& local,
                  const program::ShardPiece& piece, std::vector<HeldPiece>& pieces) {
  TensorBox inside = whole_box(parameter.local_shape);
  const std::size_t dim = sharded_dim(parameter);
  inside.begin[dim] = piece.local_begin;
  inside.size[dim] = piece.size;
  const std::optional<TensorBox> both = intersection(local, inside);
  if (!both) return;
  HeldPiece held{.parameter = index,
                 .box = *both,
                 .offset = parameter.offset,
                 .strides = dense_strides(parameter.local_shape)};
  for (std::size_t d = 0; d < held.strides.size(); ++d)
    held.offset += both->begin[d] * held.strides[d];
  held.box.begin[dim] += piece.global_begin - piece.local_begin;
  pieces.push_back(std::move(held));
}

template <class Keep>
std::vector<HeldPiece> pieces_of(const program::Program& program, int tp_rank, FlatRange range,
                                 Keep keep) {
  std::vector<HeldPiece> pieces;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const Parameter& parameter = program.parameters[i];
    const std::int64_t begin = std::max(range.begin, parameter.offset);
    const std::int64_t end = std::min(range.end, parameter.offset + parameter.elements());
    for (const TensorBox& local :
         boxes_of_range(parameter.local_shape, begin - parameter.offset, end - parameter.offset))
      for (const program::ShardPiece& piece : program::shard_pieces(parameter, tp_rank))
        if (keep(parameter, piece))
          append_piece(parameter, static_cast<int>(i), local, piece, pieces);
  }
  return pieces;
}

}  // namespace

std::vector<HeldPiece> held_pieces(const program::Program& program, int tp_rank, FlatRange range) {
  return pieces_of(program, tp_rank, range,
                   [](const Parameter&, const program::ShardPiece&) { return true; });
}

std::vector<HeldPiece> held_pieces(const program::Program& program, int tp_rank) {
  return held_pieces(program, tp_rank, {0, program.parameter_elements});
}

FlatRange share_of_replica(const program::Program& program, int replica, int num_replicas) {
  const auto cut = [&](int index) {
    return program.parameter_elements / num_replicas * index +
           program.parameter_elements % num_replicas * index / num_replicas;
  };
  return {cut(replica), cut(replica + 1)};
}

std::vector<SavedRun> saved_runs(const program::Program& program, Region region,
                                 const program::ShardPlace& shard, int replica, int num_replicas) {
  const bool sharded = program.plan.zero_stage > 0;
  std::vector<SavedRun> runs;
  std::int64_t position = 0;
  const auto add = [&](const program::HeldRun& run) {
    if (run.range.size() == 0) return;
    runs.push_back({.range = run.range, .offset = run.offset, .position = position});
    position += run.range.size();
  };
  if (!sharded) {
    const FlatRange share = share_of_replica(program, replica, num_replicas);
    add({.range = share, .offset = share.begin});
    return runs;
  }
  const auto owned = program::owned_runs(program, region, shard);
  for (std::size_t i = 0; i < owned.size(); ++i) {
    // Ranks that own the same follow one another every `shards` of the replicas.
    const int shards = program.buckets[i].shards;
    const int copies = std::max(1, num_replicas / shards);
    const FlatRange all = owned[i].range;
    const auto cut = [&](int part) { return all.begin + all.size() * part / copies; };
    const int part = replica / shards % copies;
    add(program::clipped(owned[i], {cut(part), cut(part + 1)}));
  }
  return runs;
}

std::vector<HeldPiece> saved_pieces(const program::Program& program, int tp_rank, FlatRange range) {
  return pieces_of(program, tp_rank, range,
                   [&](const Parameter& parameter, const program::ShardPiece& piece) {
                     return !parameter.tied_copy && piece.copy == 0;
                   });
}

std::vector<StateRegion> state_regions(const program::Program& program) {
  const auto used = [&](Region region) {
    return program.memory.regions[static_cast<std::size_t>(region)].bytes() > 0;
  };
  std::vector<StateRegion> states = {
      {kWeights, used(Region::MasterWeights) ? Region::MasterWeights : Region::Weights}};
  if (used(Region::Moment1)) states.push_back({"moment1", Region::Moment1});
  if (used(Region::Moment2)) states.push_back({"moment2", Region::Moment2});
  return states;
}

}  // namespace meshplan::runtime
