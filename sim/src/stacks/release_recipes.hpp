// What recipes of a release choose where a run leaves it open.
#pragma once

#include <string>
#include <vector>

#include "sim/clusters/cluster.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// Lets the recipes of the release that the run names choose. One that contradicts what the run
/// states does not hold; of others the newest does. Nothing is chosen where no release is named, or
/// a launch script says all (TrainingRun::states_choices).
/// @param cluster  a data sheet, of any number of nodes
/// @return what holds, "since 26.06: ..." with its source
std::vector<std::string> take_recipes(const Cluster& cluster, ExecutionProfile& profile,
                                      TrainingRun& run);

/// Does NVLink join the devices of several nodes?
bool has_racks(const Cluster& cluster);

}  // namespace meshplan::sim
