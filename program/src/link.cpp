#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "program/address.hpp"
#include "program/lower.hpp"

namespace meshplan::program {
namespace {

constexpr int kNone = -1;

// Who last wrote these bytes, and who has read them since, on each lane.
struct Access {
  int writer = kNone;
  std::array<int, kNumLanes> readers;

  Access() { readers.fill(kNone); }
};

struct Segment {
  std::int64_t end = 0;
  Access access;
};

/// Accesses by byte range; segments do not overlap, are split where a new access begins or ends,
/// and become one where they are written at once.
class ByteMap {
 public:
  template <class Visit>
  void read(std::int64_t begin, std::int64_t end, Visit visit_access) {
    split(begin);
    split(end);
    std::int64_t covered = begin;
    for (auto it = segments_.lower_bound(begin); covered < end;) {
      if (it == segments_.end() || it->first > covered) {  // a gap that nobody touched yet
        const std::int64_t stop = it == segments_.end() ? end : std::min(end, it->first);
        it = segments_.emplace_hint(it, covered, Segment{.end = stop, .access = {}});
      }
      visit_access(it->second.access);
      covered = it->second.end;
      ++it;
    }
  }

  /// Visits what the bytes were accessed by, whose place `access` takes.
  template <class Visit>
  void write(std::int64_t begin, std::int64_t end, const Access& access, Visit visit_access) {
    if (begin >= end) return;
    split(begin);
    split(end);
    const auto first = segments_.lower_bound(begin);
    auto behind = first;
    for (; behind != segments_.end() && behind->first < end; ++behind)
      visit_access(behind->second.access);
    if (first != behind && first->first == begin) {
      first->second = {.end = end, .access = access};
      segments_.erase(std::next(first), behind);
    } else {
      segments_.erase(first, behind);
      segments_.emplace_hint(behind, begin, Segment{.end = end, .access = access});
    }
  }

 private:
  void split(std::int64_t where) {
    auto it = segments_.upper_bound(where);
    if (it == segments_.begin()) return;
    --it;
    if (it->first >= where || it->second.end <= where) return;
    Segment tail = it->second;
    it->second.end = where;
    segments_.emplace(where, tail);
  }

  std::map<std::int64_t, Segment> segments_;
};

/// When communication that needs nothing of its own task begins, which would else depend on where
/// its memory lies: a receive when the task before begins (earlier it would hold a part of the
/// device for nothing, for a receive of NCCL is a kernel that waits), what keeps its result, such
/// as a gathered gradient, when that task has ended. A custom schedule may need messages in any
/// order.
class EarliestTimes {
 public:
  explicit EarliestTimes(const Program& program)
      : applies_(program.plan.schedule != ScheduleKind::Custom) {}

  /// @param instance  the next of the program    @returns what it waits for, or kNone
  int add(const OperationInstance& instance, int index, const Operation& operation,
          const Footprint& touched) {
    if (!applies_) return kNone;
    if (instance.task > task_) {
      task_ = instance.task;
      before_previous_ = std::exchange(previous_, last_);
    }
    if (operation.lane == Lane::Compute) last_ = index;
    const auto* peer = std::get_if<PeerOp>(&operation.work);
    if (peer != nullptr) return peer->send ? kNone : before_previous_;
    const bool keeps = std::ranges::any_of(
        touched.writes, [](const Address& write) { return write.region == Region::Saved; });
    return operation.lane != Lane::Compute && keeps ? previous_ : kNone;
  }

 private:
  bool applies_;
  int task_ = -1;
  int last_ = kNone;             // computation so far
  int previous_ = kNone;         // when this task began
  int before_previous_ = kNone;  // when the task before began
};

}  // namespace

void link(Program& program) {
  std::map<std::pair<Region, int>, ByteMap> memory;
  // waited[a][b]: the last instance of lane b that lane a has already waited for.
  std::array<std::array<int, kNumLanes>, kNumLanes> waited;
  for (auto& of_lane : waited) of_lane.fill(kNone);
  std::vector<std::uint8_t> lanes;  // of the instances so far
  lanes.reserve(program.instances.size());
  EarliestTimes earliest_times(program);
  for (int index = 0; index < static_cast<int>(program.instances.size()); ++index) {
    OperationInstance& instance = program.instances[static_cast<std::size_t>(index)];
    const Operation& operation = operation_of(program, instance);
    const auto lane = static_cast<std::size_t>(operation.lane);
    lanes.push_back(static_cast<std::uint8_t>(lane));
    // Of each other lane only the latest instance matters: a lane runs in order.
    std::array<int, kNumLanes> latest;
    latest.fill(kNone);
    const auto wait_for = [&](int other) {
      if (other == kNone) return;
      auto& slot = latest[lanes[static_cast<std::size_t>(other)]];
      slot = std::max(slot, other);
    };
    const Footprint touched = footprint(program, instance);
    wait_for(earliest_times.add(instance, index, operation, touched));
    for (const Address& read : touched.reads)
      memory[{read.region, read.slot}].read(read.offset, read.offset + read.bytes,
                                            [&](Access& access) {
                                              wait_for(access.writer);
                                              access.readers[lane] = index;
                                            });
    Access own;
    own.writer = index;
    for (const Address& write : touched.writes)
      memory[{write.region, write.slot}].write(write.offset, write.offset + write.bytes, own,
                                               [&](const Access& access) {
                                                 wait_for(access.writer);
                                                 for (const int reader : access.readers)
                                                   if (reader != index) wait_for(reader);
                                               });
    instance.waits.clear();
    for (std::size_t other = 0; other < latest.size(); ++other) {
      if (other == lane || latest[other] <= waited[lane][other]) continue;
      waited[lane][other] = latest[other];
      instance.waits.push_back(latest[other]);
    }
  }
}

}  // namespace meshplan::program
