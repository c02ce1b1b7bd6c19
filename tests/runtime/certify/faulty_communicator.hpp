// A world whose messages one can change on their way, below whoever watches them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/calibration/collective_table.hpp"
#include "runtime/comm/communicator.hpp"

namespace meshplan::test {

using program::CommOp;

/// A call on a group of more than one rank, as this rank made it. A send_recv is two.
struct GroupCall {
  std::string group;
  int size = 0;
  CommOp operation = CommOp::Barrier;
  int number = 0;  // of its group and operation
  DType dtype = DType::F32;
  std::int64_t sent = 0;  // elements
  std::int64_t received = 0;
};

struct Fault {
  enum class Where {
    Sent,      // what this rank gives is another one on its way; its own memory stays
    Received,  // what arrives from another rank, or the result of a sum, is another one here alone
  };
  enum class Change { Gross, Relative, Ulp };  // of a number: another one; 1e-4 of it; the next one
  std::string group;
  CommOp operation = CommOp::Barrier;
  int number = 0;
  Where where = Where::Received;
  Change change = Change::Gross;
  std::size_t seed = 0;  // which element
};

/// What this rank's communicators note, and the fault that they make. One for all of a job.
struct FaultState {
  std::optional<Fault> fault;  // on this rank; none: messages pass
  int hits = 0;
  std::vector<GroupCall> calls;
  std::map<std::pair<std::string, CommOp>, int> next;

  void restart(std::optional<Fault> next_fault) {
    *this = {};
    fault = std::move(next_fault);
  }
};

/// Both must outlive the result.
std::unique_ptr<runtime::Communicator> make_faulty_world(runtime::Communicator& inner,
                                                         FaultState& state);

}  // namespace meshplan::test
