// System descriptions of other performance models: Calculon's JSON (calculon/system.py) and
// ASTRA-sim's analytical network YAML (its four keys, each a list in brackets).
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <sstream>
#include <string_view>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "import/import_formats.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

constexpr double kSmallest = 1e-12;  // of what must be positive, as in cluster files
constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kMicrosecondsPerNanosecond = 1e-3;

/// A value inside a file, with the words of a user's path to it.
class Place {
 public:
  Place(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  Place operator[](const char* key) const {
    if (!has(key)) fail(fmt::format("no key '{}'", key));
    return {value_->at(key), file_, path_.empty() ? key : fmt::format("{}.{}", path_, key)};
  }
  std::vector<Place> items() const {
    if (!value_->is_array() || value_->empty()) fail("expected a list that is not empty");
    std::vector<Place> all;
    for (std::size_t i = 0; i < value_->size(); ++i)
      all.emplace_back(value_->at(i), file_, fmt::format("{}[{}]", path_, i));
    return all;
  }
  double positive(double most = limits::kRate) const {
    const double number = value_->is_number() ? value_->get<double>() : 0;
    if (!(number >= kSmallest && number <= most))
      fail(fmt::format("{}: expected a number above 0, at most {}", quoted(*value_), most));
    return number;
  }
  int whole(std::int64_t most) const {
    const double number = positive(static_cast<double>(most));
    if (number != std::floor(number))
      fail(fmt::format("{}: expected a whole number of at least 1", quoted(*value_)));
    return static_cast<int>(number);
  }
  /// Every key must be one of these. @throws ConfigError with the nearest
  void only(const std::vector<std::string>& known) const {
    if (!value_->is_object()) fail(fmt::format("{}: expected an object", quoted(*value_)));
    for (const auto& [key, value] : value_->items())
      if (std::ranges::find(known, key) == known.end())
        fail(unknown_name_message("key", key, known));
  }
  double number_or(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    const Json& number = value_->at(key);
    const double given = number.is_number() ? number.get<double>() : -1;
    if (!(given >= 0 && given <= limits::kSeconds))
      (*this)[key].fail(
          fmt::format("{}: expected a number from 0 to {}", quoted(number), limits::kSeconds));
    return given;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(
        fmt::format("{}: {}: {}", file_, path_.empty() ? "the whole file" : path_, what));
  }

 private:
  const Json* value_;
  std::string file_;
  std::string path_;
};

/// The best of "[[size, efficiency], ...]", of float16 where it is by dtype.
double best_efficiency(const Place& table) {
  const Place list = table.has("float16") ? table["float16"] : table;
  double best = 0;
  for (const Place& entry : list.items()) {
    const auto pair = entry.items();
    if (pair.size() != 2) entry.fail("expected [size, efficiency]");
    best = std::max(best, pair[1].positive(1));
  }
  return best;
}

// ------------------------------------------------------------ ASTRA-sim

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

struct Entry {
  int line = 0;
  std::vector<std::string> words;
};

/// "key: [ a, b ]  # comment" of each line.
std::map<std::string, Entry> entries_of(const ImportRequest& request) {
  std::istringstream lines(request.text);
  std::map<std::string, Entry> entries;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty() || line == "---") continue;
    const auto colon = line.find(':'), open = line.find('['), close = line.find(']');
    if (colon == std::string::npos || open == std::string::npos || close == std::string::npos ||
        close < open)
      throw ConfigError(fmt::format("{}: line {}: '{}': expected KEY: [ VALUE, ... ]", request.file,
                                    number, line));
    Entry entry{.line = number, .words = {}};
    std::istringstream words(line.substr(open + 1, close - open - 1));
    for (std::string word; std::getline(words, word, ',');) entry.words.push_back(trimmed(word));
    const std::string key = trimmed(line.substr(0, colon));
    static const std::vector<std::string> kKeys{"bandwidth", "latency", "npus_count", "topology"};
    if (std::ranges::find(kKeys, key) == kKeys.end())
      throw ConfigError(fmt::format("{}: line {}: {}", request.file, number,
                                    unknown_name_message("key", key, kKeys)));
    if (entry.words.empty())
      throw ConfigError(
          fmt::format("{}: line {}: {}: expected at least one value", request.file, number, key));
    if (!entries.emplace(key, std::move(entry)).second)
      throw ConfigError(
          fmt::format("{}: line {}: the key '{}' appears twice", request.file, number, key));
  }
  return entries;
}

const Entry& entry_of(const std::map<std::string, Entry>& entries, std::string_view key,
                      std::size_t dimensions, const std::string& file) {
  const auto found = entries.find(std::string(key));
  if (found == entries.end())
    throw ConfigError(
        fmt::format("{}: no key '{}'; topology, npus_count, bandwidth and latency "
                    "are expected",
                    file, key));
  if (dimensions > 0 && found->second.words.size() != dimensions)
    throw ConfigError(fmt::format("{}: line {}: {}: {} values, but topology has {}", file,
                                  found->second.line, key, found->second.words.size(), dimensions));
  return found->second;
}

double number_of(const Entry& entry, std::size_t i, const std::string& key,
                 const std::string& file) {
  const std::string& word = entry.words[i];
  const auto value = parse_number(word, 0, limits::kRate);
  if (!value)
    throw ConfigError(fmt::format("{}: line {}: {}[{}]: '{}': expected a number from 0 to {}", file,
                                  entry.line, key, i, word, limits::kRate));
  return *value;
}

