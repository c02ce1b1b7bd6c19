#include "execute/issue_order.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "core/index.hpp"
#include "program/memory/address.hpp"

namespace meshplan::runtime {
namespace {

using program::CaptureRegion;
using program::CommunicationDriver;
using program::Lane;

/// Regions shorter than this are cheaper to launch one by one.
constexpr int kFewestCaptured = 4;

struct Mark {
  int id = 0;
  Lane lane = Lane::Compute;  // whose end it is
};

bool overlap(const program::Address& a, const program::Address& b) {
  return a.region == b.region && a.slot == b.slot && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

/// Does one of them write what the other one reads or writes?
bool conflict(const program::Footprint& a, const program::Footprint& b) {
  const auto meet = [](const auto& some, const auto& others) {
    return std::ranges::any_of(some, [&](const program::Address& one) {
      return std::ranges::any_of(
          others, [&](const program::Address& other) { return overlap(one, other); });
    });
  };
  return meet(a.writes, b.writes) || meet(a.writes, b.reads) || meet(a.reads, b.writes);
}

class Issuer {
 public:
  Issuer(const program::Program& program, const IssueRules& rules)
      : program_(program),
        rules_(rules),
        states_(program.instances.size()),
        region_of_(program.instances.size()) {
    if (rules.capture)
      for (const CaptureRegion& region : program::capture_regions(program, rules.communications))
        if (region.end - region.begin >= kFewestCaptured) order_.regions.push_back(region);
    for (std::size_t r = 0; r < order_.regions.size(); ++r)
      for (int i = order_.regions[r].begin; i < order_.regions[r].end; ++i)
        region_of_[at(i)] = static_cast<int>(r);
    for (int i = 0; i < size(); ++i)
      for (const int earlier : program::waits_of(program_, instance(i)))
        if (lane_of(earlier) != lane_of(i)) states_[at(earlier)].awaited = true;
  }

  IssueOrder issue() {
    for (int i = 0; i < size(); ++i) {
      const std::optional<int> region = region_of_[at(i)];
      if (!region) {
        run_alone(i);
        continue;
      }
      const CaptureRegion& range = order_.regions[at(*region)];
      if (i == range.begin) begin(*region);
      run_captured(i, range);
      if (i + 1 == range.end) end(*region);
    }
    for (const auto& in_flight : in_flight_)
      if (!in_flight.empty()) await(in_flight.back());
    return std::move(order_);
  }

 private:
  struct State {
    bool awaited = false;  // an instance on another lane waits for it
    std::optional<Mark> mark;
  };

  int size() const { return static_cast<int>(program_.instances.size()); }
  const program::OperationInstance& instance(int i) const { return program_.instances[at(i)]; }
  const program::Operation& operation(int i) const {
    return program::operation_of(program_, instance(i));
  }
  Lane lane_of(int i) const { return operation(i).lane; }
  bool host_driven(int i) const {
    return rules_.communications == CommunicationDriver::Host &&
           program::is_communication(operation(i));
  }

  void add(Issue::Kind kind, std::optional<int> index, Lane lane, std::optional<int> mark = {}) {
    order_.issues.push_back({kind, index, lane, mark});
  }
  Mark set_mark(Lane lane) {
    const Mark mark{order_.num_marks++, lane};
    add(Issue::Kind::SetMark, std::nullopt, lane, mark.id);
    return mark;
  }
  void wait_mark(Lane lane, const Mark& mark) {
    if (mark.lane != lane) add(Issue::Kind::WaitMark, std::nullopt, lane, mark.id);
  }

  /// The host waits for a communication that it drives and for those before it on the lane, which
  /// waits for it imply, as far as they are in flight.
  void await(int i) {
    std::vector<int>& in_flight = in_flight_[static_cast<std::size_t>(lane_of(i))];
    while (!in_flight.empty() && in_flight.front() <= i) {
      const int first = in_flight.front();
      in_flight.erase(in_flight.begin());
      add(Issue::Kind::Await, first, lane_of(first));
      // What arrived is copied to the device on the communication's lane.
      State& state = states_[at(first)];
      if (rules_.queues && state.awaited) state.mark = set_mark(lane_of(first));
    }
  }

  /// Before instance `i` starts on its lane, where others may still be in flight.
  void make_room(int i) {
    const std::vector<int>& in_flight = in_flight_[static_cast<std::size_t>(lane_of(i))];
    const auto limit = static_cast<std::size_t>(std::max(1, rules_.in_flight));
    while (in_flight.size() >= limit) await(in_flight.front());
    if (in_flight.empty()) return;
    const program::Footprint own = program::footprint(program_, instance(i));
    const auto last = std::find_if(in_flight.rbegin(), in_flight.rend(), [&](int other) {
      return conflict(own, program::footprint(program_, instance(other)));
    });
    if (last != in_flight.rend()) await(*last);
  }

  /// What is issued on `lane` from now on comes after instance `i`.
  void order_after(int i, Lane lane) {
    await(i);
    if (states_[at(i)].mark) wait_mark(lane, *states_[at(i)].mark);
  }

  void run_alone(int i) {
    const Lane lane = lane_of(i);
    for (const int earlier : program::waits_of(program_, instance(i))) order_after(earlier, lane);
    if (host_driven(i)) make_room(i);
    last_of_lane_[static_cast<std::size_t>(lane)] = i;
    add(Issue::Kind::Run, i, lane);
    if (host_driven(i))
      in_flight_[static_cast<std::size_t>(lane)].push_back(i);
    else if (State& state = states_[at(i)]; rules_.queues && state.awaited)
      state.mark = set_mark(lane);
  }

  std::set<Lane> side_lanes(const CaptureRegion& region) const {
    std::set<Lane> lanes;
    for (int i = region.begin; i < region.end; ++i)
      if (lane_of(i) != Lane::Compute) lanes.insert(lane_of(i));
    return lanes;
  }

  /// The graph is launched on the compute lane, so that lane waits for all that the region needs.
  void begin(int number) {
    const CaptureRegion& region = order_.regions[at(number)];
    for (int i = region.begin; i < region.end; ++i)
      for (const int earlier : program::waits_of(program_, instance(i)))
        if (earlier < region.begin) order_after(earlier, Lane::Compute);
    const std::set<Lane> lanes = side_lanes(region);
    for (const Lane lane : lanes)
      if (last_of_lane_[static_cast<std::size_t>(lane)]) wait_mark(Lane::Compute, set_mark(lane));
    add(Issue::Kind::BeginRegion, number, Lane::Compute);
    if (lanes.empty()) return;
    const Mark fork = set_mark(Lane::Compute);
    for (const Lane lane : lanes) wait_mark(lane, fork);
  }

  void run_captured(int i, const CaptureRegion& region) {
    const Lane lane = lane_of(i);
    for (const int earlier : program::waits_of(program_, instance(i)))
      if (earlier >= region.begin) wait_mark(lane, *states_[at(earlier)].mark);
    add(Issue::Kind::Run, i, lane);
    last_of_lane_[static_cast<std::size_t>(lane)] = i;
    if (states_[at(i)].awaited) states_[at(i)].mark = set_mark(lane);
  }

  /// Marks set inside a graph mean nothing outside of it: its end stands for all of them.
  void end(int number) {
    const CaptureRegion& region = order_.regions[at(number)];
    const std::set<Lane> lanes = side_lanes(region);
    for (const Lane lane : lanes) wait_mark(Lane::Compute, set_mark(lane));
    add(Issue::Kind::EndRegion, number, Lane::Compute);
    const Mark done = set_mark(Lane::Compute);
    for (const Lane lane : lanes) wait_mark(lane, done);
    for (int i = region.begin; i < region.end; ++i) states_[at(i)].mark = done;
  }

  const program::Program& program_;
  IssueRules rules_;
  std::vector<State> states_;
  std::vector<std::optional<int>> region_of_;  // the captured one that an instance is in
  std::array<std::optional<int>, program::kNumLanes> last_of_lane_;
  std::array<std::vector<int>, program::kNumLanes> in_flight_;  // that the host drives, in order
  IssueOrder order_;
};

}  // namespace

IssueOrder issue_order(const program::Program& program, const IssueRules& rules) {
  return Issuer(program, rules).issue();
}

}  // namespace meshplan::runtime
