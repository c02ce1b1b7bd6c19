// How long an operation of a trace usually takes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "program/trace/meetings.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::sim {

/// Seconds that a span is at work: of a communication, from when its last member had come.
double busy_seconds(const program::Span& span, double all_arrived_s);

class UsualTimes {
 public:
  /// @param prediction  null: there is none
  UsualTimes(const program::Trace& trace, const program::Meetings& meetings,
             const program::Trace* prediction);

  /// Absent where nothing tells it.
  std::optional<double> of(const program::Span& span) const;

 private:
  using Likeness = std::tuple<std::string, std::string, std::int64_t, double>;
  static Likeness likeness_of(const program::Span& span);
  static bool moves(const Likeness& likeness);
  struct Times {
    std::vector<double> seconds;
    std::vector<int> meeting_ranks;  // first rank of each meeting's members, or the rank
    /// One group, or one rank, cannot be told from a slow one by itself.
    bool is_comparable() const;
  };
  static std::map<Likeness, Times> times_of(const program::Trace& trace,
                                            const program::Meetings& meetings);

  std::map<Likeness, double> usual_;
};

}  // namespace meshplan::sim
