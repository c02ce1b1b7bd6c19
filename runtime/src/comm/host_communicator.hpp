// Ranks of a session behind the Communicator interface; buffers are host memory. The collectives
// are schedules of messages (collective_algorithms.hpp), carried by MPI or by TCP.
#pragma once

#include <memory>
#include <optional>

#include "program/calibration/collective_table.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/session.hpp"

namespace meshplan::runtime {

struct HostWorldOptions {
  program::CollectiveTable table = program::default_collective_table();
  /// Compares operation, dtype, counts, reduction and root between the ranks of the group before
  /// anything runs. On a mismatch every rank of the group throws, naming what each rank passed.
  /// Costs one small exchange with every rank of the group a call.
  bool verify_calls = false;
  /// How to wait: absent = by the layout, i.e. yield the core where ranks outnumber cores.
  std::optional<bool> oversubscribed;
  /// Told when this rank waits; must outlive the communicators.
  WaitObserver* observer = nullptr;
};

/// All ranks of the job, by whatever the session connects them. Called by all of them at once.
/// Groups made from it share its options and its progress: waiting on one moves the operations of
/// all. @throws ConfigError for a table that does not validate
std::unique_ptr<Communicator> make_host_world(const Session& session, HostWorldOptions options);

}  // namespace meshplan::runtime
