// What the engine plays, laid out once: which ranks are simulated, what each of their operations
// takes, and which operations of different ranks meet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/shared_resources.hpp"
#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/engine.hpp"

namespace meshplan::sim {

/// Lanes of a rank, a bit each.
using LaneMask = std::uint32_t;
constexpr LaneMask lane_bit(std::size_t lane) {
  return LaneMask{1} << lane;
}
constexpr LaneMask kAllLanes = lane_bit(program::kNumLanes) - 1;
constexpr auto kCompute = static_cast<std::size_t>(program::Lane::Compute);

/// What all ranks of a stage have in common.
struct StageTables {
  const program::Program* program = nullptr;
  std::vector<std::uint8_t> lane = {};  // of each instance
  std::vector<LaneMask> wakes = {};     // lanes that may go on when it is done: its own, and those
                                        // of what waits for it
  std::vector<int> wait_begin = {};     // instances + 1 offsets into `waits`
  std::vector<int> waits = {};
  std::vector<int> issued = {};  // by instance: operations that the host has issued with it
  std::array<std::vector<int>, program::kNumLanes> lane_order = {};  // instances of a lane
  // By place in the order of the compute lane: where the run ends that goes on there, operations of
  // one task and kind that nothing interrupts or observes.
  std::vector<int> run_end = {};
};

/// An operation that one rank does alone.
struct Work {
  double seconds = 0;
  UsageSpan usages;
  std::optional<int> pass = std::nullopt;  // of a LayerPassOp: index into Play::passes
};

/// How a layer's pass over a micro-batch goes on a rank that has nothing else to do.
struct LayerPass {
  struct Piece {
    SpanKind kind;
    double start = 0;  // from the begin of the pass
    double end = 0;
  };
  double seconds = 0;
  LaneMask awaited = 0;            // lanes of what its first operation waits for
  std::vector<Piece> pieces = {};  // by start; computation that goes on is one
};

/// An operation of which several ranks take part: a collective or a transfer.
struct Meeting {
  double seconds = 0;
  UsageSpan usages;
  std::size_t members_begin = 0;  // into Play::members
  int num_members = 0;
  int receiver = -1;           // of a transfer: index into Play::ranks
  bool includes_wake = false;  // its duration was measured with this host's oversubscription
};

struct Member {
  int rank = 0;      // index into Play::ranks
  int instance = 0;  // of its program
};

/// One simulated rank, played for `stands_for` that do the same. `target[i]` of instance i: index
/// into Play::works, or ~index into meetings.
struct SimulatedRank {
  int rank = 0;  // in the mesh
  int stage = 0;
  int stands_for = 1;
  std::vector<int> target = {};
};

struct Play {
  std::vector<StageTables> stages;
  std::vector<SimulatedRank> ranks;
  std::vector<Work> works;
  std::vector<LayerPass> passes;
  // Passes of which parts run beside what comes before or after: no operation of their own.
  std::set<std::pair<std::string, program::TaskKind>> inseparable_passes;
  std::vector<Meeting> meetings;
  std::vector<Member> members;
  SharedResources resources;
};

/// @throws InvariantError if members of a group do not issue the same operations
Play build_play(const std::vector<program::Program>& programs, const Cluster& cluster,
                const program::Mesh& mesh, const SimulationOptions& options);

}  // namespace meshplan::sim
