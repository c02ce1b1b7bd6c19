// From raw calibration samples to a cluster file. Pure: the runtime measures, this only fits.
#pragma once

#include <string>
#include <vector>

#include "program/operator_sample.hpp"
#include "program/samples.hpp"
#include "sim/cluster.hpp"

namespace meshplan::sim {

/// What is known of the machine besides the samples.
struct HostFacts {
  std::string name;             // of the cluster that is written: the host's name
  std::string processor;
  DeviceKind kind = DeviceKind::Cpu;
  int num_nodes = 1;
  int ranks_per_node = 1;
  int cores_per_host = 1;
  double memory_gib = 0;        // of the device, or of the host for CPU ranks
  double memory_gb_per_s = 0;   // one rank copying alone, read plus written bytes
  double host_memory_gb_per_s = 0;  // all cores copying at once, sum
  double process_mib = 0;       // resident before the arena is touched
  std::vector<std::string> dtypes;  // that the kernels compute in, by core/dtype name
};

/// The samples become the tables; the formulas' parameters are fitted to them, for what has no exact
/// sample: peaks and efficiencies from the fastest operators, alpha and beta of the fabric by relative
/// least squares over point-to-point samples (else all-reduces), the wake-up time from collectives of
/// few bytes measured with more ranks than cores.
/// @throws ConfigError if there is no operator sample
Cluster fit_cluster(const HostFacts& facts, const std::vector<program::OperatorSample>& operators,
                    const std::vector<program::CommSample>& communication);

}  // namespace meshplan::sim
