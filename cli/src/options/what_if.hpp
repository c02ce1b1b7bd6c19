// --set: what if a figure of the cluster, or a value of a plan's file, were another? --slow-rank:
// what if a rank computed more slowly?
#pragma once

#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::cli {

/// --set FIGURE=FACTOR|PATH=VALUE
void add_set_option(Command& command, std::vector<std::string>& settings);

/// --slow-rank RANK:TIMES
void add_slow_rank_option(Command& command, std::vector<std::string>& ranks);

/// The cluster with these slow ranks ("3:1.5"), beside those that it has.
/// @param changes  gets what was changed, in words
/// @throws ConfigError for anything else, a rank that the cluster lacks, and one that is given
/// twice
sim::Cluster with_slow_ranks(const sim::Cluster& cluster, const std::vector<std::string>& ranks,
                             std::vector<std::string>& changes);

/// The settings of one command line, by what they change. One option serves both: no value of a
/// plan's file is called as a figure or value of a cluster is.
struct WhatIf {
  std::vector<std::string> cluster;
  std::vector<std::string> plan;  // as program::change_plan takes them
};
WhatIf sorted(const std::vector<std::string>& settings, const sim::Cluster& cluster);

/// The cluster with what the settings say.
/// @param changes  gets what was changed, in words
/// @throws ConfigError also for a change that runs of the software do not notice: their speeds are
/// fitted, whatever the cluster says
sim::Cluster changed_cluster(const sim::Cluster& cluster, const std::vector<std::string>& settings,
                             const std::string& software, std::vector<std::string>& changes);

}  // namespace meshplan::cli
