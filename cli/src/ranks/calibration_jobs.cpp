#include "ranks/calibration_jobs.hpp"

#include <fmt/format.h>

#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "process/files.hpp"
#include "process/temporary_folder.hpp"
#include "ranks/ranks.hpp"

namespace meshplan::cli {

CalibrationJobs run_calibration_jobs(const std::vector<int>& ranks, const HostOptions& hosts,
                                     const MeasuringRank& arguments) {
  CalibrationJobs jobs;
  TemporaryFolder folder;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string file = folder.file(fmt::format("samples-{}.json", ranks[i]));
    output(stderr, "measuring {} with {} rank{}\n",
           i == 0 ? "operators and communication" : "communication", ranks[i],
           ranks[i] == 1 ? "" : "s");
    jobs.exit_code = launch_self(ranks[i], hosts, arguments(file, i == 0));
    if (jobs.exit_code != kDone) return jobs;
    jobs.samples.push_back(program::parse_samples(read_file(file), file));
  }
  return jobs;
}

}  // namespace meshplan::cli
