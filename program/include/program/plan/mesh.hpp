#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/plan/parallel_config.hpp"

namespace meshplan::program {

enum class Axis { Tp, Cp, Ep, Dp, Pp };

/// Coordinates of a rank on the dense grid (tp, cp, dp, pp) and on the expert grid (etp, ep, edp,
/// pp).
struct Coordinates {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
  int etp = 0;
  int ep = 0;
  int edp = 0;
  bool operator==(const Coordinates&) const = default;
};

/// The process groups that collectives name. A group varies its own axes and fixes all others.
enum class Group {
  Tp,
  Cp,
  Dp,
  Pp,
  TpPp,  // one model replica: gradient norm
  DpCp,  // ranks that hold the same dense parameters: gradient reduction
  World,
  Embedding,  // first and last stage of a pipeline: tied embeddings; only those ranks are members
  Ep,
  Etp,
  ExpertDp,  // ranks that hold the same experts
  KvCopies,  // tp ranks that hold the same key/value heads, where tp exceeds these
  // Where tokens travel once to each node, Ep is divided into the ranks of a node (neighbours), and
  // across these into ranks of the same place in them.
  EpWithin,
  EpAcross,
  // Hybrid sharding divides DpCp, and ExpertDp, into runs of neighbours that share one copy of what
  // is sharded, and across these runs the ranks that own the same part.
  ZeroShards,
  ZeroReplicas,
  ExpertZeroShards,
  ExpertZeroReplicas,
};

/// rank <-> coordinates for any axis order, e.g. "tp-cp-ep-dp-pp" (innermost first, Megatron's
/// default). The expert grid numbers the ranks of each stage in the same order, with tp, cp, dp
/// replaced by etp, ep, edp: so experts sit in the stage of their layers whatever the order.
class Mesh {
 public:
  /// @throws ConfigError as require_valid
  /// @param kv_copies  adjacent tp ranks that hold the same key/value heads; divides tp
  /// @param zero_shard_group  ranks that share one copy of what ZeRO shards; 0 = all of dp * cp
  /// @param expert_node_ranks  ranks of an ep group in a node; 0 = all of them
  explicit Mesh(const ParallelConfig& config, const std::string& order = kDefaultOrder,
                int kv_copies = 1, int zero_shard_group = 0, int expert_node_ranks = 0);

  static constexpr const char* kDefaultOrder = "tp-cp-ep-dp-pp";
  /// @throws ConfigError if the order is not a permutation of tp, cp, ep, dp, pp, if a degree is
  /// less than 1, or if etp * ep does not divide tp * cp * dp
  static void require_valid(const ParallelConfig& config, const std::string& order);

  const ParallelConfig& config() const { return config_; }
  int kv_copies() const { return kv_copies_; }
  int world_size() const { return config_.world_size(); }
  Coordinates coordinates(int rank) const;
  /// Only the dense coordinates (tp, cp, dp, pp) are read.
  int rank_of(const Coordinates& coordinates) const;
  /// Ranks of the group that `rank` is in, ascending; {rank} if it is alone.
  std::vector<int> group(Group group, int rank) const;
  /// Every distinct group of this kind, in order of its first member.
  std::vector<std::vector<int>> groups(Group which) const;
  int zero_shard_group() const { return zero_shard_group_; }
  int expert_node_ranks() const { return expert_node_ranks_; }
  /// Members in the group that any rank belongs to (Embedding: 2 if pp > 1, else 1).
  int group_size(Group group) const;

 private:
  /// One axis of a grid: the neighbours along it are `stride` apart.
  struct Step {
    int Coordinates::*coordinate;
    int degree;
    int stride;
  };

  /// The rank at a place of a stage. Ranks of a stage are numbered alike on both grids.
  int rank_at(int place, int stage) const;
  int place_in_stage(int rank) const;
  /// Neighbours of a divided group of `size` ranks that make up one run of it.
  int run_length(Group part, int size) const;
  /// The part of a divided group to which its member with this number belongs.
  std::vector<int> part_of(const std::vector<int>& divided, Group part, int member) const;

  ParallelConfig config_;
  int kv_copies_ = 1;
  int zero_shard_group_ = 0;
  int expert_node_ranks_ = 0;
  std::vector<Step> dense_;   // innermost first; strides in ranks
  std::vector<Step> expert_;  // the same without pp; strides in places of the stage
  int stage_stride_ = 1;      // ranks from one stage to the next
};

struct Plan;

/// Adjacent tp ranks that hold the same key/value heads: more than 1 where tp exceeds these.
int kv_copies(const Plan& plan);
Mesh mesh_of(const Plan& plan);

std::string_view name_of(Group group);
/// Members in the group that any rank belongs to (Embedding: 2 if pp > 1, else 1).
int group_size(Group group, const ParallelConfig& config, int kv_copies = 1,
               int zero_shard_group = 0, int expert_node_ranks = 0);
int group_size(Group group, const Plan& plan);

}  // namespace meshplan::program
