// Predicted beside measured: step time, where the time goes, which operations differ most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain/priced_plan.hpp"
#include "planner/runs/kernel_match.hpp"
#include "program/trace/saving_report.hpp"
#include "program/trace/trace.hpp"
#include "reports/extrapolation_report.hpp"
#include "sim/engine/breakdown.hpp"
#include "sim/engine/communication_split.hpp"
#include "sim/engine/delay_causes.hpp"

namespace meshplan::reports {

/// Step times without the warm-up.
struct StepTimes {
  int warmup_steps = 0;  // left out: the first, and up to a fifth of the rest
  int steps = 0;         // counted
  double median_s = 0;
  double p10_s = 0;
  double p90_s = 0;
};
StepTimes step_times(const program::Trace& trace);

/// Seconds of a step in which executions of one operation are in progress, mean over ranks.
struct OperationDifference {
  std::string name;
  double predicted_s = 0;
  double measured_s = 0;
};

/// Of one process group, mean over ranks.
struct CommunicationDifference {
  std::string group;
  sim::CommunicationSplit predicted;
  sim::CommunicationSplit measured;
};

/// What PyTorch's allocator held at most, of the rank that decides.
struct AllocatorPeak {
  std::string name;  // "allocated", "reserved"
  double predicted_bytes = 0;
  double measured_bytes = 0;
};

struct Comparison {
  program::Plan plan;
  StepTimes predicted;
  StepTimes measured;
  double step_time_error = 0;  // predicted / measured - 1
  double tracing_overhead = 0;
  double predicted_memory_bytes = 0;
  double measured_memory_bytes = 0;
  std::vector<AllocatorPeak> allocator;  // that the log of another stack states
  program::SavingReport saving;          // that the log of our own runtime states
  sim::Breakdown predicted_mean;         // over ranks; they sum to the traced step
  sim::Breakdown measured_mean;
  bool measured_operations = false;  // else the measurement is step times alone
  int critical_rank = 0;             // the measured rank that waits least
  sim::Breakdown predicted_critical;
  sim::Breakdown measured_critical;
  std::vector<OperationDifference> operations;         // largest absolute difference first
  std::vector<CommunicationDifference> communication;  // by name of the group
  std::vector<sim::DelayCause> causes;                 // of waiting that was measured
  std::optional<planner::KernelMatch> kernels;         // of another stack's measurement
  std::vector<sim::Extrapolation> extrapolations;      // in the prediction
  std::optional<sim::Interval>
      interval;  // of the predicted step time, if something is extrapolated, or no operations are
};

/// @throws ConfigError if the traces are of different plans, or both predicted or both measured
Comparison compare(const program::Trace& predicted, const program::Trace& measured);
/// The same where only a whole step is predicted, as of other software.
/// @param measured  of the same plan; it may have no operations
Comparison compare(const planner::TimedPlan& predicted, const program::Trace& measured);

/// The same with somebody's run. Of a single rank's kernels the operations predicted for its stage
/// are beside them, not the mean over all ranks.
Comparison compare(const program::Trace& predicted, const planner::MeasuredRun& measured);
Comparison compare(const planner::TimedPlan& predicted, const planner::MeasuredRun& measured);

std::string to_text(const Comparison& comparison, int most_operations = 12);
std::string to_json(const Comparison& comparison);

}  // namespace meshplan::reports
