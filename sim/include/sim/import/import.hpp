// Clusters from files that other tools write. What a file does not say is taken from a preset, and
// listed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// "nccl-topology", "nvidia-smi", "nccl-tests", "calculon" and "astra-sim".
std::vector<std::string> cluster_formats();

struct ImportRequest {
  std::string format;
  std::string text;
  std::string file;                 // named in errors
  std::optional<std::string> base;  // preset that says what the file does not; absent: by the file
  std::optional<std::string> collective;  // of an nccl-tests file that does not name its own
};

struct ImportedCluster {
  Cluster cluster;
  std::vector<std::string> assumptions;  // one line each
};

/// @throws ConfigError naming the file, the place in it, the value and what was expected
ImportedCluster import_cluster(const ImportRequest& request);

}  // namespace meshplan::sim
