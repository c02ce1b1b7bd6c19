// Files of the presets, as they are compiled in: a whole cluster, or what differs from another one.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// A file with the key `like` names another preset and states what differs from it, as a JSON merge
/// patch (RFC 7396); its `about` is its own alone, and `network` takes the place of the last level
/// of the fabric.
/// @param name  exactly as the file is called; absent: there is none
std::optional<Cluster> read_preset(std::string_view name);

/// What describes each preset, by its name.
const std::map<std::string, About, std::less<>>& preset_descriptions();

}  // namespace meshplan::sim
