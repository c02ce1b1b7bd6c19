#include "reports/machine_drift.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace meshplan::reports {

std::optional<double> slowdown(const program::MachineSpeed& now, const sim::Cluster& calibrated) {
  const auto& [alone, busy] = calibrated.reference;
  if (now.reference_s <= 0 || alone <= 0) return std::nullopt;
  const double part = calibrated.cores_per_host > 1
                          ? static_cast<double>(now.reference_ranks - 1) /
                                static_cast<double>(calibrated.cores_per_host - 1)
                          : 0.0;
  const double then = busy > 0 ? alone + std::clamp(part, 0.0, 1.0) * (busy - alone) : alone;
  return now.reference_s / then;
}

std::optional<double> slowdown(const program::MachineSpeed& now, std::string_view cluster_json) {
  if (cluster_json.empty()) return std::nullopt;
  return slowdown(now, sim::parse_cluster(cluster_json, "the plan's cluster"));
}

double error_at_calibrated_speed(double predicted_s, double measured_s, double slowdown) {
  return predicted_s / (measured_s / slowdown) - 1;
}

std::string change(double slowdown) {
  return fmt::format("{:.1f} % {}", std::abs(slowdown - 1) * 100,
                     slowdown < 1 ? "faster" : "slower");
}

std::string busy_cores(const program::MachineSpeed& machine) {
  constexpr double kWorthSaying = 0.05;  // of the cores
  const double share = machine.cores > 0 ? machine.other_cores / machine.cores : 0;
  const double wanted = machine.ranks_on_host + machine.other_cores;
  if (share < kWorthSaying || wanted <= (1 + kWorthSaying / 2) * machine.cores) return {};
  return fmt::format("other processes used {:.0f} % of the cores that the ranks ran on",
                     share * 100);
}

}  // namespace meshplan::reports
