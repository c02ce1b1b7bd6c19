#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "comm/collective_algorithms.hpp"

namespace meshplan::runtime {

/// Writes a CollectiveSchedule: numbers the requests, and leaves out messages of zero elements
/// (both sides know every count, so both leave them out).
class ScheduleBuilder {
 public:
  /// Names a started message; nothing to await if it was left out.
  using Request = int;
  static constexpr Request kNone = -1;

  Request send(int peer, Extent from) {
    if (from.count == 0) return kNone;
    const int request = take_request();
    schedule_.actions.emplace_back(StartSend{request, peer, from});
    return request;
  }
  Request recv(int peer, Extent to) {
    if (to.count == 0) return kNone;
    const int request = take_request();
    schedule_.actions.emplace_back(StartRecv{request, peer, to});
    return request;
  }
  void await(Request request) {
    if (request == kNone) return;
    schedule_.actions.emplace_back(Await{request});
    free_.push_back(request);
  }
  void await_all(std::vector<Request>& requests) {
    for (const Request request : requests) await(request);
    requests.clear();
  }
  void reduce(Extent to, std::vector<Extent> sources, bool last) {
    if (to.count != 0) schedule_.actions.emplace_back(Reduce{to, std::move(sources), last});
  }
  void copy(Extent to, Extent from) {
    if (to.count != 0) schedule_.actions.emplace_back(Copy{to, from});
  }
  /// A new part of the scratch buffer.
  Extent scratch(std::int64_t count) {
    const Extent extent{Space::Scratch, schedule_.scratch_count, count};
    schedule_.scratch_count += count;
    return extent;
  }
  CollectiveSchedule take() { return std::move(schedule_); }

 private:
  int take_request() {
    if (free_.empty()) return schedule_.num_requests++;
    const int request = free_.back();
    free_.pop_back();
    return request;
  }

  CollectiveSchedule schedule_;
  std::vector<int> free_;
};

/// Keeps at most `limit` messages in flight: adding one more awaits the oldest.
class MessageWindow {
 public:
  MessageWindow(ScheduleBuilder& builder, std::size_t limit) : builder_(builder), limit_(limit) {}
  void add(ScheduleBuilder::Request request) {
    in_flight_.push_back(request);
    if (in_flight_.size() > limit_) await_oldest();
  }
  void drain() {
    while (!in_flight_.empty()) await_oldest();
  }

 private:
  void await_oldest() {
    builder_.await(in_flight_.front());
    in_flight_.pop_front();
  }

  ScheduleBuilder& builder_;
  std::size_t limit_;
  std::deque<ScheduleBuilder::Request> in_flight_;
};

/// The part of an extent that piece `index` covers; empty beyond its end.
inline Extent piece_of(Extent whole, std::int64_t piece, std::int64_t index) {
  const std::int64_t begin = std::min(whole.count, index * piece);
  return {whole.space, whole.offset + begin, std::min(piece, whole.count - begin)};
}

inline std::int64_t num_pieces(std::int64_t count, std::int64_t piece) {
  return count / piece + (count % piece != 0 ? 1 : 0);
}

inline int modulo(int value, int size) {
  return ((value % size) + size) % size;
}

}  // namespace meshplan::runtime
