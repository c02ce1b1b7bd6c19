#include "lower/link.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include "core/index.hpp"
#include "memory/accesses.hpp"

namespace meshplan::program {
namespace {

constexpr int kNone = -1;

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
    const bool copies = operation.lane == Lane::FromHost || operation.lane == Lane::ToHost;
    if (!applies_ || copies) return kNone;  // copies wait for memory alone
    if (instance.task && *instance.task > task_) {
      task_ = *instance.task;
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
  Accesses accesses(program);
  Footprint touched;
  // waited[a][b]: the last instance of lane b that lane a has already waited for.
  std::array<std::array<int, kNumLanes>, kNumLanes> waited{};
  for (auto& of_lane : waited) of_lane.fill(kNone);
  std::array<int, kNumLanes> latest{};  // of `lanes`
  latest.fill(kNone);
  unsigned lanes = 0;
  program.waits.clear();
  EarliestTimes earliest_times(program);
  for (int index = 0; index < static_cast<int>(program.instances.size()); ++index) {
    OperationInstance& instance = program.instances[at(index)];
    const Operation& operation = operation_of(program, instance);
    const auto lane = static_cast<std::size_t>(operation.lane);
    // Only the latest instance of each other lane matters: a lane runs in order.
    const auto wait_for = [&](int other, std::size_t its_lane) {
      latest[its_lane] = std::max(latest[its_lane], other);
      lanes |= 1U << its_lane;
    };
    footprint(program, instance, touched);
    wait_for(earliest_times.add(instance, index, operation, touched),
             static_cast<std::size_t>(Lane::Compute));
    accesses.touch(index, lane, touched, wait_for);
    instance.first_wait = static_cast<int>(program.waits.size());
    for (; lanes != 0; lanes &= lanes - 1) {
      const auto other = static_cast<std::size_t>(std::countr_zero(lanes));
      const int last = std::exchange(latest[other], kNone);
      if (other == lane || last <= waited[lane][other]) continue;
      waited[lane][other] = last;
      program.waits.push_back(last);
    }
    instance.num_waits = static_cast<int>(program.waits.size()) - instance.first_wait;
  }
}

}  // namespace meshplan::program
