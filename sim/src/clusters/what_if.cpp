#include "sim/clusters/what_if.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "clusters/node_types.hpp"
#include "core/index.hpp"
#include "core/json_paths.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"

namespace meshplan::sim {
namespace {

constexpr std::string_view kClusterPrefix = "cluster.";
constexpr std::string_view kBandwidth = ".bandwidth";
constexpr std::string_view kLatency = ".latency";

/// The innermost level between nodes. That of a single node's ranks is none, whatever it could
/// hold.
std::size_t first_between_nodes(const Cluster& cluster) {
  const std::size_t inside = levels_inside(cluster);
  const bool of_node = cluster.num_nodes == 1 && cluster.devices_per_node > 1;
  return of_node ? std::max<std::size_t>(inside, 1) : inside;
}

/// The levels of a cluster's fabric whose bandwidth, or latency, a figure is.
struct LinkFigure {
  bool latency = false;
  std::vector<std::size_t> levels;
};

std::vector<std::size_t> levels_named(const Cluster& cluster, std::string_view name) {
  std::vector<std::size_t> levels;
  for (std::size_t l = 0; l < cluster.fabric.size(); ++l)
    if (cluster.fabric[l].name == name) levels.push_back(l);
  return levels;
}

std::optional<LinkFigure> link_figure(const Cluster& cluster, std::string_view figure) {
  LinkFigure found;
  if (figure == "network" || figure == "latency") {
    found.latency = figure == "latency";
    const std::size_t first = found.latency ? 0 : first_between_nodes(cluster);
    for (std::size_t l = first; l < cluster.fabric.size(); ++l) found.levels.push_back(l);
  } else if (found.levels = levels_named(cluster, figure); found.levels.empty()) {
    found.latency = figure.ends_with(kLatency);
    if (!found.latency && !figure.ends_with(kBandwidth)) return std::nullopt;
    figure.remove_suffix(found.latency ? kLatency.size() : kBandwidth.size());
    found.levels = levels_named(cluster, figure);
  }
  if (found.levels.empty()) return std::nullopt;
  return found;
}

bool is_bound_by_flops(std::string_view signature) {
  return signature.starts_with("linear.") || signature.starts_with("grouped_linear.") ||
         signature.starts_with("attention.");
}

void scale_devices(Cluster& cluster, const auto& change) {
  change(cluster.device);
  for (OtherNodes& nodes : cluster.other_nodes) change(nodes.device);
}

void scale_operators(Cluster& cluster, bool bound_by_flops, double factor) {
  for (MeasuredOperator& measured : cluster.operators)
    if (is_bound_by_flops(measured.signature) == bound_by_flops) {
      measured.seconds /= factor;
      measured.seconds_busy /= factor;
    }
}

void scale_flops(Cluster& cluster, double factor) {
  scale_devices(cluster, [&](Device& device) {
    for (auto& [dtype, peak] : device.peak_tflop_per_s) peak *= factor;
    device.efficiency.exponentials_per_ps *= factor;
    device.efficiency.attention_block_us /= factor;
  });
  scale_operators(cluster, true, factor);
}

void scale_memory_bandwidth(Cluster& cluster, double factor) {
  scale_devices(cluster, [&](Device& device) { device.memory_gb_per_s *= factor; });
  cluster.host_memory_gb_per_s *= factor;
  scale_operators(cluster, false, factor);
}

/// The innermost level that can hold the ranks of a measured group; a group with more ranks than
/// its host had reaches beyond the node.
std::size_t level_of(const Cluster& cluster, const MeasuredCollective& measured) {
  std::size_t level = measured.group_size > measured.ranks_on_host ? levels_inside(cluster) : 0;
  const auto holds = [&](std::size_t l) {
    const int ranks = cluster.fabric[l].ranks_per_group;
    return ranks == 0 || ranks >= measured.group_size;
  };
  while (level + 1 < cluster.fabric.size() && !holds(level)) ++level;
  return level;
}

/// Of each measured collective the time of its smallest message is latency.
void scale_collectives(Cluster& cluster, const LinkFigure& figure, double factor) {
  using Run = std::tuple<std::string, int, int, bool>;
  const auto run_of = [](const MeasuredCollective& m) {
    return Run(m.op, m.group_size, m.ranks_on_host, m.cold);
  };
  std::map<Run, double> latency;
  for (const MeasuredCollective& m : cluster.collectives) {
    double& least = latency.try_emplace(run_of(m), m.seconds).first->second;
    least = std::min(least, m.seconds);
  }
  for (MeasuredCollective& m : cluster.collectives) {
    if (std::ranges::find(figure.levels, level_of(cluster, m)) == figure.levels.end()) continue;
    const double fixed = latency.at(run_of(m));
    m.seconds = figure.latency ? fixed * factor + (m.seconds - fixed)
                               : fixed + (m.seconds - fixed) / factor;
  }
}

void scale_links(Cluster& cluster, const LinkFigure& figure, double factor) {
  const auto scale = [&](FabricLevel& level) {
    (figure.latency ? level.latency_us : level.link_gb_per_s) *= factor;
  };
  for (const std::size_t l : figure.levels) {
    scale(cluster.fabric[l]);
    for (OtherNodes& nodes : cluster.other_nodes)
      if (l < nodes.inside.size()) scale(nodes.inside[l]);
  }
  if (!cluster.fabric.empty()) scale_collectives(cluster, figure, factor);
}

// ---- values of the cluster's file

/// Without what was measured.
std::vector<std::pair<std::string, Json>> values_of(Cluster cluster) {
  cluster.operators.clear();
  cluster.collectives.clear();
  return json_leaves(Json::parse(to_json(cluster)));
}

struct ClusterSetting {
  std::string key;
  std::string value;
};

ClusterSetting split(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos)
    throw ConfigError(fmt::format(
        "--set {}: expected FIGURE=FACTOR or PATH=VALUE, for example --set network=0.5", setting));
  std::string key = setting.substr(0, equals);
  if (key.starts_with(kClusterPrefix)) key.erase(0, kClusterPrefix.size());
  return {std::move(key), setting.substr(equals + 1)};
}

Cluster with_value(const Cluster& cluster, const ClusterSetting& setting) {
  const auto& [key, text] = setting;
  std::vector<std::string> known = figure_names(cluster);
  bool found = false;
  for (const auto& [path, value] : values_of(cluster)) {
    found = found || path == key;
    known.push_back(path);
  }
  if (!found)
    throw ConfigError(fmt::format(
        "--set {}={}: no figure of cluster '{}', nor a value of its file; did you mean '{}'? "
        "figures: {}",
        key, text, cluster.name, nearest_choice(key, known),
        fmt::join(figure_names(cluster), ", ")));
  Json file = Json::parse(to_json(cluster));
  Json& place = file.at(json_pointer_of(key));
  place = json_of_word(text, place);
  return parse_cluster(file.dump(), fmt::format("--set {}={}", key, text));
}

Cluster with_factor(const Cluster& cluster, const ClusterSetting& setting) {
  const std::optional<double> factor = parse_number(setting.value, kSmallestScale, kLargestScale);
  if (!factor)
    throw ConfigError(
        fmt::format("--set {}={}: expected a factor from {:g} to {:g}, for example {}=0.5",
                    setting.key, setting.value, kSmallestScale, kLargestScale, setting.key));
  const Cluster changed = scaled(cluster, setting.key, *factor);
  return parse_cluster(to_json(changed), fmt::format("--set {}={}", setting.key, setting.value));
}

bool is_figure(const Cluster& cluster, std::string_view key) {
  const std::vector<std::string> names = figure_names(cluster);
  return std::ranges::find(names, key) != names.end();
}

std::vector<std::string> differences(const Cluster& before, const Cluster& after) {
  std::map<std::string, Json> old;
  for (auto& [path, value] : values_of(before)) old.emplace(path, std::move(value));
  std::vector<std::string> changes;
  for (const auto& [path, value] : values_of(after))
    if (const auto found = old.find(path); found != old.end() && found->second != value)
      changes.push_back(fmt::format("{}: {} -> {}", path, found->second.dump(), value.dump()));
  if (before.operators != after.operators)
    changes.emplace_back("operators: times as measured, scaled");
  if (before.collectives != after.collectives)
    changes.emplace_back("collectives: times as measured, scaled");
  return changes;
}

}  // namespace

