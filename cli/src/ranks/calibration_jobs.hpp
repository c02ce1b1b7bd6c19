// The jobs of ranks that measure a machine: what `calibrate` and `tune` start.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "options/host_options.hpp"
#include "program/calibration/calibration.hpp"

namespace meshplan::cli {

/// The command line of a measuring rank.
/// @param samples_file  that rank 0 writes    @param operators  are timed, too
using MeasuringRank =
    std::function<std::vector<std::string>(const std::string& samples_file, bool operators)>;

struct CalibrationJobs {
  int exit_code = 0;                                 // of the first job that failed
  std::vector<program::CalibrationSamples> samples;  // of each, if all are done
};

/// One job for each number of ranks; the first also times operators. Says on stderr what it does.
CalibrationJobs run_calibration_jobs(const std::vector<int>& ranks, const HostOptions& hosts,
                                     const MeasuringRank& arguments);

}  // namespace meshplan::cli
