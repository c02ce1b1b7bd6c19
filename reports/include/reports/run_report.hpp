// What `meshplan run` shows and logs while it trains and when it is done. docs/watching.md defines
// every figure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "program/trace/saving_report.hpp"
#include "program/trace/step_report.hpp"
#include "program/trace/trace.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::reports {

/// What MFU divides by.
struct Peak {
  double job_flop_per_s = 0;  // all ranks together, in the plan's precision
  std::string source;         // "the fastest product that was measured (cluster 'here')"
};

/// Ranks that are CPU processes reach no more than the cores they run on.
/// @param cluster  the plan's
Peak peak_of(const program::Plan& plan, const sim::Cluster& cluster);

struct RunHeader {
  program::Plan plan;
  std::string device;  // of each rank
  int machines = 1;
  bool oversubscribed = false;
  std::string data;
  std::uint64_t seed = 0;
  int num_steps = 0;
  int evaluate_every = 0;
  std::optional<Peak> peak;  // absent if the plan has no cluster
};
std::string to_text(const RunHeader& header);

/// The settings that an optimizer reads: "adamw  lr 0.001, warm-up 10 steps, ...".
std::string optimizer_line(const program::OptimizerConfig& optimizer);
std::string step_line(const program::StepReport& step);

struct RunSummary {
  program::Trace trace;
  std::optional<program::StepTiming> timing;  // mean over steps
  std::optional<program::ExpertReport> experts = std::nullopt;
  /// Of each step, before clipping; none = the step was skipped.
  std::vector<std::optional<double>> gradient_norms = {};
  double arena_bytes = 0;  // of the rank that holds most
  double resident_after_first_step = 0;
  double resident_at_end = 0;
  double job_peak_flop_per_s = 0;  // 0 = not known
  program::SavingReport saving = {};
};
std::string to_text(const RunSummary& summary);
std::string to_json(const RunSummary& summary);

/// Lines of a run's log besides those of its steps (program::to_json_line), without their ends.
std::string to_json_line(const RunHeader& header);
std::string to_json_line(const RunSummary& summary);
/// Of a stream of the run, by name, that could not be written from some moment on.
std::string lost_output_line(std::string_view stream, std::string_view cause);
/// What a supervisor did after a step, and why.
std::string elastic_line(int step, std::string_view text);

}  // namespace meshplan::reports
