// Where the waiting of a measured step began: which operation took longer than it usually does, on
// which rank. docs/compare/README.md says how it is found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::sim {

enum class DelayKind {
  Operation,  // computed longer than it usually does
  Transfer,   // moved longer than it usually does, when all members had come
  Gap,        // nothing was in progress before an operation for longer than usual
  Schedule,   // no operation took longer than usual: the order of the work makes ranks wait
};

struct DelayCause {
  DelayKind kind = DelayKind::Operation;
  int rank = 0;  // on which it began; of a transfer the member that is slow elsewhere, too
  std::vector<int> members;  // of a transfer: the ranks that took part
  std::string operation;     // empty: Schedule
  std::string group;         // of a transfer
  double excess_s = 0;  // beyond what is usual: the rank's, of a transfer the mean over members
  double waited_s = 0;  // by others for it, summed over ranks
  double usual_s = 0;   // of its executions that were late, together
  int executions = 0;   // that were late
};

/// Largest loss (waited_s + excess_s) first; seconds of a step, mean over the traced steps. The
/// usual time of an operation is that of the quicker quarter of its like (name, FLOPs, bytes) over
/// all ranks; where there are too few, what `prediction` says at the speed of the others.
/// @param prediction  of the same plan; null: there is none
std::vector<DelayCause> delay_causes(const program::Trace& trace,
                                     const program::Trace* prediction = nullptr);

}  // namespace meshplan::sim

namespace meshplan {

template <>
struct EnumNames<sim::DelayKind> {
  static constexpr std::array<std::pair<sim::DelayKind, std::string_view>, 4> value{{
      {sim::DelayKind::Operation, "operation"},
      {sim::DelayKind::Transfer, "transfer"},
      {sim::DelayKind::Gap, "gap"},
      {sim::DelayKind::Schedule, "schedule"},
  }};
};

}  // namespace meshplan
