#include "sim/clusters/catalog.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <tuple>
#include <utility>

#include "clusters/preset_files.hpp"
#include "core/error.hpp"
#include "core/line.hpp"

namespace meshplan::sim {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

/// Presets by each of their names, in lower case.
const std::map<std::string, std::string, std::less<>>& presets_by_name() {
  static const auto kPresets = [] {
    std::map<std::string, std::string, std::less<>> presets;
    for (const auto& [preset, about] : preset_descriptions())
      for (const std::string& instance : about.instances) presets.emplace(lower(instance), preset);
    for (const auto& [preset, about] : preset_descriptions()) presets[lower(preset)] = preset;
    return presets;
  }();
  return kPresets;
}

/// The names nearest to `given`, nearest first, of different presets; of two that are as near, the
/// preset's own before one under which it is rented.
std::vector<std::string> nearest_names(std::string_view given) {
  constexpr std::size_t kNames = 3;
  std::vector<std::string> names;
  for (const auto& [name, preset] : presets_by_name()) names.push_back(name);
  std::ranges::stable_partition(
      names, [](const std::string& name) { return name == lower(*preset_called(name)); });
  std::vector<std::string> nearest;
  while (nearest.size() < kNames) {
    nearest.push_back(nearest_choice(lower(given), names));
    std::erase_if(names, [found = preset_called(nearest.back())](const std::string& name) {
      return preset_called(name) == found;
    });
  }
  return nearest;
}

/// Who builds devices first, then clouds, then what nobody sells as it stands.
int rank_of_vendor(const std::string& vendor) {
  if (vendor == "NVIDIA") return 0;
  if (vendor == "AMD") return 1;
  return vendor == "generic" ? 3 : 2;
}

/// All that a preset is found by, in lower case.
std::string words_of(const std::string& preset, const About& about) {
  std::string words =
      fmt::format("{}\n{}\n{}\n{}", preset, about.vendor, read_preset(preset).value().device.name,
                  fmt::join(about.instances, "\n"));
  return lower(words);
}

bool has_all(const std::string& text, const std::vector<std::string>& words) {
  return std::ranges::all_of(
      words, [&](const std::string& word) { return text.find(lower(word)) != std::string::npos; });
}

}  // namespace

std::optional<std::string> preset_called(std::string_view name) {
  const auto found = presets_by_name().find(lower(name));
  if (found == presets_by_name().end()) return std::nullopt;
  return found->second;
}

std::string unknown_cluster_message(std::string_view name) {
  const std::vector<std::string> nearest = nearest_names(name);
  return fmt::format(
      "unknown cluster '{}'; did you mean '{}', '{}' or '{}'? `meshplan clusters` lists all",
      short_line(name), nearest[0], nearest[1], nearest[2]);
}

std::vector<std::string> presets_with(const std::vector<std::string>& words) {
  using Entry = std::tuple<int, std::string, std::string>;  // vendor's rank, vendor, preset
  std::vector<Entry> found;
  std::map<std::string, std::string> texts;
  for (const auto& [preset, about] : preset_descriptions()) {
    texts[preset] = words_of(preset, about);
    if (has_all(texts[preset], words))
      found.emplace_back(rank_of_vendor(about.vendor), about.vendor, preset);
  }
  if (found.empty()) {
    for (const std::string& word : words)
      if (std::ranges::none_of(texts,
                               [&](const auto& text) { return has_all(text.second, {word}); }))
        throw ConfigError(unknown_cluster_message(word));
    throw ConfigError(fmt::format("no cluster has all of the words '{}'; each alone is of some",
                                  fmt::join(words, "', '")));
  }
  std::ranges::sort(found);
  std::vector<std::string> names;
  for (auto& [rank, vendor, preset] : found) names.push_back(std::move(preset));
  return names;
}

namespace {

/// "800" of "a100-80g-800g-node", the rate of a node's network in Gb/s.
struct NodeRate {
  std::string base;
  double gbit_per_s = 0;
};

std::optional<NodeRate> node_rate(std::string_view name) {
  constexpr std::string_view kSuffix = "g-node";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || dash == 0) return std::nullopt;
  const std::string_view digits = name.substr(dash + 1);
  int rate = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rate);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (rate < 10 || rate >= 100'000 || digits.front() == '0') return std::nullopt;
  return NodeRate{std::string(name.substr(0, dash)), static_cast<double>(rate)};
}

/// The named rate as network cards of 100, 200 or (beside Hopper and later) 400 Gb/s, the largest
/// that still gives a card to every second device; several devices share a card where there are
/// fewer.
void set_network(Cluster& cluster, double gbit_per_s) {
  constexpr double kProtocolShare = 0.96;  // of the line rate, as in the other presets
  constexpr double kBitsPerByte = 8;
  FabricLevel& level = cluster.fabric.back();
  double card = 100;
  const bool newest = cluster.device.architecture != Architecture::Ampere;
  for (const double larger : {200.0, 400.0})
    if ((larger < 400 || newest) && gbit_per_s / larger >= cluster.devices_per_node / 2.0)
      card = larger;
  level.name = fmt::format("rdma-{:.0f}g-node", gbit_per_s);
  level.ranks_per_link =
      std::max(1, static_cast<int>(std::lround(cluster.devices_per_node * card / gbit_per_s)));
  level.link_gb_per_s = kProtocolShare * gbit_per_s / kBitsPerByte /
                        (static_cast<double>(cluster.devices_per_node) / level.ranks_per_link);
}

}  // namespace

Cluster load_data_sheet(std::string_view name) {
  if (auto preset = read_preset(name)) return *preset;  // without reading all of them
  if (const auto called = preset_called(name)) return read_preset(*called).value();
  if (const auto rate = node_rate(name))
    for (const std::string& base : {rate->base, rate->base + "-generic"})
      if (const auto called = preset_called(base)) {
        Cluster preset = read_preset(*called).value();
        if (preset.fabric.empty()) continue;
        set_network(preset, rate->gbit_per_s);
        preset.name = name;
        preset.about.reset();  // nobody sells it
        return preset;
      }
  throw ConfigError(unknown_cluster_message(name));
}

}  // namespace meshplan::sim
