// The presets as a catalogue: by name, by the names of what is rented, by words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// The preset of this name, or with an instance of this name, in upper or lower case:
/// "p5.48xlarge", "BM.GPU.H100.8", "a3-megagpu-8g".
std::optional<std::string> preset_called(std::string_view name);

/// "unknown cluster 'dgx-h1000'; did you mean 'dgx-h100', 'dgx-h200' or 'dgx-a100'? `meshplan
/// clusters` lists all": the nearest names of presets and instances.
std::string unknown_cluster_message(std::string_view name);

/// Names of the presets that have all of these words in their name, device, vendor or instances, in
/// upper or lower case: "h100", "aws". Vendors of devices first, then clouds, then generic ones;
/// each vendor's by name.
/// @throws ConfigError for a word that none has, with the nearest names, and for words that none
/// has together
std::vector<std::string> presets_with(const std::vector<std::string>& words);

}  // namespace meshplan::sim
