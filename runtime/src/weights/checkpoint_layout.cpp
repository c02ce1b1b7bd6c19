#include "weights/checkpoint_layout.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "program/compression/compression.hpp"
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

/// What a rank owns of buckets in a row that the same ranks hold and divide alike.
struct OwnedRun {
  program::HeldRun run;
  bool expert = false;
  int shards = 1;
  int replicas = 1;  // ranks that hold the parameters
};

std::vector<OwnedRun> owned_alike(const program::Program& program, const StateRegion& state,
                                  const program::ShardPlace& shard) {
  const std::vector<program::HeldRun> owned = program::owned_runs(program, state.region, shard);
  std::vector<OwnedRun> runs;
  for (std::size_t i = 0; i < owned.size(); ++i) {
    const program::Bucket& bucket = program.buckets[i];
    if (state.frozen_only && !bucket.frozen) continue;
    const bool follows = !runs.empty() && runs.back().expert == bucket.expert() &&
                         runs.back().shards == bucket.shards &&
                         runs.back().run.range.end == owned[i].range.begin &&
                         runs.back().run.offset + runs.back().run.range.size() == owned[i].offset;
    if (follows)
      runs.back().run.range.end = owned[i].range.end;
    else
      runs.push_back({.run = owned[i],
                      .expert = bucket.expert(),
                      .shards = bucket.shards,
                      .replicas = program::group_size(bucket.group, program.plan)});
  }
  return runs;
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

SaverPlace saver_place(const program::Plan& plan, int rank) {
  const program::Mesh mesh = program::mesh_of(plan);
  return {.coordinates = mesh.coordinates(rank),
          .shard = program::shard_place(plan, mesh, rank),
          .dense_replica = program::number_in(mesh, program::Group::DpCp, rank),
          .expert_replica = program::number_in(mesh, program::Group::ExpertDp, rank)};
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

std::vector<SnapshotRun> snapshot_runs(const program::Program& program, const StateRegion& state,
                                       const SaverPlace& place) {
  const Region region = state.region;
  std::vector<SnapshotRun> runs;
  std::int64_t position = 0;
  if (region == Region::CompressionErrors || region == Region::SumErrors) {
    const bool sums = region == Region::SumErrors;
    for (const program::HeldRun& run :
         sums ? program::sum_error_runs(program, place.shard)
              : program::error_runs(program, place.shard, state.replica)) {
      runs.push_back({.range = run.range, .offset = run.offset, .position = position});
      position += run.range.size();
    }
    return runs;
  }
  for (const OwnedRun& owned : owned_alike(program, state, place.shard)) {
    // Ranks that own the same follow one another every `shards` of the replicas.
    const int copies = owned.replicas / owned.shards;
    const int replica = owned.expert ? place.expert_replica : place.dense_replica;
    const FlatRange all = owned.run.range;
    const auto cut = [&](int part) {
      return all.begin + all.size() / copies * part + all.size() % copies * part / copies;
    };
    const int part = replica / owned.shards % copies;
    const program::HeldRun saved = program::clipped(owned.run, {cut(part), cut(part + 1)});
    if (saved.range.size() == 0) continue;
    runs.push_back({.range = saved.range, .offset = saved.offset, .position = position});
    position += saved.range.size();
  }
  return runs;
}

std::vector<PlacedBox> saved_boxes(const program::Program& program, const Coordinates& place,
                                   FlatRange range) {
  return pieces_of(program, place, range,
                   [&](const Parameter& parameter, const program::ShardPiece& piece) {
                     return !parameter.tied_copy && piece.copy == 0;
                   });
}

std::string compression_error_state(int replica) {
  return fmt::format("compression_error.{}", replica);
}

std::vector<StateRegion> saved_states(const program::Program& program, const SaverPlace& place) {
  std::vector<StateRegion> states = state_regions(program);
  for (const int replica : program::error_replicas(program, place.shard))
    states.push_back({compression_error_state(replica), Region::CompressionErrors, replica});
  if (program.memory.regions[static_cast<std::size_t>(Region::SumErrors)].bytes() > 0)
    states.push_back({kSumErrorState, Region::SumErrors});
  return states;
}

}  // namespace meshplan::runtime
