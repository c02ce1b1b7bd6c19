// How much faster or slower a machine is than when it was calibrated, and what that explains.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "program/calibration/machine_speed.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::reports {

/// Time of the reference product over what it took at calibration, on as many cores at once
/// (linear between one and all); absent where either is not known.
std::optional<double> slowdown(const program::MachineSpeed& now, const sim::Cluster& calibrated);
/// The same for a plan's cluster, "" = none.
std::optional<double> slowdown(const program::MachineSpeed& now, std::string_view cluster_json);

/// predicted / measured - 1, where `measured_s` is what the steps would have taken at calibration's
/// speed: all of a step slows down as the reference product does.
double error_at_calibrated_speed(double predicted_s, double measured_s, double slowdown);

/// "4.2 % slower"
std::string change(double slowdown);

/// "other processes used 37 % of the cores that the ranks ran on"; empty if they left the ranks
/// enough.
std::string busy_cores(const program::MachineSpeed& machine);

}  // namespace meshplan::reports
