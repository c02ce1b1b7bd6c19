// Peak memory of each stage's ranks: what the program plans, what the libraries take, what fits.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/step_prediction.hpp"

namespace meshplan::program {
struct Plan;
struct Program;
}  // namespace meshplan::program

namespace meshplan::sim {

struct Cluster;

/// Part of a device that the planner leaves free for what nobody plans: fragments of other
/// libraries' allocations, a desktop, a profiler.
constexpr double kMemoryReserve = 0.04;
/// Part of a host's memory that is left to its system, to loading of data and to pinned buffers of
/// libraries (assumed).
constexpr double kHostReserve = 0.1;

/// Bytes of one rank of a stage.
struct StageMemory {
  int stage = 0;
  double parameters = 0;
  double master_parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;    // saved from forward to backward, all micro-batches in flight
  double transient = 0;      // alive inside one task
  double workspace = 0;      // of attention on a GPU
  double boundary = 0;       // received gradients and the batch
  double communication = 0;  // buffers of the collective library
  double runtime_base = 0;   // process or device context
  double host = 0;           // beside it, of a GPU's host: offloaded state (not in the total)
  double capacity = 0;       // that one rank may use: the device's, or its share of the host's
  double host_capacity = 0;  // of the rank's share of a GPU's host; infinite if not known
  double total() const;
  MemoryNeed need() const;  // of the memory that decides
  bool operator==(const StageMemory&) const = default;
};

struct MemoryReport {
  std::vector<StageMemory> stages;
  int largest_stage = 0;      // with the least room
  double peak_bytes = 0;      // of a rank of that stage; of_host: of its host's memory
  double capacity_bytes = 0;  // of that rank
  bool of_host = false;       // which does not suffice for what is offloaded
  /// @param reserve  part of the device that is to stay free
  bool fits(double reserve = 0) const { return peak_bytes <= usable_bytes(reserve); }
  double usable_bytes(double reserve) const { return capacity_bytes * (1 - reserve); }
  double missing_bytes() const { return fits() ? 0 : peak_bytes - capacity_bytes; }
};

/// Memory of a rank on the cluster's first nodes.
StageMemory stage_memory(const program::Program& program, const Cluster& cluster);
/// Memory of each stage's fullest rank.
MemoryReport memory_report(const std::vector<program::Program>& stages, const Cluster& cluster);
/// The same of a plan, without playing it or listing all of its operations.
/// @throws ConfigError as program::lower_all
MemoryReport memory_of(const program::Plan& plan, const Cluster& cluster);
/// Bytes that one rank of the first nodes may use. CPU ranks share their host's memory equally.
double memory_capacity_bytes(const Cluster& cluster);
/// Bytes of its host's memory that one rank on a GPU may use, equal shares for all of a node;
/// infinite if the cluster does not say.
double host_capacity_bytes(const Cluster& cluster);

}  // namespace meshplan::sim
