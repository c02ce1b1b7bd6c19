#include "options/what_if.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "sim/clusters/what_if.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

sim::SlowRank parse_slow_rank(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto rank = parse_integer(text.substr(0, colon), 0, static_cast<int>(limits::kRanks));
  const auto times = colon == std::string::npos
                         ? std::nullopt
                         : parse_number(text.substr(colon + 1), 1, limits::kMagnitude);
  if (!rank || !times)
    throw ConfigError(fmt::format(
        "--slow-rank {}: expected RANK:TIMES, a rank and how many times as long as others it "
        "computes, at least 1; for example 3:1.5",
        text));
  return {.rank = *rank, .times = *times};
}

}  // namespace

void add_slow_rank_option(Command& command, std::vector<std::string>& ranks) {
  command
      .option("--slow-rank", ranks,
              "what if a rank computed more slowly: RANK:TIMES, so many times as long as others "
              "for the same work (3:1.5); may be repeated")
      .beside_plan();
}

sim::Cluster with_slow_ranks(const sim::Cluster& cluster, const std::vector<std::string>& ranks,
                             std::vector<std::string>& changes) {
  if (ranks.empty()) return cluster;
  sim::Cluster changed = cluster;
  std::set<int> given;
  for (const std::string& text : ranks) {
    const sim::SlowRank slow = parse_slow_rank(text);
    if (!given.insert(slow.rank).second)
      throw ConfigError(
          fmt::format("--slow-rank {}: rank {} is given twice; leave one out", text, slow.rank));
    std::erase_if(changed.slow_ranks,
                  [&](const sim::SlowRank& known) { return known.rank == slow.rank; });
    changed.slow_ranks.push_back(slow);
    changes.push_back(fmt::format("rank {} computes {:g} x as long", slow.rank, slow.times));
  }
  std::ranges::sort(changed.slow_ranks, {}, &sim::SlowRank::rank);
  const std::string words = fmt::format("{}", fmt::join(ranks, ", "));
  changed.name = fmt::format("{} (slow rank {})", cluster.name, words);
  return sim::parse_cluster(sim::to_json(changed), "--slow-rank " + words);
}

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
