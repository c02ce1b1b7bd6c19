#pragma once

#include <memory>

#include "core/units.hpp"
#include "program/calibration/collective_table.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/session.hpp"
#include "runtime/guard/status_board.hpp"

namespace meshplan::runtime {

class Watchdog;

struct JobOptions {
  Seconds hang_timeout{60.0};
  /// Compares operation, dtype, counts, reduction and root between the ranks of a group before
  /// anything runs; a mismatch throws on every rank of the group.
  bool verify_calls = false;
};

/// What every rank of a job has: all ranks' communicator, guarded by a watchdog. Reports where
/// kReportSocketVariable says.
class Job {
 public:
  /// Called by all ranks at once, before large memory is allocated.
  Job(const Session& session, const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Communicator& world() { return *world_; }
  StatusBoard& board();
  const JobLayout& layout() const { return session_.layout(); }
  /// Which algorithm each collective of world() runs.
  const program::CollectiveTable& table() const { return table_; }

 private:
  const Session& session_;
  program::CollectiveTable table_;
  std::unique_ptr<Communicator> setup_;  // unobserved: the watchdog itself is made with it
  std::unique_ptr<Watchdog> watchdog_;
  std::unique_ptr<Communicator> world_;
};

}  // namespace meshplan::runtime
