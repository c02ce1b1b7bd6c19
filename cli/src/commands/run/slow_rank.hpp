// What an elastic run does about a rank that computes more slowly than its peers: it gives the rank
// less work, goes on without its slot, or stays as it is.
#pragma once

#include <optional>
#include <string>

#include "commands/run/elastic_layout.hpp"

namespace meshplan::cli {

struct SlowRankOfJob {
  int rank = 0;
  double times = 1;  // as long as its peers
  std::string host;
  int slot = 0;  // of the host's ranks in order
};

struct SlowRankWays {
  SlowRankOfJob slow;
  double now_s = 0;  // predicted of a step of the layout that runs, with the rank as slow as it is
  WayOn less_work;   // on all slots, the slow one among them
  WayOn left_out;    // without its slot
};

/// @param running  the layout that was found slow  @param clock_s  seconds since 1970
SlowRankWays ways_on(const ElasticRun& run, const ElasticLayout& running,
                     const runtime::Nodes& nodes, const SlowRankOfJob& slow, double clock_s);

/// Predicted seconds of a step of a layout with the slow slots that are known.
double predicted_step_s(const ElasticLayout& layout, const runtime::Nodes& nodes);

/// Would a job of the one differ from a job of the other?
bool same_layout(const ElasticLayout& a, const ElasticLayout& b);

/// What is left of a run, as the job that runs would do it.
struct RunAhead {
  int steps = 0;
  double step_s = 0;  // as they are now
  double move_s = 0;  // that a move takes
  double left_s() const { return steps * step_s; }
  double saved_s(double other_step_s) const { return steps * (step_s - other_step_s); }
};

struct SlowRankDecision {
  const WayOn* taken = nullptr;  // of the ways; null: stays
  std::string text;              // what each would save, and what is done
};

/// The way that is predicted to be faster, if it saves more than a move takes.
/// @param running  the layout that runs  @param measured_over_predicted  of its steps
SlowRankDecision decide(const SlowRankWays& ways, const ElasticLayout& running,
                        const RunAhead& ahead, double measured_over_predicted);

}  // namespace meshplan::cli
