// The matrix that `nvidia-smi topo -m` prints: how each GPU reaches each other one. Columns vary
// with the driver, so they are found by their titles.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/words.hpp"
#include "import/import_formats.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

bool is_gpu(std::string_view word) {
  return word.starts_with("GPU") && word.size() > 3 &&
         word.find_first_not_of("0123456789", 3) == std::string_view::npos;
}
bool is_card(std::string_view word) {
  return word.starts_with("NIC") || word.starts_with("mlx") || word.starts_with("bnxt");
}

/// Without the terminal's colours.
std::string plain(std::string line) {
  for (std::size_t begin = line.find('\x1b'); begin != std::string::npos; begin = line.find('\x1b'))
    line.erase(begin, std::min(line.find('m', begin), line.size() - 1) - begin + 1);
  return line;
}

struct LinkMatrix {
  int gpus = 0;
  int cards = 0;
  std::vector<std::vector<std::string>> cells;  // GPU rows and columns
};

LinkMatrix matrix_of(const ImportRequest& request) {
  std::istringstream lines(request.text);
  LinkMatrix matrix;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = words_of(plain(line));
    if (words.empty() || !is_gpu(words.front())) continue;
    if (matrix.gpus == 0) {  // titles: GPU0 GPU1 ... NIC0 ... CPU Affinity
      matrix.gpus = static_cast<int>(std::ranges::count_if(words, is_gpu));
      matrix.cards = static_cast<int>(std::ranges::count_if(words, is_card));
      continue;
    }
    if (static_cast<int>(words.size()) <= matrix.gpus)
      throw ConfigError(fmt::format("{}: line {}: {} cells behind {}, expected {}", request.file,
                                    number, words.size() - 1, words.front(), matrix.gpus));
    matrix.cells.emplace_back(words.begin() + 1, words.begin() + 1 + matrix.gpus);
  }
  if (matrix.gpus == 0 || static_cast<int>(matrix.cells.size()) != matrix.gpus)
    throw ConfigError(
        fmt::format("{}: {} rows for {} columns GPU0, GPU1, ...; expected the matrix "
                    "that `nvidia-smi topo -m` prints",
                    request.file, matrix.cells.size(), matrix.gpus));
  return matrix;
}

/// NVLinks of "NV12"; 0 for a path over PCI or between sockets.
int links_of(const std::string& cell, int row, int column, const std::string& file) {
  constexpr int kMostNvLinks = 1024;
  static const std::vector<std::string> kPaths{"SYS", "NODE", "PHB", "PXB", "PIX"};
  if (cell == "X" && row == column) return 0;
  if (std::ranges::find(kPaths, cell) != kPaths.end() && row != column) return 0;
  const auto links = cell.starts_with("NV") && row != column
                         ? parse_integer(std::string_view(cell).substr(2), 1, kMostNvLinks)
                         : std::nullopt;
  if (links) return *links;
  throw ConfigError(fmt::format("{}: GPU{}, GPU{}: '{}': expected {}", file, row, column, cell,
                                row == column
                                    ? "X on the diagonal"
                                    : fmt::format("NV<links> with 1 to {} links, or one of {}",
                                                  kMostNvLinks, fmt::join(kPaths, ", "))));
}

}  // namespace

ImportedCluster import_nvidia_smi(const ImportRequest& request) {
  const LinkMatrix matrix = matrix_of(request);
  const std::string base_name = request.base.value_or("dgx-h100");
  const Cluster base = load_cluster_preset(base_name);
  int most = 0, sum = 0;
  bool all = matrix.gpus > 1;
  for (int row = 0; row < matrix.gpus; ++row)
    for (int column = 0; column < matrix.gpus; ++column) {
      const auto r = static_cast<std::size_t>(row), c = static_cast<std::size_t>(column);
      const int links = links_of(matrix.cells[r][c], row, column, request.file);
      if (row == column) continue;
      all = all && links > 0;
      most = std::max(most, links);
      if (row == 0) sum += links;
    }
  ImportedCluster imported;
  imported.assumptions.push_back(
      fmt::format("device, latencies, protocols and network cards of preset {}{}", base_name,
                  request.base ? "" : " (the matrix does not name the GPU; --base says another)"));
  NodeFabric fabric{.ranks = matrix.gpus};
  if (all) {
    // Behind a switch every pair shows all links of a GPU; wired directly, each pair shows its own.
    constexpr int kFewestBehindSwitch = 6;
    const int links = most >= kFewestBehindSwitch ? most : sum;
    fabric.link_name = "nvlink";
    fabric.link_gb_per_s = links * nvlink_gb_per_s(capability_of(base.device.architecture));
    imported.assumptions.push_back(
        fmt::format("{} NVLinks a GPU, {} GB/s as NCCL rates them", links, fabric.link_gb_per_s));
  } else {
    constexpr double kPcie4x16 = 24;  // GB/s, as NCCL rates it (src/graph/topo.cc)
    fabric.link_name = "pcie";
    fabric.link_gb_per_s = kPcie4x16;
    imported.assumptions.push_back(
        fmt::format("24 GB/s over PCIe 4 with 16 lanes, as NCCL rates it{}",
                    most > 0 ? ": NVLinks of some pairs only are left out" : ""));
  }
  if (matrix.cards > 0 && base.fabric.size() > 1) {
    fabric.network_gb_per_s = base.fabric.back().link_gb_per_s;
    fabric.ranks_per_card = std::max(1, matrix.gpus / std::min(matrix.gpus, matrix.cards));
  }
  imported.cluster = cluster_of_nodes(base, fabric);
  imported.cluster.name = "nvidia-smi";
  return imported;
}

}  // namespace meshplan::sim
