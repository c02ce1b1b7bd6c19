// meshplan clusters: the presets, or one cluster in detail.
#include <fmt/format.h>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "inputs.hpp"
#include "reports/catalog_report.hpp"

namespace meshplan::cli {
namespace {

struct Options {
  std::optional<std::string> name;
  bool json = false;
  bool schema = false;
};

int run(const Options& options) {
  if (options.schema) {
    fmt::print("{}", sim::cluster_schema());
  } else if (options.name) {
    const sim::Cluster cluster = load_cluster(*options.name);
    fmt::print("{}", options.json ? sim::to_json(cluster) : reports::cluster_text(cluster));
  } else {
    std::vector<sim::Cluster> presets;
    for (const std::string& name : sim::cluster_names())
      presets.push_back(sim::load_cluster_preset(name));
    fmt::print("{}",
               options.json ? reports::clusters_json(presets) : reports::clusters_text(presets));
  }
  return kDone;
}

}  // namespace

void add_clusters_command(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("clusters", "List the clusters, or show one")
      .positional("cluster", options->name, "preset or cluster file")
      .flag("--json", options->json, "print the result for programs; of one cluster, its file")
      .flag("--schema", options->schema, "print the JSON Schema of cluster files")
      .examples(
          "  meshplan clusters\n"
          "  meshplan clusters dgx-h100 --json > my-cluster.json")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
