// meshplan clusters: the presets, or one cluster in detail.
#include "catalog_command.hpp"
#include "commands.hpp"
#include "inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

std::string one_cluster(const std::string& name, bool json) {
  const sim::Cluster cluster = load_cluster(name);
  return json ? sim::to_json(cluster) : reports::cluster_text(cluster);
}

std::string all_clusters(bool json) {
  std::vector<sim::Cluster> presets;
  for (const std::string& name : sim::cluster_names())
    presets.push_back(sim::load_cluster_preset(name));
  return json ? reports::clusters_json(presets) : reports::clusters_text(presets);
}

}  // namespace

void add_clusters_command(CommandLine& line) {
  add_catalog_command(line, {.name = "clusters",
                             .summary = "List the clusters, or show one",
                             .item = "cluster",
                             .item_help = "preset or cluster file",
                             .json_help = "print the result for programs; of one cluster, its file",
                             .schema_help = "print the JSON Schema of cluster files",
                             .examples = "  meshplan clusters\n"
                                         "  meshplan clusters dgx-h100 --json > my-cluster.json",
                             .schema = sim::cluster_schema,
                             .one = one_cluster,
                             .all = all_clusters});
}

}  // namespace meshplan::cli
