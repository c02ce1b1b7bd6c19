// From raw calibration samples to a cluster file. Pure: the runtime measures, this only fits.
#pragma once

#include <vector>

#include "program/calibration/calibration.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Seconds of a message of m bytes: latency + m / rate.
struct AlphaBeta {
  double latency_s = 0;
  double seconds_per_byte = 0;
  bool operator==(const AlphaBeta&) const = default;
};

/// One point of a message-size sweep.
struct TimedMessage {
  double bytes = 0;
  double seconds = 0;
};

/// Least squares of the relative error, so that 8 bytes count as much as 64 MiB; neither number is
/// negative. @throws InvariantError if there is no point or a time is not positive
AlphaBeta fit_alpha_beta(const std::vector<TimedMessage>& messages);

/// A CPU cluster that is as large as the largest job. The samples become the tables, which win
/// wherever they hold the very case; the formulas behind them are fitted for what was not measured:
/// peaks from the fastest matrix product of each dtype, attention and streams relative to them,
/// latency and bandwidth of the fabric from links (else from all-reduces of two ranks), and the
/// time to wake up from small collectives of jobs with more ranks than cores.
/// @param jobs  several measuring jobs of the same machines, e.g. with other numbers of ranks
/// @throws ConfigError if there is no job, no linear among the operators, or nothing about the
/// fabric
///         though a job had several ranks
Cluster fit_cluster(const std::vector<program::CalibrationSamples>& jobs);

}  // namespace meshplan::sim
