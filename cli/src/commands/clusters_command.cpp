// meshplan clusters: the presets, one cluster in detail, or one made from another tool's file.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>

#include "commands/commands.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "options/inputs.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "reports/catalog_report.hpp"
#include "sim/clusters/catalog.hpp"
#include "sim/import/import.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::cli {
namespace {

struct ClustersOptions {
  std::optional<std::string> cluster;  // or the first word, or "import"
  std::optional<std::string> format;   // or the second word
  std::optional<std::string> file;     // or the third word
  std::optional<std::string> base;
  std::optional<std::string> collective;
  std::optional<int> nodes;
  std::optional<std::string> out;
  bool json = false;
  bool schema = false;
};

std::string one_cluster(const std::string& name, bool json) {
  const sim::Cluster cluster = load_cluster(name);
  return json ? sim::to_json(cluster) : reports::cluster_text(cluster);
}

std::string clusters_with(const std::vector<std::string>& words, bool json) {
  std::vector<sim::Cluster> presets;
  for (const std::string& name : sim::presets_with(words))
    presets.push_back(sim::load_cluster_preset(name));
  return json ? reports::clusters_json(presets) : reports::clusters_text(presets);
}

int import(const ClustersOptions& options) {
  if (!options.format || !options.file)
    throw ConfigError(
        fmt::format("what to import? usage: meshplan clusters import FORMAT FILE; formats: {}",
                    fmt::join(sim::cluster_formats(), ", ")));
  require_writable({options.out});
  sim::ImportedCluster imported = sim::import_cluster({.format = *options.format,
                                                       .text = read_file(*options.file),
                                                       .file = *options.file,
                                                       .base = options.base,
                                                       .collective = options.collective});
  if (options.nodes) {
    const int per_node = imported.cluster.devices_per_node;
    const std::int64_t most = limits::kRanks / per_node;
    if (*options.nodes < 1 || *options.nodes > most)
      throw ConfigError(fmt::format("--nodes {}: expected 1 to {} nodes of {} ranks",
                                    *options.nodes, most, per_node));
    imported.cluster = sim::with_ranks(imported.cluster, *options.nodes * per_node);
  }
  if (options.out) write_file(*options.out, sim::to_json(imported.cluster));
  if (options.json) {
    output("{}", sim::to_json(imported.cluster));
    return kDone;
  }
  for (const std::string& assumption : imported.assumptions) output("assumed  {}\n", assumption);
  output("{}", reports::cluster_text(imported.cluster));
  return kDone;
}

int run(const ClustersOptions& options) {
  if (options.schema) {
    output("{}", sim::cluster_schema());
    return kDone;
  }
  if (options.cluster == "import") return import(options);
  std::vector<std::string> words;
  for (const auto& word : {options.cluster, options.format, options.file})
    if (word) words.push_back(*word);
  const bool one = words.size() == 1 && names_cluster(words.front());
  output("{}", one ? one_cluster(words.front(), options.json) : clusters_with(words, options.json));
  return kDone;
}

}  // namespace

void add_clusters_command(CommandLine& line) {
  const auto options = std::make_shared<ClustersOptions>();
  std::vector<std::string> first_words = sim::cluster_names();
  first_words.emplace_back("import");
  Command command = line.add("clusters", "List the clusters, search them, show or import one");
  command
      .positional("cluster", options->cluster,
                  "name of a preset or of what is rented, or cluster file; or a word to search by "
                  "(h100, aws, mi300x); or: import")
      .suggests(first_words)
      .takes_file()
      .positional(
          "format", options->format,
          fmt::format("of an import: {}; or another word", fmt::join(sim::cluster_formats(), ", ")))
      .suggests(sim::cluster_formats())
      .positional("file", options->file, "to import; or another word")
      .is_path()
      .group("import")
      .option("--base", options->base, "preset that says what the file does not")
      .suggests(sim::cluster_names())
      .option("--collective", options->collective, "of an nccl-tests file that does not name it")
      .option("--nodes", options->nodes, "machines like the one described")
      .option("-o,--out", options->out, "write the cluster to this file")
      .is_path()
      .group("ClustersOptions")
      .flag("--json", options->json, "print the result for programs; of one cluster, its file")
      .flag("--schema", options->schema, "print the JSON Schema of cluster files")
      .examples(
          "  meshplan clusters\n"
          "  meshplan clusters h100\n"
          "  meshplan clusters p5.48xlarge\n"
          "  meshplan clusters dgx-h100 --json > my-cluster.json\n"
          "  meshplan clusters import nccl-topology topo.xml --nodes 16 --out cluster.json")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