void keep_one_node(Cluster& cluster, std::int64_t ranks_of_node, std::int64_t ranks) {
  cluster.devices_per_node = static_cast<int>(ranks_of_node);
  cluster.num_nodes = static_cast<int>(std::max<std::int64_t>(1, ranks / ranks_of_node));
  cluster.operators.clear();
  cluster.collectives.clear();
}

}  // namespace

ImportedCluster import_calculon(const ImportRequest& request) {
  const Json json = parse_json(request.text, request.file);
  const Place root(json, request.file, "");
  const std::string base = request.base.value_or("dgx-a100");
  ImportedCluster imported{.cluster = load_cluster_preset(base), .assumptions = {}};
  Cluster& cluster = imported.cluster;
  cluster.name = "calculon";
  Device& device = cluster.device;
  device.name = "of a Calculon system";
  const Place matrix = root["matrix"];
  const Place half = matrix.has("float16") ? matrix["float16"] : matrix;
  device.peak_tflop_per_s = {{"bf16", half["tflops"].positive()},
                             {"fp16", half["tflops"].positive()}};
  device.efficiency.gemm = best_efficiency(half["gflops_efficiency"]);
  device.memory_gib = root["mem1"]["GiB"].positive();
  device.memory_gb_per_s = root["mem1"]["GBps"].positive();
  device.efficiency.memory = best_efficiency(root["mem1"]["MB_efficiency"]);
  cluster.fabric.clear();
  const auto networks = root["networks"].items();
  int inner = 0;
  for (std::size_t i = 0; i < networks.size(); ++i) {
    const Place& network = networks[i];
    network.only(
        {"bandwidth", "efficiency", "latency", "must_be_filled", "ops", "processor_usage", "size"});
    const bool last = i + 1 == networks.size();
    const int size = network["size"].whole(limits::kRanks);
    if (inner == 0) inner = size;
    cluster.fabric.push_back(
        {.name = fmt::format("network-{}", i),
         .ranks_per_group = last ? 0 : size,
         .latency_us = network.number_or("latency", 0) * kMicrosecondsPerSecond,
         .link_gb_per_s = network["bandwidth"].positive() * network["efficiency"].positive(1)});
    cluster.communication.device_share =
        i == 0 ? network.number_or("processor_usage", 0) : cluster.communication.device_share;
  }
  cluster.communication.protocols = {Protocol{}};
  keep_one_node(cluster, inner, inner);
  imported.assumptions = {
      fmt::format("SMs, launch times, attention and overhead of a step of preset {}", base),
      "efficiencies by size become their best one; small work is slowed by this cost model's own "
      "rules",
      "scalars of collectives (ops) are left out: its algorithms are priced instead"};
  return imported;
}

ImportedCluster import_astra_sim(const ImportRequest& request) {
  const auto entries = entries_of(request);
  const Entry& topology = entry_of(entries, "topology", 0, request.file);
  const std::size_t dimensions = topology.words.size();
  const std::vector<std::string> known{"FullyConnected", "Ring", "Switch"};
  for (std::size_t i = 0; i < dimensions; ++i)
    if (std::ranges::find(known, topology.words[i]) == known.end())
      throw ConfigError(
          fmt::format("{}: line {}: topology[{}]: {}", request.file, topology.line, i,
                      unknown_name_message("building block", topology.words[i], known)));
  const Entry& counts = entry_of(entries, "npus_count", dimensions, request.file);
  const Entry& bandwidth = entry_of(entries, "bandwidth", dimensions, request.file);
  const Entry& latency = entry_of(entries, "latency", dimensions, request.file);
  const std::string base = request.base.value_or("dgx-h100");
  ImportedCluster imported{.cluster = load_cluster_preset(base), .assumptions = {}};
  Cluster& cluster = imported.cluster;
  cluster.name = "astra-sim";
  cluster.fabric.clear();
  std::int64_t ranks = 1, first = 0;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const double count = number_of(counts, i, "npus_count", request.file);
    if (count < 1 || count != std::floor(count))
      throw ConfigError(
          fmt::format("{}: line {}: npus_count[{}]: '{}': expected a whole number of "
                      "at least 1",
                      request.file, counts.line, i, counts.words[i]));
    ranks *= static_cast<std::int64_t>(count);
    if (ranks > limits::kRanks)
      throw ConfigError(fmt::format("{}: line {}: npus_count: {} NPUs up to [{}]; at most {}",
                                    request.file, counts.line, ranks, i, limits::kRanks));
    if (first == 0) first = ranks;
    if (count == 1 && dimensions > 1) continue;  // a dimension that connects nothing
    cluster.fabric.push_back(
        {.name = fmt::format("{}-{}", topology.words[i], i),
         .ranks_per_group = static_cast<int>(ranks),
         .latency_us = number_of(latency, i, "latency", request.file) * kMicrosecondsPerNanosecond,
         .link_gb_per_s = number_of(bandwidth, i, "bandwidth", request.file)});
  }
  if (!cluster.fabric.empty()) cluster.fabric.back().ranks_per_group = 0;
  keep_one_node(cluster, first, ranks);
  imported.assumptions = {
      fmt::format("device, launch times and protocols of preset {}{}", base,
                  request.base ? "" : " (the file describes a network only; --base says another)"),
      "a dimension's bandwidth is what one NPU sends at once"};
  return imported;
}

}  // namespace meshplan::sim
