// Which spans of a trace are one communication, over the ranks that take part in it.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "program/trace/trace.hpp"

namespace meshplan::program {

/// Is the span a communication's?
bool communicates(const Span& span);
/// Is it the sending half of a message?
bool sends(const Span& span);

/// One collective, or one message between two ranks.
struct Meeting {
  std::vector<std::size_t> spans;  // of the trace, as far as it has them; in its order
  double all_arrived_s = 0;        // when the last of them began: before, there is nothing to move
  int last_rank = 0;               // whose span that is
};

class Meetings {
 public:
  explicit Meetings(const Trace& trace);

  const std::vector<Meeting>& all() const { return meetings_; }
  /// Of a span that communicates.
  const Meeting& of(std::size_t span) const { return meetings_[meeting_of_[span]]; }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::vector<Meeting> meetings_;
  std::vector<std::size_t> meeting_of_;  // by span; kNone: it is no communication
};

}  // namespace meshplan::program
