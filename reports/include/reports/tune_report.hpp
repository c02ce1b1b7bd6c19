// What `meshplan tune` answers: plans predicted and measured, what was learned, why it stopped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/tune/decision.hpp"
#include "planner/tune/learned.hpp"
#include "planner/tune/tuning.hpp"

namespace meshplan::reports {

struct TuneReport {
  std::vector<planner::TuneCandidate> candidates;  // the first: what the search would have chosen
  planner::TunePolicy policy;
  planner::TuneStop stop = planner::TuneStop::Settled;
  std::optional<std::size_t> cut_short = {};  // the candidate whose run `most_seconds` ended
  double seconds_used = 0;                    // by runs of plans, in all
  int runs_taken_over = 0;                    // from the folder: they were not repeated
  std::vector<planner::TermError> terms = {};
  int operators = 0;    // signatures that traces have corrected
  int collectives = 0;  // kinds and group sizes
  /// Mean absolute error of step times that took no part in the correction; absent for fewer than
  /// two traces.
  std::optional<double> held_out_before = {};
  std::optional<double> held_out_after = {};
  bool correction_used = true;  // false: it makes these worse, and the cluster is left as it was
};

/// "pp2 mbs1 uneven (5,3)": as everywhere, and with the layers where they are uneven.
std::string describe(const planner::TuneCandidate& candidate);

/// "50.2 ms, median of 21 steps in 3 rounds, p10 to p90 49.8 ms to 53 ms".
/// @throws InvariantError if the candidate has not run
std::string measured_text(const planner::TuneCandidate& candidate);

/// A table, measured plans first, fastest first; then the choice, why it stopped, what was learned.
std::string to_text(const TuneReport& report);
std::string to_json(const TuneReport& report);

}  // namespace meshplan::reports
