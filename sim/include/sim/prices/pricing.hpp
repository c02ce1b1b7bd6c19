// What one operation costs when it has its resources to itself, and what it takes of them while it
// runs. The estimator adds these durations up; the engine plays them and shares the resources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

enum class PriceSource { Formula, Interpolated, Measured };

/// Sizes that samples were taken at, and the one that is asked for: bytes of a message, FLOPs of an
/// operation (its bytes, if it has none).
struct MeasuredSizes {
  double least = 0;
  double most = 0;
  double asked = 0;
  /// How many times larger or smaller than any sample; 1 inside their range and without samples.
  double beyond() const;
  bool operator==(const MeasuredSizes&) const = default;
};
/// From here on a price is called extrapolated.
inline constexpr double kFarBeyond = 4;

/// A duration and, for that duration, the demand on each resource that ranks may share.
struct Price {
  double seconds = 0;             // alone
  double memory_bytes_per_s = 0;  // of the host's memory bandwidth, per rank (CPU)
  double link_bytes_per_s = 0;    // of a link of `level`, per rank
  std::optional<int> level;       // fabric level of link_bytes_per_s; absent: touches no link
  PriceSource source = PriceSource::Formula;
  MeasuredSizes sizes;  // of the samples that it rests on; all 0 without samples
  bool operator==(const Price&) const = default;
};

/// A compute or step operation. An exact signature in the measured table wins; else the table's
/// samples of the same kind and phase are interpolated; else the data sheet formula.
/// @throws InvariantError if the instance is a communication
Price price_operation(const program::Program& program, const program::OperationInstance& instance,
                      const Cluster& cluster);

/// A collective among placed ranks. `message_bytes` is what one rank passes in (all of the buffer
/// for all_reduce and reduce_scatter, its own part for all_gather).
Price price_collective(program::Collective collective, std::int64_t message_bytes,
                       const GroupPlacement& placement, const Cluster& cluster);

/// One message between two ranks.
Price price_transfer(std::int64_t message_bytes, const GroupPlacement& placement,
                     const Cluster& cluster);

/// C = A B with (m, n, k): tile and wave quantization over the device's units and a start-up of the
/// inner loop. Seconds, without launch. Domain: m, n, k >= 1.
double gemm_seconds(double m, double n, double k, DType dtype, const Cluster& cluster);

/// Dense peak in FLOP/s of the products that a workload's FLOPs lie in, the mean over the ranks:
/// what MFU divides by.
/// @throws ConfigError for a device that cannot run the workload's precision
double peak_flop_per_s(const Cluster& cluster, const program::Workload& workload);
/// Model FLOPs of a step over what all ranks could do in its time (Chowdhery et al. 2022, appendix
/// B).
double model_flops_utilization(const program::Plan& plan, const Cluster& cluster,
                               double step_time_s);

/// `count` independent products of that shape in one launch, which fill the device's waves
/// together. `peak` in FLOP/s, before the cluster's efficiency.
double batched_gemm_seconds(double count, double m, double n, double k, double peak,
                            const Cluster& cluster);

/// Bytes streamed through device memory; small streams do not reach the bandwidth. Without launch.
double stream_seconds(double bytes, const Cluster& cluster);

/// Capacity of one link of a fabric level, in one direction.
double link_capacity_bytes_per_s(const Cluster& cluster, int level);

/// The algorithms that a collective is priced as; the cheapest counts, as NCCL and MPICH choose.
enum class Algorithm {
  Ring,
  Tree,
  RecursiveDoubling,
  Nvls,      // NVSwitch sums and multicasts
  NvlsTree,  // so in every node, a tree between nodes
  CollNet,   // the network's switches sum
  Pat,       // parallel aggregated tree (Jeaugey 2025), one rank a node
};

/// Alpha-beta time of one algorithm and protocol (which rings, trees and doubling have). @see
/// collectives.cpp and nccl_algorithms.cpp for the formulas' sources
double collective_seconds(program::Collective collective, Algorithm algorithm, double message_bytes,
                          const GroupPlacement& placement, const Cluster& cluster,
                          const Protocol& protocol);

/// Prices of all operations of one rank's program, found once: instances share them.
struct ProgramPrices {
  std::vector<Price> distinct;
  std::vector<int> of_instance;  // into `distinct`, aligned with Program::instances
  const Price& of(std::size_t instance) const {
    return distinct[static_cast<std::size_t>(of_instance[instance])];
  }
};

/// @param rank  world rank whose groups decide which fabric levels the communication crosses, and
/// whose node says what computes
ProgramPrices price_program(const program::Program& program, int rank, const program::Mesh& mesh,
                            const Cluster& cluster);

/// World rank of the peer of a point-to-point operation.
int peer_rank(const program::Mesh& mesh, int rank, const program::PeerOp& peer);

}  // namespace meshplan::sim
