#include "runtime/job/job.hpp"

#include <cstdlib>

#include "comm/host_communicator.hpp"
#include "guard/watchdog.hpp"
#include "runtime/launch/launch.hpp"

namespace meshplan::runtime {

Job::Job(const Session& session, const JobOptions& options)
    : session_(session),
      table_(program::default_collective_table()),
      setup_(make_host_world(session, {.table = table_})) {
  const char* report = std::getenv(kReportSocketVariable);  // NOLINT(concurrency-mt-unsafe)
  watchdog_ =
      std::make_unique<Watchdog>(*setup_, session.layout(),
                                 WatchdogOptions{.hang_timeout = options.hang_timeout,
                                                 .report_socket = report == nullptr ? "" : report});
  world_ = make_host_world(
      session,
      {.table = table_, .verify_calls = options.verify_calls, .observer = &watchdog_->board()});
}

Job::~Job() = default;

StatusBoard& Job::board() {
  return watchdog_->board();
}

}  // namespace meshplan::runtime
