// Which algorithm a communication runs: chosen here, so that what the runtime executes is what the
// simulator prices.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"

namespace meshplan::program {

enum class CommOp {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  AllToAllV,
  Broadcast,
  Barrier,
  PointToPoint,
};

/// n ranks, m bytes a rank passes in. "Steps" are messages that wait for one another.
enum class CommAlgorithm {
  OneShot,   // everybody's whole input to everybody: 1 step, m(n-1) bytes; reduced in rank order
  Direct,    // shards straight to their owners (and back): 1 step each way, as few bytes as a ring;
             // reduced in rank order
  Doubling,  // recursive doubling (all-reduce), dissemination (barrier): ceil(log2 n) steps
  Tree,      // binomial tree: ceil(log2 n) steps
  Ring,      // neighbours only, in pieces: n-1 steps each way; broadcast: a pipelined chain
  Pairwise,  // all-to-all, one partner after another: n-1 steps
  Library,   // the back end's own; only where nothing is reduced, for its order is not fixed
};

std::string_view name_of(CommOp op);
std::string_view name_of(CommAlgorithm algorithm);
/// @throws ConfigError with the nearest known name
CommOp parse_comm_op(std::string_view name);
CommAlgorithm parse_comm_algorithm(std::string_view name);

/// Applies to groups of [min_group_size, max_group_size] ranks and messages up to `max_message`.
struct CollectiveRule {
  CommOp op = CommOp::AllReduce;
  CommAlgorithm algorithm = CommAlgorithm::Ring;
  Bytes max_message{std::numeric_limits<std::int64_t>::max()};
  int min_group_size = 2;
  int max_group_size = std::numeric_limits<int>::max();
  bool operator==(const CollectiveRule&) const = default;
};

/// The first rule that matches decides; an operation that no rule matches runs
/// `fallback_algorithm`.
struct CollectiveTable {
  std::vector<CollectiveRule> rules;
  /// Large messages are cut into pieces of this size, which should fit the cache of a core.
  Bytes piece{1 << 20};
  bool operator==(const CollectiveTable&) const = default;

  /// @param message  what one rank passes in: the whole buffer of an all-reduce, reduce-scatter,
  ///                 all-to-all or broadcast, its own part of an all-gather
  CommAlgorithm choose(CommOp op, int group_size, Bytes message) const;
};

/// Works for any group and size: Ring, Direct, Pairwise or Doubling.
CommAlgorithm fallback_algorithm(CommOp op);

/// Is this algorithm offered for this operation?
bool is_offered(CommOp op, CommAlgorithm algorithm);

/// Measured with MPI between 2, 4 and 8 ranks of one host with two cores.
CollectiveTable default_collective_table();

/// @throws ConfigError for an algorithm that the operation does not offer, or sizes that are not
/// positive. A table that passes makes every communication run bit for bit the same each time.
void validate(const CollectiveTable& table);

}  // namespace meshplan::program
