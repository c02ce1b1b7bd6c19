// The table that nccl-tests print (src/common.cu): one line a message size with the time out of
// place and in place, below comments that list the ranks.
#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "core/units.hpp"
#include "core/words.hpp"
#include "import/import_formats.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

struct Line {
  std::int64_t bytes = 0;
  double seconds = 0;  // out of place
};

struct Table {
  std::string collective;  // "all_reduce"; empty = not named
  int ranks = 0;
  std::set<std::string> hosts;
  std::vector<Line> lines;
};

const std::vector<std::string>& collectives() {
  static const std::vector<std::string> kNames{"all_reduce", "all_gather", "reduce_scatter",
                                               "all_to_all", "broadcast",  "point_to_point"};
  return kNames;
}

/// "all_reduce_perf", "alltoall_perf", "sendrecv": as this project calls them.
std::optional<std::string> collective_of(std::string name) {
  if (name.ends_with("_perf")) name.resize(name.size() - 5);
  if (name == "alltoall") name = "all_to_all";
  if (name == "sendrecv" || name == "send_recv") name = "point_to_point";
  const auto& known = collectives();
  return std::ranges::find(known, name) == known.end() ? std::nullopt : std::optional(name);
}

void read_comment(const std::vector<std::string>& words, Table& table) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (const auto name = collective_of(words[i]); name && words[i].ends_with("_perf"))
      table.collective = *name;
    // "#  Rank  0 Group  0 Pid 4711 on node01 device  0 [0x1b] NVIDIA H100 80GB HBM3"
    if (words[i] == "on" && i + 1 < words.size() && words.size() > 1 && words[1] == "Rank") {
      ++table.ranks;
      table.hosts.insert(words[i + 1]);
    }
  }
}

double number_of(const std::string& word, int line, double low, double high, const char* what,
                 const std::string& file) {
  const auto value = parse_number(word, low, high);
  if (!value)
    throw ConfigError(
        fmt::format("{}: line {}: '{}': expected {}, {} to {}", file, line, word, what, low, high));
  return *value;
}

Table table_of(const ImportRequest& request) {
  constexpr std::size_t kTimeColumn = 5;  // size, count, type, redop, root, time, ...
  std::istringstream lines(request.text);
  Table table;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (words.front().starts_with("#")) {
      read_comment(words, table);
      continue;
    }
    if (words.front().find_first_not_of("0123456789") != std::string::npos) continue;  // log lines
    if (words.size() <= kTimeColumn)
      throw ConfigError(
          fmt::format("{}: line {}: {} columns; expected size, count, type, redop, "
                      "root, time, algbw, busbw, ...",
                      request.file, number, words.size()));
    const double bytes =
        number_of(words[0], number, 0, limits::kBytes, "a size in bytes", request.file);
    if (bytes == 0) continue;  // nothing was sent
    constexpr double kShortest = 1e-3;
    const double us = number_of(words[kTimeColumn], number, kShortest,
                                limits::kSeconds * kMicroseconds, "a time in us", request.file);
    table.lines.push_back({static_cast<std::int64_t>(bytes), us / kMicroseconds});
  }
  return table;
}

}  // namespace

ImportedCluster import_nccl_tests(const ImportRequest& request) {
  Table table = table_of(request);
  if (request.collective) {
    const auto given = collective_of(*request.collective);
    if (!given)
      throw ConfigError(unknown_name_message("collective", *request.collective, collectives()));
    table.collective = *given;
  }
  if (table.collective.empty())
    throw ConfigError(
        fmt::format("{}: no line names the collective; say --collective all_reduce "
                    "(or another one)",
                    request.file));
  if (table.lines.empty())
    throw ConfigError(fmt::format("{}: no line of the table that nccl-tests print", request.file));
  if (table.ranks < 2)
    throw ConfigError(
        fmt::format("{}: {} lines '#  Rank ... on HOST device ...'; at least 2 are "
                    "expected",
                    request.file, table.ranks));
  if (table.hosts.size() > 1)
    throw ConfigError(fmt::format("{}: ranks on {} hosts; curves of one host are expected",
                                  request.file, table.hosts.size()));
  const std::string base = request.base.value_or("dgx-h100");
  ImportedCluster imported{.cluster = load_cluster_preset(base), .assumptions = {}};
  imported.cluster.name = base + "-measured";
  std::map<std::int64_t, double> fastest;  // of a size that was timed several times
  for (const Line& line : table.lines) {
    // nccl-tests give an all-gather's size as what it gathers; ours is what one rank passes in.
    const std::int64_t bytes =
        table.collective == "all_gather" ? line.bytes / table.ranks : line.bytes;
    const auto [entry, fresh] = fastest.try_emplace(bytes, line.seconds);
    if (!fresh) entry->second = std::min(entry->second, line.seconds);
  }
  for (const auto& [bytes, seconds] : fastest)
    imported.cluster.collectives.push_back(
        {.op = table.collective,
         .group_size = table.collective == "point_to_point" ? 2 : table.ranks,
         .ranks_on_host = table.ranks,
         .bytes = bytes,
         .seconds = seconds});
  imported.assumptions.push_back(fmt::format(
      "everything but the {} sizes of {} over {} ranks of preset {}{}", fastest.size(),
      table.collective, table.ranks, base, request.base ? "" : " (--base says another)"));
  return imported;
}

}  // namespace meshplan::sim
