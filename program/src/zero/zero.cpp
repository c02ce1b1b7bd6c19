#include "program/zero/zero.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace meshplan::program {

int number_in(const Mesh& mesh, Group group, int rank) {
  const std::vector<int> members = mesh.group(group, rank);
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

ShardPlace shard_place(const Plan& plan, const Mesh& mesh, int rank) {
  if (plan.zero_stage == 0 && plan.compression.kind == CompressionKind::None) return {};
  return {.dense = number_in(mesh, Group::ZeroShards, rank),
          .expert = number_in(mesh, Group::ExpertZeroShards, rank),
          .dense_replica = number_in(mesh, Group::ZeroReplicas, rank),
          .expert_replica = number_in(mesh, Group::ExpertZeroReplicas, rank)};
}

bool is_hybrid(const Plan& plan) {
  return plan.zero_stage > 0 && group_size(Group::ZeroReplicas, plan) > 1;
}

FlatRange owned_range(const Bucket& bucket, const ShardPlace& place) {
  if (bucket.shards == 1) return bucket.range;
  const int number = bucket.expert() ? place.expert : place.dense;
  const std::int64_t begin = bucket.range.begin + number * bucket.owned_elements();
  return {begin, begin + bucket.owned_elements()};
}

bool holds_owned_part(const Plan& plan, Region region, const Bucket& bucket) {
  switch (region) {
    case Region::MasterWeights:
    case Region::Moment1:
    case Region::Moment2:
      return true;
    case Region::Gradients:
      return plan.zero_stage >= 2 && bucket.unit.has_value();
    case Region::Weights:
      return plan.zero_stage == 3 && bucket.unit.has_value();
    default:
      throw InvariantError("a region that is not flat over parameters holds no buckets");
  }
}

std::int64_t bucket_begin(const Plan& plan, Region region, const Bucket& bucket) {
  if (region == Region::Gradients && plan.zero_stage >= 2) return bucket.owned_streamed_begin;
  if (region == Region::Weights && plan.zero_stage == 3) return bucket.owned_streamed_begin;
  return holds_owned_part(plan, region, bucket) ? bucket.owned_begin : bucket.range.begin;
}

std::int64_t element_offset(const Plan& plan, Region region, const Bucket& bucket,
                            std::int64_t element, const ShardPlace& place) {
  const bool part = holds_owned_part(plan, region, bucket);
  const std::int64_t first = part ? owned_range(bucket, place).begin : bucket.range.begin;
  return bucket_begin(plan, region, bucket) + element - first;
}

bool holds_bucket(Region region, const Bucket& bucket) {
  return !bucket.frozen || region == Region::Weights;
}

std::int64_t flat_elements(const Program& program, Region region) {
  auto end = program.buckets.end();
  while (end != program.buckets.begin() && !holds_bucket(region, *std::prev(end))) --end;
  if (end == program.buckets.begin()) return 0;
  const Bucket& last = *std::prev(end);
  return bucket_begin(program.plan, region, last) +
         (holds_owned_part(program.plan, region, last) ? last.owned_elements() : last.range.size());
}

std::vector<HeldRun> held_runs(const Program& program, Region region, const ShardPlace& place) {
  std::vector<HeldRun> runs;
  for (const Bucket& bucket : program.buckets) {
    if (!holds_bucket(region, bucket)) continue;
    const bool part = holds_owned_part(program.plan, region, bucket);
    const HeldRun run{.range = part ? owned_range(bucket, place) : bucket.range,
                      .offset = bucket_begin(program.plan, region, bucket)};
    const bool follows = !runs.empty() && runs.back().range.end == run.range.begin &&
                         runs.back().offset + runs.back().range.size() == run.offset;
    if (follows)
      runs.back().range.end = run.range.end;
    else
      runs.push_back(run);
  }
  return runs;
}

std::vector<HeldRun> owned_runs(const Program& program, Region region, const ShardPlace& place) {
  std::vector<HeldRun> runs;
  for (const Bucket& bucket : program.buckets) {
    if (!holds_bucket(region, bucket)) continue;
    const FlatRange owned = owned_range(bucket, place);
    runs.push_back({.range = owned,
                    .offset = element_offset(program.plan, region, bucket, owned.begin, place)});
  }
  return runs;
}

HeldRun clipped(const HeldRun& run, FlatRange range) {
  const std::int64_t begin = std::max(run.range.begin, range.begin);
  const std::int64_t end = std::max(begin, std::min(run.range.end, range.end));
  return {.range = {begin, end}, .offset = run.offset + begin - run.range.begin};
}

}  // namespace meshplan::program
