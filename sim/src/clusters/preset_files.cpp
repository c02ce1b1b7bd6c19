#include "clusters/preset_files.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <span>

#include "core/embedded_file.hpp"
#include "core/json_fields.hpp"

namespace meshplan::sim {

std::span<const EmbeddedFile> cluster_presets();

namespace {

const EmbeddedFile* find_file(std::string_view name) {
  const auto files = cluster_presets();
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  return found == files.end() ? nullptr : &*found;
}

std::string name_of_file(const EmbeddedFile& file) {
  return fmt::format("preset {}", file.name);
}

/// The whole file of a preset that may name another one.
Json whole(const EmbeddedFile& file) {
  Json own = parse_json(file.text, name_of_file(file));
  if (!own.contains("like")) return own;
  const EmbeddedFile* base = find_file(own["like"].get<std::string>());
  require_invariant(base != nullptr, "a preset is like another one that exists");
  Json cluster = whole(*base);
  cluster.erase("about");
  own.erase("like");
  const Json network = own.value("network", Json());
  own.erase("network");
  cluster.merge_patch(own);
  if (!network.is_null()) cluster["fabric"].back() = network;
  return cluster;
}

}  // namespace

std::optional<Cluster> read_preset(std::string_view name) {
  const EmbeddedFile* file = find_file(name);
  if (file == nullptr) return std::nullopt;
  return parse_cluster(whole(*file).dump(), name_of_file(*file));
}

const std::map<std::string, About, std::less<>>& preset_descriptions() {
  static const auto kDescriptions = [] {
    std::map<std::string, About, std::less<>> descriptions;
    for (const EmbeddedFile& file : cluster_presets()) {
      const Cluster cluster = read_preset(file.name).value();
      descriptions.emplace(file.name, cluster.about.value_or(About{.vendor = "generic"}));
    }
    return descriptions;
  }();
  return kDescriptions;
}

std::vector<std::string> cluster_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : cluster_presets()) names.emplace_back(file.name);
  std::ranges::sort(names);
  return names;
}

}  // namespace meshplan::sim
