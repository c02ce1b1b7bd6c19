#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json_fields.hpp"
#include "reports/catalog_report.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using sim::Cluster;

bool is_in_node(const Cluster& cluster, std::size_t level) {
  const int ranks = cluster.fabric[level].ranks_per_group;
  return cluster.devices_per_node > 1 &&
         (level == 0 || (ranks > 0 && ranks <= cluster.devices_per_node));
}

/// GB/s of a device's share of the links, in the node or between nodes.
std::string links_text(const Cluster& cluster, bool in_node) {
  std::string text;
  for (std::size_t l = 0; l < cluster.fabric.size(); ++l) {
    if (is_in_node(cluster, l) != in_node) continue;
    const sim::FabricLevel& level = cluster.fabric[l];
    const double share = level.link_gb_per_s / level.ranks_per_link / level.oversubscription;
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", level.name, share);
    if (level.ranks_per_group > cluster.devices_per_node)
      text += fmt::format(" of {}", level.ranks_per_group);
  }
  return text.empty() ? "-" : text;
}

std::string peak_text(const Cluster& cluster, const std::string& dtype) {
  const auto found = cluster.device.peak_tflop_per_s.find(dtype);
  return found == cluster.device.peak_tflop_per_s.end() ? "-" : fmt::format("{:g}", found->second);
}

std::string vendor_of(const Cluster& cluster) {
  return cluster.about ? cluster.about->vendor : std::string("generic");
}

std::string price_text(const Cluster& cluster) {
  const bool listed = cluster.about && cluster.about->usd_per_device_hour;
  return listed ? fmt::format("{:.2f}", *cluster.about->usd_per_device_hour) : std::string("-");
}

/// The rows of one vendor. The title stands in the first column.
Table vendor_table(const std::vector<Cluster>& clusters, const std::string& vendor) {
  Table table{.columns = {{vendor, Align::Left},
                          {"device", Align::Left},
                          {"a node"},
                          {"GiB"},
                          {"bf16 TFLOP/s"},
                          {"in the node, GB/s", Align::Left},
                          {"between nodes, GB/s", Align::Left},
                          {"USD/h"},
                          {"rented as", Align::Left}}};
  for (const Cluster& cluster : clusters) {
    if (vendor_of(cluster) != vendor) continue;
    const bool named = cluster.about && !cluster.about->instances.empty();
    table.rows.push_back(
        {cluster.name, cluster.device.name, std::to_string(cluster.devices_per_node),
         fmt::format("{:g}", cluster.device.memory_gib), peak_text(cluster, "bf16"),
         links_text(cluster, true), links_text(cluster, false), price_text(cluster),
         named ? cluster.about->instances.front() : ""});
  }
  return table;
}

Table about_table(const sim::About& about) {
  Table table{.columns = {{"", Align::Left}, {"", Align::Left}}};
  table.rows.push_back({"vendor", about.vendor});
  if (!about.instances.empty())
    table.rows.push_back({"also", fmt::format("{}", fmt::join(about.instances, ", "))});
  if (about.usd_per_device_hour)
    table.rows.push_back({"price", fmt::format("{:.4g} USD a device and hour, {}",
                                               *about.usd_per_device_hour, about.price_of)});
  for (const std::string& source : about.sources) table.rows.push_back({"source", source});
  for (const std::string& assumption : about.assumed) table.rows.push_back({"assumed", assumption});
  return table;
}

Table device_table(const sim::Device& device) {
  Table table{.columns = {{"", Align::Left}, {"", Align::Left}}};
  std::string peaks;
  for (const auto& [dtype, tflop_per_s] : device.peak_tflop_per_s)
    peaks += fmt::format("{}{} {:g}", peaks.empty() ? "" : ", ", dtype, tflop_per_s);
  table.rows = {
      {"device",
       fmt::format("{} ({})", device.name, device.kind == sim::DeviceKind::Gpu ? "gpu" : "cpu")},
      {"peak", peaks + " TFLOP/s"},
      {"memory", fmt::format("{:g} GiB at {:g} GB/s", device.memory_gib, device.memory_gb_per_s)},
      {"units", fmt::format("{}, launch {:g} us, host issue {:g} us", device.num_units,
                            device.launch_us, device.host_issue_us)},
      {"reached",
       fmt::format("gemm {}, attention {} forward and {} backward, memory {} of peak",
                   percent(device.efficiency.gemm), percent(device.efficiency.attention_forward),
                   percent(device.efficiency.attention_backward),
                   percent(device.efficiency.memory))}};
  if (device.source) table.rows.push_back({"source", *device.source});
  return table;
}

Table fabric_table(const Cluster& cluster) {
  Table table{.columns = {{"fabric level", Align::Left},
                          {"ranks in a group"},
                          {"latency us"},
                          {"link GB/s"},
                          {"ranks a link"},
                          {"oversubscription"}}};
  const auto add = [&](const sim::FabricLevel& level, const std::string& where) {
    table.rows.push_back(
        {level.name + (level.full_mesh ? " (full mesh)" : "") + where,
         level.ranks_per_group == 0 ? "all" : std::to_string(level.ranks_per_group),
         fmt::format("{:g}", level.latency_us), fmt::format("{:g}", level.link_gb_per_s),
         std::to_string(level.ranks_per_link), fmt::format("{:g}", level.oversubscription)});
  };
  for (const sim::FabricLevel& level : cluster.fabric) add(level, "");
  for (const sim::OtherNodes& nodes : cluster.other_nodes)
    for (const sim::FabricLevel& level : nodes.inside)
      add(level, fmt::format(" (nodes of {})", nodes.device.name));
  return table;
}

}  // namespace

std::string clusters_text(const std::vector<Cluster>& clusters) {
  std::string text;
  std::vector<std::string> vendors;
  for (const Cluster& cluster : clusters) {
    const std::string vendor = vendor_of(cluster);
    if (std::ranges::find(vendors, vendor) != vendors.end()) continue;
    vendors.push_back(vendor);
    text += (text.empty() ? "" : "\n") + to_text(vendor_table(clusters, vendor));
  }
  return text;
}

std::string clusters_json(const std::vector<Cluster>& clusters) {
  Json list = Json::array();
  for (const Cluster& cluster : clusters) list.push_back(Json::parse(sim::to_json(cluster)));
  return Json{{"schema_version", 1}, {"clusters", std::move(list)}}.dump(2) + "\n";
}

std::string cluster_text(const Cluster& cluster) {
  std::string text = cluster_line(cluster) + "\n\n";
  if (cluster.about) text += to_text(about_table(*cluster.about), 2) + "\n";
  for (int type = 0; type < sim::num_node_types(cluster); ++type)
    text += to_text(device_table(sim::device_of(cluster, type)), 2) + "\n";
  text += to_text(fabric_table(cluster), 2);
  text += fmt::format("\n  measured: {} operators, {} collectives{}\n", cluster.operators.size(),
                      cluster.collectives.size(),
                      cluster.operators.empty() ? " (data sheet values only)" : "");
  const std::string untimed = untimed_text(cluster);
  if (!untimed.empty()) text += fmt::format("  {}\n", untimed);
  return text;
}

}  // namespace meshplan::reports
