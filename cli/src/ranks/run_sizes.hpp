// Runs the sizes of a scaling curve that this machine can, to measure their steps.
#pragma once

#include <string>
#include <vector>

#include "options/host_options.hpp"
#include "output/terminal.hpp"
#include "planner/scaling/measured.hpp"

namespace meshplan::cli {

struct RunSizes {
  std::string data;  // text or token file
  int steps = 5;     // of a size in a round; the first is warm-up
  int rounds = 2;    // sizes take turns, so that a disturbance does not meet one alone
  HostOptions hosts;
};

/// Ranks that a machine is asked to run at once for each core: they take turns beyond the cores.
constexpr int kRanksPerCore = 4;

/// "run here on 2 cores, which more ranks share"
std::string source_of_sizes();

/// The steps of every size that has a plan and no more than kRanksPerCore ranks a core.
/// @param cluster  of the curve: this machine, as `calibrate` describes it
/// @throws ConfigError if it is no machine of processors, or no size can run; IoError if a run
/// fails
std::vector<planner::MeasuredSize> run_sizes(const RunSizes& how,
                                             const planner::ScalingCurve& curve,
                                             const sim::Cluster& cluster, const Terminal& terminal);

}  // namespace meshplan::cli