std::vector<std::string> separate_figures(const Cluster& cluster) {
  std::vector<std::string> names = {"flops", "memory_bandwidth"};
  for (const FabricLevel& level : cluster.fabric) {
    const std::string bandwidth = level.name + std::string(kBandwidth);
    if (std::ranges::find(names, bandwidth) != names.end()) continue;
    names.push_back(bandwidth);
    names.push_back(level.name + std::string(kLatency));
  }
  return names;
}

std::vector<std::string> figure_names(const Cluster& cluster) {
  std::vector<std::string> names = separate_figures(cluster);
  names.insert(names.begin() + 2, "memory");
  if (first_between_nodes(cluster) < cluster.fabric.size()) names.emplace_back("network");
  if (!cluster.fabric.empty()) names.emplace_back("latency");
  for (const FabricLevel& level : cluster.fabric)
    if (std::ranges::find(names, level.name) == names.end()) names.push_back(level.name);
  return names;
}

Cluster scaled(const Cluster& cluster, std::string_view figure, double factor) {
  require_invariant(factor > 0, "a figure is scaled by a positive factor");
  Cluster changed = cluster;
  if (figure == "flops")
    scale_flops(changed, factor);
  else if (figure == "memory_bandwidth")
    scale_memory_bandwidth(changed, factor);
  else if (figure == "memory")
    scale_devices(changed, [&](Device& device) { device.memory_gib *= factor; });
  else if (const std::optional<LinkFigure> links = link_figure(cluster, figure))
    scale_links(changed, *links, factor);
  else
    throw ConfigError(unknown_name_message("figure of the cluster", figure, figure_names(cluster)));
  return changed;
}

bool is_of_cluster(const Cluster& cluster, std::string_view key) {
  if (key.starts_with(kClusterPrefix) || is_figure(cluster, key)) return true;
  const std::string_view root = key.substr(0, key.find_first_of(".["));
  return std::ranges::any_of(values_of(cluster), [&](const auto& value) {
    const std::string& path = value.first;
    return path != "schema_version" &&
           (path == key || path.substr(0, path.find_first_of(".[")) == root);
  });
}

ChangedCluster change_cluster(const Cluster& cluster, const std::vector<std::string>& settings) {
  ChangedCluster changed{.cluster = cluster, .changes = {}};
  std::vector<std::string> words;
  for (const std::string& text : settings) {
    const ClusterSetting setting = split(text);
    words.push_back(fmt::format("{}={}", setting.key, setting.value));
    changed.cluster = is_figure(cluster, setting.key) ? with_factor(changed.cluster, setting)
                                                      : with_value(changed.cluster, setting);
  }
  changed.changes = differences(cluster, changed.cluster);
  if (!changed.changes.empty())
    changed.cluster.name = fmt::format("{} ({})", cluster.name, fmt::join(words, ", "));
  return changed;
}

}  // namespace meshplan::sim
