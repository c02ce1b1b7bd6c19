#include "program/memory/saved_share.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "program/compression/compression.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::program {
namespace {

/// What a rank owns of buckets in a row that the same ranks hold and divide alike.
struct OwnedRun {
  HeldRun run;
  bool expert = false;
  int shards = 1;
  int replicas = 1;  // ranks that hold the parameters
};

std::vector<OwnedRun> owned_alike(const Program& program, const StateRegion& state,
                                  const ShardPlace& shard) {
  const std::vector<HeldRun> owned = owned_runs(program, state.region, shard);
  std::vector<OwnedRun> runs;
  for (std::size_t i = 0; i < owned.size(); ++i) {
    const Bucket& bucket = program.buckets[i];
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
                      .replicas = group_size(bucket.group, program.plan)});
  }
  return runs;
}

/// Elements below flat element `end` of a local tensor that lie in the piece.
std::int64_t elements_before(const Parameter& parameter, const ShardPiece& piece,
                             std::int64_t end) {
  const auto dim = static_cast<std::size_t>(parameter.shard_dim.value_or(0));
  std::int64_t row = 1;  // elements of one index of the dimension
  for (std::size_t d = dim + 1; d < parameter.local_shape.size(); ++d)
    row *= parameter.local_shape[d];
  const std::int64_t length = parameter.local_shape[dim];
  const std::int64_t begin = std::min(piece.local_begin, length);
  const std::int64_t size = std::min(piece.size, length - begin);
  return end / (length * row) * size * row +
         std::clamp<std::int64_t>(end % (length * row) - begin * row, 0, size * row);
}

}  // namespace

SaverPlace saver_place(const Plan& plan, int rank) {
  const Mesh mesh = mesh_of(plan);
  return {.coordinates = mesh.coordinates(rank),
          .shard = shard_place(plan, mesh, rank),
          .dense_replica = number_in(mesh, Group::DpCp, rank),
          .expert_replica = number_in(mesh, Group::ExpertDp, rank)};
}

std::vector<SnapshotRun> snapshot_runs(const Program& program, const StateRegion& state,
                                       const SaverPlace& place) {
  const Region region = state.region;
  std::vector<SnapshotRun> runs;
  std::int64_t position = 0;
  if (region == Region::CompressionErrors || region == Region::SumErrors) {
    const bool sums = region == Region::SumErrors;
    for (const HeldRun& run : sums ? sum_error_runs(program, place.shard)
                                   : error_runs(program, place.shard, state.replica)) {
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
    const HeldRun saved = clipped(owned.run, {cut(part), cut(part + 1)});
    if (saved.range.size() == 0) continue;
    runs.push_back({.range = saved.range, .offset = saved.offset, .position = position});
    position += saved.range.size();
  }
  return runs;
}

std::string compression_error_state(int replica) {
  return fmt::format("compression_error.{}", replica);
}

std::vector<StateRegion> saved_states(const Program& program, const SaverPlace& place) {
  std::vector<StateRegion> states = state_regions(program);
  for (const int replica : error_replicas(program, place.shard))
    states.push_back({compression_error_state(replica), Region::CompressionErrors, replica});
  if (program.memory.regions[static_cast<std::size_t>(Region::SumErrors)].bytes() > 0)
    states.push_back({kSumErrorState, Region::SumErrors});
  return states;
}

std::int64_t saved_elements(const Program& program, const Coordinates& place, FlatRange range) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.tied_copy) continue;
    const std::int64_t begin = std::max(range.begin, parameter.offset) - parameter.offset;
    const std::int64_t end =
        std::min(range.end, parameter.offset + parameter.elements()) - parameter.offset;
    if (begin >= end) continue;
    for (const ShardPiece& piece : shard_pieces(parameter, parameter.expert ? place.etp : place.tp))
      if (piece.copy == 0)
        elements +=
            elements_before(parameter, piece, end) - elements_before(parameter, piece, begin);
  }
  return elements;
}

SavedBytes saved_bytes(const Program& program) {
  const Mesh mesh = mesh_of(program.plan);
  SavedBytes bytes;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    if (mesh.coordinates(rank).pp != program.role.stage) continue;
    const SaverPlace place = saver_place(program.plan, rank);
    std::int64_t elements = 0;
    for (const StateRegion& state : saved_states(program, place))
      for (const SnapshotRun& run : snapshot_runs(program, state, place))
        elements += saved_elements(program, place.coordinates, run.range);
    const std::int64_t saved = elements * size_of(DType::F32);
    bytes.all_ranks += saved;
    bytes.fullest_rank = std::max(bytes.fullest_rank, saved);
  }
  return bytes;
}

SavedBytes saved_bytes(const std::vector<Program>& programs) {
  SavedBytes bytes;
  for (const Program& program : programs) {
    const SavedBytes stage = saved_bytes(program);
    bytes.all_ranks += stage.all_ranks;
    bytes.fullest_rank = std::max(bytes.fullest_rank, stage.fullest_rank);
  }
  return bytes;
}

}  // namespace meshplan::program
