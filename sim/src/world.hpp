// What the engine plays, laid out once: which ranks are simulated, what each of their operations
// takes, and which operations of different ranks meet.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "shared_resources.hpp"
#include "sim/cluster.hpp"
#include "sim/engine.hpp"

namespace meshplan::sim {

/// What all ranks of a stage have in common.
struct StageTables {
  const program::Program* program = nullptr;
  std::vector<std::uint8_t> lane = {};  // of each instance
  std::vector<int> wait_begin = {};     // instances + 1 offsets into `waits`
  std::vector<int> waits = {};
  std::array<std::vector<int>, program::kNumLanes> lane_order = {};  // instances of a lane
};

/// An operation that one rank does alone.
struct Work {
  double seconds = 0;
  UsageSpan usages;
};

/// An operation of which several ranks take part: a collective or a transfer.
struct Meeting {
  double seconds = 0;
  UsageSpan usages;
  std::size_t members_begin = 0;  // into World::members
  int num_members = 0;
  int receiver = -1;           // of a transfer: index into World::ranks
  bool includes_wake = false;  // its duration was measured with this host's oversubscription
};

struct Member {
  int rank = 0;      // index into World::ranks
  int instance = 0;  // of its program
};

/// One simulated rank. `target[i]` of instance i: index into World::works, or ~index into meetings.
struct SimulatedRank {
  int rank = 0;  // in the mesh
  int stage = 0;
  std::vector<int> target = {};
};

struct World {
  bool folded = false;
  std::vector<StageTables> stages;
  std::vector<SimulatedRank> ranks;
  std::vector<Work> works;
  std::vector<Meeting> meetings;
  std::vector<Member> members;
  SharedResources resources;
};

/// @throws InvariantError if members of a group do not issue the same operations
World build_world(const std::vector<program::Program>& programs, const Cluster& cluster,
                  const program::Mesh& mesh, const SimulationOptions& options);

/// Decides whether one rank per stage can stand for all: its first one, with tp, cp and dp 0.
class Folding {
 public:
  Folding(const program::Mesh& mesh, const Cluster& cluster);
  /// Can one rank per stage stand for all of them, on these groups?
  bool is_exact(const std::vector<program::Group>& groups) const;
  int representative(int stage) const { return representatives_[static_cast<std::size_t>(stage)]; }
  /// Ranks of the stage inside the representative's domain of `span` ranks.
  int multiplicity(int stage, int span) const;

 private:
  bool same_placements(program::Group group) const;
  bool same_neighbours() const;
  bool same_devices() const;
  bool same_company(int span) const;
  std::vector<int> company(int rank, int span) const;

  const program::Mesh& mesh_;
  const Cluster& cluster_;
  std::vector<program::Coordinates> coordinates_;  // of every rank
  std::vector<int> representatives_;
};

}  // namespace meshplan::sim
