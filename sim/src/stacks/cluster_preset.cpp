#include "sim/stacks/cluster_preset.hpp"

#include <algorithm>

#include "prices/device_speeds.hpp"
#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::sim {

Cluster load_cluster_preset(std::string_view name) {
  static const Constants constants = constants_of(fitted_constants());
  return with_fitted_speeds(load_data_sheet(name), constants,
                            load_execution_profile("meshplan").flash);
}

Cluster data_sheet_of(const Cluster& cluster) {
  const std::vector<std::string> presets = cluster_names();
  if (std::ranges::find(presets, cluster.name) == presets.end()) return cluster;
  const int ranks = cluster.num_ranks();
  const Cluster preset = with_ranks(load_cluster_preset(cluster.name), ranks);
  if (without_description(preset) != without_description(cluster)) return cluster;
  return with_ranks(load_data_sheet(cluster.name), ranks);
}

bool equal_beside_fitted_speeds(Cluster a, Cluster b) {
  static const Constants constants = constants_of(fitted_constants());
  for (Cluster* cluster : {&a, &b}) {
    cluster->name.clear();
    *cluster = without_description(*cluster);
    cluster->device.host_issue_us = 0;
    *cluster = with_fitted_speeds(*cluster, constants, FlashGeneration::Two);
  }
  return a == b;
}

}  // namespace meshplan::sim
