#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

#include "program/address.hpp"
#include "program/lower.hpp"

namespace meshplan::program {
namespace {

constexpr int kNone = -1;

/// Who last wrote these bytes, and who has read them since: the last one on each lane.
class Access {
 public:
  Access() = default;
  Access(int writer, std::size_t lane) : writer_(writer), lane_(lane) {}

  void add_reader(int reader, std::size_t lane) {
    readers_[lane] = reader;
    lanes_read_ |= 1U << lane;
  }
  /// @param wait_for  of an instance and its lane
  template <class Wait>
  void each_writer(Wait wait_for) const {
    if (writer_ != kNone) wait_for(writer_, lane_);
  }
  template <class Wait>
  void each_reader(Wait wait_for) const {
    for (unsigned left = lanes_read_; left != 0; left &= left - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(left));
      wait_for(readers_[lane], lane);
    }
  }

 private:
  int writer_ = kNone;
  std::size_t lane_ = 0;  // of the writer
  unsigned lanes_read_ = 0;
  std::array<int, kNumLanes> readers_{};  // of lanes_read_
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
    if (Access* same = find(begin, end)) return visit_access(*same);
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
    if (Access* same = find(begin, end)) {
      visit_access(*same);
      *same = access;
      return;
    }
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
  /// Of just these bytes, as they are touched most often.
  Access* find(std::int64_t begin, std::int64_t end) {
    const auto found = segments_.find(begin);
    return found != segments_.end() && found->second.end == end ? &found->second.access : nullptr;
  }

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

  /// @param instance  the next of the program
  /// @returns the computation that it waits for, or kNone
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
  std::vector<std::vector<ByteMap>> memory;  // by region and slot
  for (const RegionPlan& region : program.memory.regions)
    memory.emplace_back(static_cast<std::size_t>(region.slots));
  const auto bytes_of = [&](const Address& address) -> ByteMap& {
    return memory[static_cast<std::size_t>(address.region)][static_cast<std::size_t>(address.slot)];
  };
  Footprint touched;
  // waited[a][b]: the last instance of lane b that lane a has already waited for.
  std::array<std::array<int, kNumLanes>, kNumLanes> waited;
  for (auto& of_lane : waited) of_lane.fill(kNone);
  EarliestTimes earliest_times(program);
  for (int index = 0; index < static_cast<int>(program.instances.size()); ++index) {
    OperationInstance& instance = program.instances[static_cast<std::size_t>(index)];
    const Operation& operation = operation_of(program, instance);
    const auto lane = static_cast<std::size_t>(operation.lane);
    // Of each other lane only the latest instance matters: a lane runs in order.
    std::array<int, kNumLanes> latest;
    latest.fill(kNone);
    const auto wait_for = [&](int other, std::size_t its_lane) {
      latest[its_lane] = std::max(latest[its_lane], other);
    };
    footprint(program, instance, touched);
    wait_for(earliest_times.add(instance, index, operation, touched),
             static_cast<std::size_t>(Lane::Compute));
    for (const Address& read : touched.reads)
      bytes_of(read).read(read.offset, read.offset + read.bytes, [&](Access& access) {
        access.each_writer(wait_for);
        access.add_reader(index, lane);
      });
    const Access own(index, lane);
    for (const Address& write : touched.writes)
      bytes_of(write).write(write.offset, write.offset + write.bytes, own,
                            [&](const Access& access) {
                              access.each_writer(wait_for);
                              access.each_reader(wait_for);  // also of itself, on its own lane
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
