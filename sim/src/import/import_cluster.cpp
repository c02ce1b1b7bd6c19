#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "import/import_formats.hpp"

namespace meshplan::sim {
namespace {

struct Reader {
  std::string_view format;
  ImportedCluster (*read)(const ImportRequest&);
};

constexpr std::array<Reader, 5> kReaders{{{"nccl-topology", import_nccl_topology},
                                          {"nvidia-smi", import_nvidia_smi},
                                          {"nccl-tests", import_nccl_tests},
                                          {"calculon", import_calculon},
                                          {"astra-sim", import_astra_sim}}};

}  // namespace

std::vector<std::string> cluster_formats() {
  std::vector<std::string> names;
  for (const Reader& reader : kReaders) names.emplace_back(reader.format);
  return names;
}

double nvlink_gb_per_s(int compute_capability) {
  if (compute_capability >= 100) return 40.1;
  if (compute_capability >= 90) return 20.6;
  if (compute_capability == 86) return 12;
  if (compute_capability >= 70) return 20;
  return 18;  // Pascal
}

std::string preset_of_capability(int compute_capability) {
  if (compute_capability >= 120) return "8x-rtx-pro-6000-pcie";
  if (compute_capability >= 100) return "dgx-b200";
  if (compute_capability >= 90) return "dgx-h100";
  if (compute_capability == 89) return "8x-rtx4090-pcie";
  return "dgx-a100";
}

int capability_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::Ampere:
      return 80;
    case Architecture::Ada:
      return 89;
    case Architecture::Hopper:
      return 90;
    case Architecture::Blackwell:
      return 100;
    case Architecture::BlackwellRtx:
      return 120;
    case Architecture::Cdna3:
    case Architecture::Cdna4:
    case Architecture::Other:
      return 70;
  }
  throw InvariantError("unknown architecture");
}

Cluster cluster_of_nodes(const Cluster& base, const NodeFabric& fabric) {
  Cluster cluster = base;
  cluster.num_nodes = 1;
  cluster.devices_per_node = fabric.ranks;
  cluster.operators.clear();
  cluster.collectives.clear();
  cluster.fabric.clear();
  const bool network = fabric.network_gb_per_s > 0;
  FabricLevel inner = base.fabric.front();
  inner.name = fabric.link_name;
  inner.link_gb_per_s = fabric.link_gb_per_s;
  inner.ranks_per_link = 1;
  inner.oversubscription = 1;
  inner.ranks_per_group = network ? fabric.ranks : 0;
  if (fabric.ranks > 1 || !network) cluster.fabric.push_back(inner);
  if (!network) return cluster;
  FabricLevel outer = base.fabric.back();
  outer.ranks_per_group = 0;
  outer.link_gb_per_s = fabric.network_gb_per_s;
  outer.ranks_per_link = fabric.ranks_per_card;
  cluster.fabric.push_back(outer);
  return cluster;
}

ImportedCluster import_cluster(const ImportRequest& request) {
  const auto found = std::ranges::find(kReaders, std::string_view(request.format), &Reader::format);
  if (found == kReaders.end())
    throw ConfigError(unknown_name_message("format", request.format, cluster_formats()));
  ImportedCluster imported = found->read(request);
  // Rules that a cluster file must obey, too, with the same words.
  imported.cluster = parse_cluster(to_json(imported.cluster), request.file);
  return imported;
}

}  // namespace meshplan::sim
