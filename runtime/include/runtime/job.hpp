#pragma once

#include <memory>
#include <optional>

#include "runtime/host_communicator.hpp"
#include "runtime/session.hpp"
#include "runtime/watchdog.hpp"

namespace meshplan::runtime {

struct JobOptions {
  Seconds hang_timeout{60.0};
  bool verify_calls = false;  // HostWorldOptions::verify_calls
};

/// What every rank of a job has: all ranks' communicator, guarded by a watchdog. Reports where
/// kReportSocketVariable says.
class Job {
 public:
  /// Called by all ranks at once, before large memory is allocated.
  Job(const Session& session, const JobOptions& options);

  Communicator& world() { return *world_; }
  StatusBoard& board() { return watchdog_->board(); }
  const JobLayout& layout() const { return session_.layout(); }
  const program::CollectiveTable& table() const { return options_.table; }

 private:
  const Session& session_;
  HostWorldOptions options_;
  std::unique_ptr<Communicator> setup_;  // unobserved: the watchdog itself is made with it
  std::optional<Watchdog> watchdog_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace meshplan::runtime
