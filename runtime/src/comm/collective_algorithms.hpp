// Collectives as data: what one rank sends, receives, adds and copies, in which order. Pure
// functions, so that a test can play all ranks in one process, and any back end with point-to-point
// can run them.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "program/calibration/collective_table.hpp"

namespace meshplan::runtime {

enum class Space : std::uint8_t { Input, Output, Scratch };

/// `count` elements from `offset` in one of the three buffers of an operation.
struct Extent {
  Space space = Space::Input;
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

/// Starts a message; `request` names it until it is awaited, and may be used again afterwards.
struct StartSend {
  int request = 0;
  int peer = 0;
  Extent from;
};
struct StartRecv {
  int request = 0;
  int peer = 0;
  Extent to;
};
struct Await {
  int request = 0;
};
/// to = sources[0] op sources[1] op ..., left to right. `last`: nothing is added afterwards, so Avg
/// divides here.
struct Reduce {
  Extent to;
  std::vector<Extent> sources;
  bool last = false;
};
struct Copy {
  Extent to;
  Extent from;
};
using Action = std::variant<StartSend, StartRecv, Await, Reduce, Copy>;

/// Actions run in order; only Await waits. All requests are awaited by the end.
struct CollectiveSchedule {
  std::vector<Action> actions;
  int num_requests = 0;
  std::int64_t scratch_count = 0;  // elements
};

/// This rank in its group.
struct Member {
  int rank = 0;
  int size = 1;
};

/// Every function below: `piece` is the largest message in elements (>= 1), except that one-shot,
/// doubling and tree algorithms send whole buffers. A group of one only copies.

/// @param count  elements of the whole buffer
/// @throws InvariantError for an algorithm that is not offered (program::is_offered)
CollectiveSchedule all_reduce_schedule(program::CommAlgorithm algorithm, Member me,
                                       std::int64_t count, std::int64_t piece);

/// @param count  elements of one block; Input holds size blocks, Output one
CollectiveSchedule reduce_scatter_schedule(program::CommAlgorithm algorithm, Member me,
                                           std::int64_t count, std::int64_t piece);

/// @param count  elements of one block; Input holds one block, Output size blocks
CollectiveSchedule all_gather_schedule(program::CommAlgorithm algorithm, Member me,
                                       std::int64_t count, std::int64_t piece);

/// @param in_place  Input and Output are the same memory: exchanges go through scratch, pairwise
CollectiveSchedule all_to_all_schedule(program::CommAlgorithm algorithm, Member me,
                                       std::int64_t count, std::int64_t piece, bool in_place);

CollectiveSchedule all_to_all_v_schedule(program::CommAlgorithm algorithm, Member me,
                                         std::span<const std::int64_t> send_counts,
                                         std::span<const std::int64_t> recv_counts,
                                         std::int64_t piece);

/// Input is unused: Output holds the root's values before and everybody's after.
CollectiveSchedule broadcast_schedule(program::CommAlgorithm algorithm, Member me, int root,
                                      std::int64_t count, std::int64_t piece);

/// Dissemination: Hensgen, Finkel, Manber 1988. Messages of one element of scratch.
CollectiveSchedule barrier_schedule(Member me);

}  // namespace meshplan::runtime
