// What tuning measures next, and when it stops.
#pragma once

#include <string_view>
#include <vector>

#include "core/enum_names.hpp"
#include "planner/tune/tuning.hpp"

namespace meshplan::planner {

enum class TuneStop {
  Settled,      // no plan that has not run may be faster by more than the noise
  AllMeasured,  // there is no plan left
  TopReached,   // `top` plans have run
  TimeUsed,     // `most_seconds` were used, perhaps before any plan has run
  AllFailed,    // no plan could be run
  Interrupted,  // the caller's: a signal
};

struct TuneDecision {
  std::vector<std::size_t> measure;   // one round each, in this order; empty: stop
  TuneStop stop = TuneStop::Settled;  // why, if nothing is to be measured
};

/// Plans that have not run and may still be faster than the fastest measured one by more than its
/// noise: optimistic_s < median / (1 + told_apart), as a plan of `least_rounds` would be told
/// apart. The most promising first. All, where nothing has run.
std::vector<std::size_t> might_be_faster(const std::vector<TuneCandidate>& candidates,
                                         const TunePolicy& policy);

/// The others of which only the noise of the measurements says that they cannot be told to be
/// faster: with more rounds, or on a quieter machine, they might be.
std::vector<std::size_t> hidden_by_noise(const std::vector<TuneCandidate>& candidates,
                                         const TunePolicy& policy);

/// The next turn: first the three most promising plans, the first candidate (what the search alone
/// would have chosen) among them; then one after the other. A plan runs in one round of each turn,
/// until it is settled, beside the fastest measured plan. What failed is never run again, and each
/// turn adds a round or a failure, so that at most 3 * top * least_rounds turns are asked for.
/// @param seconds_used  by runs of plans so far
TuneDecision decide(const std::vector<TuneCandidate>& candidates, const TunePolicy& policy,
                    double seconds_used);

}  // namespace meshplan::planner

template <>
struct meshplan::EnumNames<meshplan::planner::TuneStop> {
  using TuneStop = meshplan::planner::TuneStop;
  static constexpr std::array<std::pair<TuneStop, std::string_view>, 6> value = {
      {{TuneStop::Settled, "settled"},
       {TuneStop::AllMeasured, "all_measured"},
       {TuneStop::TopReached, "top_reached"},
       {TuneStop::TimeUsed, "time_used"},
       {TuneStop::AllFailed, "all_failed"},
       {TuneStop::Interrupted, "interrupted"}}};
};
