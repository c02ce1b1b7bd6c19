// ZeRO (Rajbhandari et al. 2020, section 5): which part of the flat parameter regions each of the
// ranks with equal parameters owns, and what its memory holds. docs/data_parallel.md
//
// A program serves all ranks of its role, so what a rank owns is symbolic in it: block r of a
// bucket is rank r's, and r becomes a number when operations are bound.
#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// Number of a rank among the members of its group.
int number_in(const Mesh& mesh, Group group, int rank);

/// Number of a rank in the groups that divide buckets, or that sum them in parts
/// (compression.hpp).
struct ShardPlace {
  int dense = 0;
  int expert = 0;
  int dense_replica = 0;  // hybrid: among the ranks that own the same parts
  int expert_replica = 0;
};
ShardPlace shard_place(const Plan& plan, const Mesh& mesh, int rank);

/// What the rank owns of a bucket: all of it where nothing is sharded.
FlatRange owned_range(const Bucket& bucket, const ShardPlace& place);

/// Does the region hold no more of this bucket than a rank owns?
bool holds_owned_part(const Plan& plan, Region region, const Bucket& bucket);

/// Where a bucket, or the owned part of it if that is what the region holds, begins in a region:
/// elements.
std::int64_t bucket_begin(const Plan& plan, Region region, const Bucket& bucket);

/// Where an element of the flat parameters lies in a region of the rank that holds it: elements.
std::int64_t element_offset(const Plan& plan, Region region, const Bucket& bucket,
                            std::int64_t element, const ShardPlace& place);

/// Has the region, flat over parameters, a place for the bucket? Of frozen parameters there are
/// weights only.
bool holds_bucket(Region region, const Bucket& bucket);

/// Elements of a region that is flat over parameters.
std::int64_t flat_elements(const Program& program, Region region);

/// Elements `range` of the flat parameters lie in a region from `offset` on.
struct HeldRun {
  FlatRange range;
  std::int64_t offset = 0;
  bool operator==(const HeldRun&) const = default;
};

/// Everything that a rank's region holds, in flat order.
std::vector<HeldRun> held_runs(const Program& program, Region region, const ShardPlace& place);

/// What the rank owns of it, by bucket: after a step these gradients are reduced, these weights
/// updated. Frozen buckets, the last ones, have a run in Region::Weights only. One per bucket.
std::vector<HeldRun> owned_runs(const Program& program, Region region, const ShardPlace& place);

/// The part of a run that lies inside `range`; empty if none does.
HeldRun clipped(const HeldRun& run, FlatRange range);

/// Is one copy of what is sharded divided among fewer ranks than hold the same parameters?
bool is_hybrid(const Plan& plan);

}  // namespace meshplan::program
