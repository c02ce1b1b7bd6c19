#include "options/what_if.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "sim/clusters/what_if.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {

void add_set_option(Command& command, std::vector<std::string>& settings) {
  command
      .option(
          "--set", settings,
          "what if: a figure of the cluster times a factor (network=0.5; also flops, memory, "
          "memory_bandwidth, latency, nvlink.latency, ...), or PATH=VALUE of the cluster's file "
          "(device.memory_gib=141) or of a plan's file (parallel.tp=4); may be repeated")
      .beside_plan();
}

WhatIf sorted(const std::vector<std::string>& settings, const sim::Cluster& cluster) {
  WhatIf what_if;
  for (const std::string& setting : settings)
    (sim::is_of_cluster(cluster, setting.substr(0, setting.find('='))) ? what_if.cluster
                                                                       : what_if.plan)
        .push_back(setting);
  return what_if;
}

sim::Cluster changed_cluster(const sim::Cluster& cluster, const std::vector<std::string>& settings,
                             const std::string& software, std::vector<std::string>& changes) {
  if (settings.empty()) return cluster;
  sim::ChangedCluster changed = sim::change_cluster(cluster, settings);
  if (software != sim::kOwnSoftware && !changed.changes.empty() &&
      sim::equal_beside_fitted_speeds(cluster, changed.cluster))
    throw ConfigError(fmt::format(
        "--set {}: changes nothing for --software {}: how fast its kernels are, and what its steps "
        "take besides, is fitted on measured runs; change a figure, for example flops=1.1",
        fmt::join(settings, " --set "), software));
  for (std::string& change : changed.changes) changes.push_back(std::move(change));
  return std::move(changed.cluster);
}

}  // namespace meshplan::cli
