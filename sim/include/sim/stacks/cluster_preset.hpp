// Clusters that are compiled in, as fast as our runtime's kernels run on them.
#pragma once

#include <string_view>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// load_data_sheet; a GPU with the speeds that work reaches on it, as fitted on published runs
/// (fitted_constants.hpp).
/// @throws ConfigError for an unknown name, with the nearest known one
Cluster load_cluster_preset(std::string_view name);

/// The cluster before anything was fitted to our kernels: a preset of any size as its data sheet
/// says, any other cluster as it is.
Cluster data_sheet_of(const Cluster& cluster);

/// Do two clusters differ in nothing that runs of other software notice? Their kernels' speeds are
/// the fitted ones on both.
bool equal_beside_fitted_speeds(Cluster a, Cluster b);

}  // namespace meshplan::sim
