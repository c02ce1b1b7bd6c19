// What a role holds of the model's parameters: each one, and the flat runs (buckets) and groups of
// layers (units) in which gradients are reduced and weights gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/graph.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::program {

/// A contiguous run of a dimension that tp rank r holds: global offset = begin + (r / copies) *
/// size (each section of a fused weight is sharded on its own). Where tp exceeds the key/value
/// heads, `copies` adjacent ranks hold the same ones; each rank's gradient of them is then a
/// partial sum, for it sees only what its own query heads add.
struct ShardSection {
  std::int64_t begin = 0;  // of the section in the global tensor
  std::int64_t size = 0;   // rows (or columns) held by each tp rank
  int copies = 1;          // ranks that hold the same run
  bool operator==(const ShardSection&) const = default;
};

struct Parameter {
  std::string name;                        // "layers.7.self_attn.qkv_proj.weight": global
  std::vector<std::int64_t> global_shape;  // unpadded
  std::vector<std::int64_t> local_shape;
  std::optional<int> shard_dim;        // dimension that tp shards; absent: replicated over tp
  std::vector<ShardSection> sections;  // of shard_dim, in local order
  models::Init init = models::Init::Normal;
  bool weight_decay = false;
  bool tp_partial = false;  // replicated over tp, but each rank's gradient is a partial sum
  bool expert = false;      // of (X, out, in): ep shards dimension 0, and shard_dim speaks of etp
  bool trained = true;      // false: moved by StepWork::BalanceExperts, or frozen
  bool frozen = false;      // by Plan::frozen: nothing moves it
  bool tied_copy = false;   // the last stage's copy of the embedding, which a tied head or
                            // prediction modules read: the first stage's counts
  int bucket = 0;           // in Program::buckets
  std::int64_t offset = 0;  // elements, in the flat order of the parameters
  std::int64_t elements() const;
};

/// Rows [begin, end) of the flat parameter regions, in elements.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// A run of the flat parameters whose gradients are summed over the ranks that hold the same at
/// once. With ZeRO each rank of `shard_group` owns an equal part of it: block r of the run is rank
/// r's. Buckets follow one another and cover all parameters.
struct Bucket {
  FlatRange range;                  // with ZeRO a multiple of shards * kAlignment / 2 elements
  Group group = Group::DpCp;        // ranks that hold the same parameters
  int shards = 1;                   // ranks of shard_group; 1 = every rank owns all of it
  Group shard_group = Group::DpCp;  // the same as `group`, unless sharding is hybrid
  std::optional<Group> replicas;    // hybrid: ranks that own the same part
  std::optional<int> unit;          // streamed: see Program::units
  std::int64_t unit_begin = 0;      // elements, in what is gathered or reduced of its unit
  std::int64_t owned_begin = 0;     // of a rank's part in regions that hold such parts only
  std::int64_t owned_streamed_begin = 0;  // in those that hold parts of streamed buckets, all of
                                          // others
  int ready_after_layer = 0;              // of the backward pass: index into Program::layers
  bool late = false;                      // needs another sum first: reduced at the end of the step
  bool trained = true;                    // false: no gradient moves it, so it is never reduced
  bool frozen = false;  // there are weights of it, divided if it has a unit, and no other state
  bool expert() const { return group == Group::ExpertDp; }
  std::int64_t owned_elements() const { return range.size() / shards; }
};

/// ZeRO-2 and 3: layers that follow one another in a chunk and whose gradients are reduced (and
/// with stage 3, weights gathered) together, micro-batch by micro-batch.
struct Unit {
  int first_layer = 0;  // indexes into Program::layers
  int end_layer = 0;
  std::vector<int> buckets;           // frozen ones last
  std::int64_t elements = 0;          // that are gathered
  std::int64_t trained_elements = 0;  // those before them whose gradients are reduced
};

}  // namespace meshplan::program
