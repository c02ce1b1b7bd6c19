#include "runtime/job.hpp"

#include <cstdlib>

#include "runtime/launch.hpp"

namespace meshplan::runtime {

Job::Job(const Session& session, const JobOptions& options)
    : session_(session), setup_(make_host_world(session, {})) {
  const char* report = std::getenv(kReportSocketVariable);  // NOLINT(concurrency-mt-unsafe)
  watchdog_.emplace(*setup_, session.layout(),
                    WatchdogOptions{.hang_timeout = options.hang_timeout,
                                    .report_socket = report == nullptr ? "" : report});
  options_.verify_calls = options.verify_calls;
  options_.observer = &watchdog_->board();
  world_ = make_host_world(session, options_);
}

}  // namespace meshplan::runtime
