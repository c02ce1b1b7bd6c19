// The readers behind import_cluster, and what they share.
#pragma once

#include "sim/import/import.hpp"

namespace meshplan::sim {

/// Effective GB/s of one NVLink in one direction, as NCCL assumes (src/graph/topo.h).
/// @param compute_capability  major * 10 + minor
double nvlink_gb_per_s(int compute_capability);
/// The preset whose device has this compute capability.
std::string preset_of_capability(int compute_capability);
int capability_of(Architecture architecture);

/// The base's device, protocols and latencies, on one node of `ranks` devices. `network_gb_per_s`
/// is one card's, shared by `ranks_per_card`; 0 = no network: one node only.
struct NodeFabric {
  int ranks = 1;
  std::string link_name;
  double link_gb_per_s = 0;
  double network_gb_per_s = 0;
  int ranks_per_card = 1;
};
Cluster cluster_of_nodes(const Cluster& base, const NodeFabric& fabric);

ImportedCluster import_nccl_topology(const ImportRequest& request);
ImportedCluster import_nvidia_smi(const ImportRequest& request);
ImportedCluster import_nccl_tests(const ImportRequest& request);
ImportedCluster import_calculon(const ImportRequest& request);
ImportedCluster import_astra_sim(const ImportRequest& request);

}  // namespace meshplan::sim
