#include "reports/calibration_report.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/units.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using program::CalibrationSamples;
using program::GpuDescription;
using program::GpuPeer;

/// How the driver says that two GPUs are joined. NVLink has atomics, PCIe has not.
std::string way_to(const GpuPeer& peer) {
  if (!peer.access) return "host memory";
  return peer.native_atomics ? "NVLink" : "PCIe";
}

std::string peers_of(const GpuDescription& gpu) {
  std::map<std::string, int> ways;
  for (const GpuPeer& peer : gpu.peers) ++ways[way_to(peer)];
  std::string text;
  for (const auto& [way, count] : ways)
    text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", count, way);
  return text.empty() ? "none" : text;
}

std::string gpus(const CalibrationSamples& job) {
  Table table{.columns = {{"rank"},
                          {"GPU", Align::Left},
                          {"SMs"},
                          {"GiB"},
                          {"bus", Align::Left},
                          {"slot", Align::Left},
                          {"NUMA node"},
                          {"other GPUs", Align::Left}},
              .rows = {}};
  for (std::size_t rank = 0; rank < job.gpus.size(); ++rank) {
    const GpuDescription& gpu = job.gpus[rank];
    table.rows.push_back({std::to_string(rank), gpu.name, std::to_string(gpu.num_units),
                          fmt::format("{:.1f}", gpu.memory_bytes / kGib), gpu.pci_bus,
                          gpu.pci_link.empty() ? "not known" : gpu.pci_link,
                          gpu.numa_node ? std::to_string(*gpu.numa_node) : "-", peers_of(gpu)});
  }
  return to_text(table);
}

std::string copies(const CalibrationSamples& job) {
  Table table{.columns = {{"copy", Align::Left}, {"bytes"}, {"us"}, {"GB/s"}}, .rows = {}};
  for (const program::CopySample& copy : job.copies)
    table.rows.push_back(
        {copy.kind, grouped(copy.bytes), fmt::format("{:.1f}", 1e6 * copy.seconds),
         fmt::format("{:.1f}", 1e-9 * static_cast<double>(copy.bytes) / copy.seconds)});
  return to_text(table);
}

std::string links(const CalibrationSamples& job) {
  std::map<std::pair<int, int>, const program::LinkSample*> largest;
  for (const program::LinkSample& link : job.links) {
    const program::LinkSample*& entry = largest[{link.from, link.to}];
    if (entry == nullptr || entry->bytes < link.bytes) entry = &link;
  }
  Table table{.columns = {{"from"}, {"to"}, {"bytes"}, {"GB/s one way"}}, .rows = {}};
  for (const auto& [pair, link] : largest)
    if (link->seconds > 0)
      table.rows.push_back(
          {std::to_string(pair.first), std::to_string(pair.second), grouped(link->bytes),
           fmt::format("{:.1f}", 1e-9 * static_cast<double>(link->bytes) / link->seconds)});
  return table.rows.empty() ? "" : fmt::format("\n{}", to_text(table));
}

}  // namespace

std::string gpu_text(const CalibrationSamples& job) {
  if (job.gpus.empty()) return "";
  return fmt::format(
      "\n{}\n{}\nan operation: {:.2f} us in a graph, {:.2f} us launched by itself; the "
      "host needs {:.2f} us\n{}",
      gpus(job), copies(job), 1e6 * job.launch.device_seconds, 1e6 * job.launch.queued_seconds,
      1e6 * job.launch.host_seconds, links(job));
}

std::string quietness_text(const std::vector<program::CalibrationSamples>& jobs) {
  program::Quietness sum;
  double busiest = 0, reference_spread = 0;
  program::Quietness operators;  // of the job that timed them
  for (const CalibrationSamples& job : jobs) {
    sum.samples += job.quietness.samples;
    sum.disturbed += job.quietness.disturbed;
    sum.repeated_visits += job.quietness.repeated_visits;
    busiest = std::max(busiest, job.quietness.other_cores / job.cores);
    if (job.quietness.reference_p10_s > 0) operators = job.quietness;
    if (job.quietness.reference_p10_s > 0)
      reference_spread = job.quietness.reference_p50_s / job.quietness.reference_p10_s;
  }
  if (sum.samples == 0) return "";
  const double disturbed = static_cast<double>(sum.disturbed) / sum.samples;
  constexpr double kQuiet = 0.02;
  const char* verdict = disturbed < kQuiet && busiest < kQuiet ? "quiet"
                        : disturbed < 5 * kQuiet && busiest < 5 * kQuiet
                            ? "nearly quiet"
                            : "not quiet: prefer to calibrate with nothing else running";
  return fmt::format(
      "machine: {:.1f} % of {} timings disturbed, {} visits repeated; reference product p50/p10 "
      "{:.2f}; other processes used {:.0f} % of the cores: {}\n"
      "noise: {:.1f} % on top of undisturbed times of one rank alone, {:.1f} % of all at once; "
      "predictions include it\n",
      100 * disturbed, grouped(sum.samples), grouped(sum.repeated_visits), reference_spread,
      100 * busiest, verdict, 100 * operators.noise, 100 * operators.noise_busy);
}

}  // namespace meshplan::reports
