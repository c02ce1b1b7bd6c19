// Kernels that somebody's run launched, laid on the operations of a plan's program.
#pragma once

#include <string>
#include <vector>

#include "planner/runs/kineto_trace.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::planner {

/// Kernels of one name that no operation could be found for; mean over the steps.
struct UnmatchedKernel {
  std::string name;
  KernelKind kind = KernelKind::Other;
  int times = 0;       // in all steps
  double seconds = 0;  // of a step
};

/// Counts are of all steps, seconds of a step.
struct KernelMatch {
  int kernels = 0;
  int by_name = 0;   // launched inside a range that is called as an operation is
  int by_size = 0;   // products by their FLOPs, communication by its kind and bytes; in order
  int by_order = 0;  // as many of a kind as operations of that kind
  int outside = 0;   // launched before the first step or after the last
  double seconds = 0;
  double matched_s = 0;
  std::vector<UnmatchedKernel> unmatched;  // most time first
  int matched() const { return by_name + by_size + by_order; }
};

struct MeasuredRun {
  program::Trace trace;  // measured, of one rank; unmatched kernels are spans called as they are
  KernelMatch match;
};

/// @param default_rank  of the plan whose kernels these are, if the trace does not say
/// @throws ConfigError if the trace is of a job with another number of ranks, or of no rank of the
/// plan
MeasuredRun match_kernels(const KinetoTrace& kineto, const std::string& file,
                          const program::Plan& plan, int default_rank);

}  // namespace meshplan::planner
