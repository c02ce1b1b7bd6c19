// Tuning: search, run the most promising plans in turns, refine the cluster by what was seen,
// again. What to run and when to stop is decided by planner/tune; here plans are run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "options/host_options.hpp"
#include "output/progress.hpp"
#include "output/terminal.hpp"
#include "planner/search/search.hpp"
#include "planner/tune/decision.hpp"
#include "process/interrupt.hpp"
#include "program/trace/trace.hpp"
#include "reports/tune_report.hpp"
#include "sim/fit/refine.hpp"
#include "tune/tune_folder.hpp"

namespace meshplan::cli {

struct TuneWork {
  planner::SearchRequest search;  // on the cluster as it was given or calibrated
  planner::TunePolicy policy;
  std::string data;
  int steps = 6;  // of a run; the first is warm-up
  int threads = 0;
  std::vector<std::string> device_flags = {};  // of `run`
  HostOptions hosts;
  Terminal terminal;
};

class Tuner {
 public:
  /// @param folder  must outlive it; what it holds is taken over
  Tuner(TuneWork work, TuneFolder& folder);

  /// Runs plans until another measurement cannot change the choice, a limit is reached, or a signal
  /// interrupts it. @returns why nothing can be tuned, if no plan fits
  std::optional<planner::InfeasibleResult> run();

  const reports::TuneReport& report() const { return report_; }
  /// The measured best on the refined cluster, with its prediction, and a reason that says what was
  /// measured. Absent if no plan was measured.
  std::optional<program::Plan> best() const;

 private:
  enum class RunEnd { Done, Failed, Interrupted, OutOfTime };

  /// Refines the cluster by all traces and takes up what looks good on it.
  void learn();
  planner::SearchOutcome search(const sim::Cluster& cluster, bool first);
  void take_up(const program::Plan& plan, std::optional<int> rebalanced_from);
  void take_up_rebalanced();
  void predict();
  void refine();
  /// One round of each. @returns Interrupted or TimeUsed, if the turn was not completed
  std::optional<planner::TuneStop> run_turn(const std::vector<std::size_t>& indexes,
                                            const InterruptRequest& interrupt, Progress& progress);
  double seconds_left() const;  // of running plans
  RunEnd measure(std::size_t index, int turn);
  void conclude(planner::TuneStop stop);
  int last_turn() const;
  program::Plan on(const program::Plan& plan, const sim::Cluster& cluster) const;

  TuneWork work_;
  TuneFolder& folder_;
  std::vector<planner::TuneCandidate>& candidates_;    // of the folder's file
  std::map<std::size_t, program::Trace> traces_;       // of candidates that have run
  std::map<std::size_t, sim::StepPrediction> before_;  // on the given cluster
  sim::Cluster refined_;
  std::size_t runs_done_ = 0;
  reports::TuneReport report_;
};

}  // namespace meshplan::cli
