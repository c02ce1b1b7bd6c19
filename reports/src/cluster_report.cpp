#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "reports/catalog_report.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using sim::Cluster;

std::string fabric_text(const Cluster& cluster) {
  std::string text;
  for (const sim::FabricLevel& level : cluster.fabric)
    text +=
        fmt::format("{}{} {:g} GB/s", text.empty() ? "" : ", ", level.name, level.link_gb_per_s);
  return text;
}

std::string peak_text(const Cluster& cluster, const std::string& dtype) {
  const auto found = cluster.device.peak_tflop_per_s.find(dtype);
  return found == cluster.device.peak_tflop_per_s.end() ? "-" : fmt::format("{:g}", found->second);
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
        {level.name + where,
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
  Table table{.columns = {{"cluster", Align::Left},
                          {"ranks"},
                          {"device", Align::Left},
                          {"bf16 TFLOP/s"},
                          {"fp32 TFLOP/s"},
                          {"GiB"},
                          {"fabric", Align::Left}}};
  for (const Cluster& cluster : clusters)
    table.rows.push_back(
        {cluster.name, fmt::format("{} x {}", cluster.num_nodes, cluster.devices_per_node),
         cluster.device.name, peak_text(cluster, "bf16"), peak_text(cluster, "fp32"),
         fmt::format("{:g}", cluster.device.memory_gib), fabric_text(cluster)});
  return to_text(table);
}

std::string clusters_json(const std::vector<Cluster>& clusters) {
  Json list = Json::array();
  for (const Cluster& cluster : clusters) list.push_back(Json::parse(sim::to_json(cluster)));
  return Json{{"schema_version", 1}, {"clusters", std::move(list)}}.dump(2) + "\n";
}

std::string cluster_text(const Cluster& cluster) {
  std::string text = cluster_line(cluster) + "\n\n";
  for (int type = 0; type < sim::num_node_types(cluster); ++type)
    text += to_text(device_table(sim::device_of(cluster, type)), 2) + "\n";
  text += to_text(fabric_table(cluster), 2);
  text += fmt::format("\n  measured: {} operators, {} collectives{}\n", cluster.operators.size(),
                      cluster.collectives.size(),
                      cluster.operators.empty() ? " (data sheet values only)" : "");
  return text;
}

}  // namespace meshplan::reports
