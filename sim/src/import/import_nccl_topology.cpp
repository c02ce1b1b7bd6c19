// NCCL's topology of one machine (NCCL_TOPO_DUMP_FILE; written by src/graph/xml.cc): cpus, PCI
// switches, GPUs with their NVLinks, network cards.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "import/import_formats.hpp"
#include "sim/stacks/cluster_preset.hpp"
#if MESHPLAN_PUGIXML
#include <pugixml.hpp>
#endif

namespace meshplan::sim {
#if MESHPLAN_PUGIXML
namespace {

constexpr double kMegabitsPerGigabyte = 8000;
constexpr double kProtocolShare = 0.96;  // of the line rate, as in the presets

struct Gpu {
  int capability = 0;
  int nvlinks = 0;
  double pci_gb_per_s = 0;
};

struct Machine {
  std::vector<Gpu> gpus;
  std::vector<double> cards_gb_per_s;
};

/// Where an element stands: "system/cpu/pci[busid=0000:01:00.0]/gpu".
std::string place_of(const pugi::xml_node& node) {
  if (!node.parent() || node.type() != pugi::node_element) return "";
  const std::string parent = place_of(node.parent());
  const std::string busid = node.attribute("busid").value();
  return fmt::format("{}{}{}{}", parent, parent.empty() ? "" : "/", node.name(),
                     busid.empty() ? "" : fmt::format("[busid={}]", busid));
}

double number_of(const pugi::xml_node& node, const char* name, double low, double high,
                 const std::string& file) {
  const std::string_view text = node.attribute(name).value();
  const auto value = parse_number(text, low, high);
  if (!value)
    throw ConfigError(fmt::format("{}: {}: attribute {}=\"{}\": expected a number from {} to {}",
                                  file, place_of(node), name, text, low, high));
  return *value;
}

/// NCCL's speeds of a PCI lane in 100 Mb/s steps, by what the kernel calls the generation
/// (src/graph/topo.cc, kvDictPciGen); times lanes / 80 gives GB/s.
double pci_gb_per_s(const pugi::xml_node& pci, const std::string& file) {
  struct Generation {
    std::string_view rate;
    double speed;
  };
  constexpr std::array<Generation, 6> kGenerations{
      {{"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}}};
  std::string_view text = pci.attribute("link_speed").value();
  text = text.substr(0, text.find(' '));
  if (text.ends_with(".0")) text.remove_suffix(2);
  constexpr double kUsualLanes = 16, kMostLanes = 64;
  const bool known = !pci.attribute("link_width").empty();
  const double lanes = known ? number_of(pci, "link_width", 1, kMostLanes, file) : kUsualLanes;
  for (const Generation& generation : kGenerations)
    if (generation.rate == text) return generation.speed * lanes / 80;
  return 60 * lanes / 80;  // NCCL's own default: generation 3
}

constexpr int kDeepest = 64;  // elements in one another: a walk over them recurses
constexpr double kNewestCapability = 1000;
constexpr double kMostLinks = 1024;  // between one GPU and one of its neighbours

void read(const pugi::xml_node& node, const pugi::xml_node* pci, int depth, const std::string& file,
          Machine& machine) {
  if (depth > kDeepest)
    throw ConfigError(fmt::format("{}: nested deeper than {} elements", file, kDeepest));
  for (const pugi::xml_node& child : node.children()) {
    const std::string_view name = child.name();
    if (name == "gpu") {
      Gpu gpu{.capability = static_cast<int>(number_of(child, "sm", 1, kNewestCapability, file))};
      for (const pugi::xml_node& link : child.children("nvlink"))
        gpu.nvlinks += static_cast<int>(number_of(link, "count", 1, kMostLinks, file));
      if (pci != nullptr) gpu.pci_gb_per_s = pci_gb_per_s(*pci, file);
      machine.gpus.push_back(gpu);
    } else if (name == "net") {
      machine.cards_gb_per_s.push_back(number_of(child, "speed", 0, limits::kRate, file) /
                                       kMegabitsPerGigabyte);
    } else {
      read(child, name == "pci" ? &child : pci, depth + 1, file, machine);
    }
  }
}

}  // namespace

ImportedCluster import_nccl_topology(const ImportRequest& request) {
  pugi::xml_document document;
  const auto parsed = document.load_buffer(request.text.data(), request.text.size());
  if (!parsed)
    throw ConfigError(
        fmt::format("{}: byte {}: not XML: {}", request.file, parsed.offset, parsed.description()));
  const pugi::xml_node system = document.child("system");
  if (!system)
    throw ConfigError(fmt::format("{}: <{}>: expected <system>, as NCCL_TOPO_DUMP_FILE writes it",
                                  request.file, document.first_child().name()));
  Machine machine;
  read(system, nullptr, 0, request.file, machine);
  if (machine.gpus.empty())
    throw ConfigError(fmt::format("{}: system: no <gpu> in it", request.file));
  const Gpu& gpu = machine.gpus.front();
  for (const Gpu& other : machine.gpus)
    if (other.capability != gpu.capability)
      throw ConfigError(fmt::format("{}: gpus of compute capability {} and {}; one is expected",
                                    request.file, gpu.capability, other.capability));
  const std::string base = request.base.value_or(preset_of_capability(gpu.capability));
  NodeFabric fabric{.ranks = static_cast<int>(machine.gpus.size())};
  fabric.link_name = gpu.nvlinks > 0 ? "nvlink" : "pcie";
  fabric.link_gb_per_s =
      gpu.nvlinks > 0 ? gpu.nvlinks * nvlink_gb_per_s(gpu.capability) : gpu.pci_gb_per_s;
  if (fabric.link_gb_per_s <= 0) fabric.link_gb_per_s = 12;  // NCCL: PCIe 3 with 16 lanes
  const auto& cards = machine.cards_gb_per_s;
  if (!cards.empty() && *std::ranges::min_element(cards) > 0) {
    fabric.network_gb_per_s = *std::ranges::min_element(cards) * kProtocolShare;
    fabric.ranks_per_card =
        std::max(1, fabric.ranks / static_cast<int>(std::min(cards.size(), machine.gpus.size())));
  }
  ImportedCluster imported{.cluster = cluster_of_nodes(load_cluster_preset(base), fabric),
                           .assumptions = {}};
  imported.cluster.name = "nccl-topology";
  imported.assumptions = {
      fmt::format("device, latencies and protocols of preset {}", base),
      fmt::format("{} GB/s from a GPU to the others: {}", fabric.link_gb_per_s,
                  gpu.nvlinks > 0 ? fmt::format("{} NVLinks as NCCL rates them", gpu.nvlinks)
                                  : std::string("its PCI lanes as NCCL rates them"))};
  if (fabric.network_gb_per_s <= 0)
    imported.assumptions.emplace_back("no network cards: one machine only");
  return imported;
}

#else

ImportedCluster import_nccl_topology(const ImportRequest& request) {
  throw ConfigError(
      fmt::format("{}: this meshplan was built without pugixml and reads no XML; "
                  "install libpugixml-dev and build again",
                  request.file));
}

#endif
}  // namespace meshplan::sim
