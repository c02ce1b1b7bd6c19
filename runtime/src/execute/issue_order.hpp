// How the host issues a program to a device: the program's waits, translated for queues that run by
// themselves (streams), marks that one queue waits for (events), and regions that are captured.
#pragma once

#include <optional>
#include <vector>

#include "program/capture.hpp"
#include "program/program.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {

/// One thing that the host does.
struct Issue {
  enum class Kind {
    Run,          // start `instance`, on `lane`
    Await,        // the host waits until the communication `instance` is done
    SetMark,      // `mark` = the end of what has been queued on `lane`
    WaitMark,     // what is queued on `lane` from now on starts after `mark`
    BeginRegion,  // captured region number `instance`, whose queues all start after Lane::Compute
                  // ...
    EndRegion,    // ... and have all ended in it
  };
  Kind kind = Kind::Run;
  std::optional<int> instance;
  program::Lane lane = program::Lane::Compute;
  std::optional<int> mark;
  bool operator==(const Issue&) const = default;
};

struct IssueOrder {
  std::vector<Issue> issues;
  int num_marks = 0;
  std::vector<program::CaptureRegion> regions;
};

/// Every instance in the program's order, each after what it waits for. The host waits only for
/// communications that it drives itself: where an instance depends on one, before a later one of
/// the same lane (IssueRules::in_flight), and at the end of the step.
IssueOrder issue_order(const program::Program& program, const IssueRules& rules);

}  // namespace meshplan::runtime
