#include "measure/timed_group.hpp"

#include <algorithm>

#include "os/core_watch.hpp"

namespace meshplan::runtime {
namespace {

constexpr program::Lane kLane = program::Lane::Tp;

/// So many that they take about a millisecond: what starts the first one no longer counts.
int calls_that_last(double seconds_of_one) {
  constexpr double kGroupSeconds = 1e-3;
  constexpr double kMostOfGroup = 20;
  return static_cast<int>(
      std::clamp(kGroupSeconds / std::max(seconds_of_one, 1e-9), 1.0, kMostOfGroup));
}

}  // namespace

MeasuredMemory::MeasuredMemory(const MeasuredWorld& world, std::int64_t bytes) : bytes_(bytes) {
  if (world.device == nullptr) {
    memory_ = {new std::byte[static_cast<std::size_t>(bytes)](),
               [](void* memory) { delete[] static_cast<std::byte*>(memory); }};
  } else {
    kernels::Backend& backend = world.device->backend();
    memory_ = {backend.allocate(bytes), [&backend](void* memory) { backend.free(memory); }};
  }
}

std::vector<std::int64_t> message_sizes(const MeasureOptions& options) {
  if (!options.bytes.empty()) return options.bytes;
  constexpr std::int64_t kLargest = 64 << 20;
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 8; bytes < kLargest; bytes *= 4) sizes.push_back(bytes);
  sizes.push_back(kLargest);
  return sizes;
}

bool device_drives(const MeasuredWorld& world) {
  return world.device != nullptr &&
         world.device->rules().communications == program::CommunicationDriver::Device;
}

double largest(Communicator& comm, double value) {
  comm.all_reduce({&value, 1, DType::F64}, {&value, 1, DType::F64}, ReduceOp::Max).wait();
  return value;
}

std::vector<std::size_t> on_any_rank(Communicator& comm, const std::vector<bool>& marked) {
  std::vector<double> marks(marked.begin(), marked.end());
  const MutableBuffer buffer{marks.data(), std::ssize(marks), DType::F64};
  comm.all_reduce(buffer, buffer, ReduceOp::Max).wait();
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < marks.size(); ++i)
    if (marks[i] > 0) which.push_back(i);
  return which;
}

TimedGroup::TimedGroup(const MeasuredWorld& world, std::span<const int> members,
                       std::string_view name)
    : device_(world.device),
      reference_(world.device == nullptr ? world.reference : nullptr),
      device_drives_(device_drives(world)),
      host_(world.host.create_group(members, name)),
      moves_(world.device == nullptr ? nullptr : world.moves->create_group(members, name)) {
  if (moves_ != nullptr && device_drives_) moves_->queue_on(device_->queue(kLane));
}

TimedSample TimedGroup::time(const std::function<void()>& once, int calls) {
  host_->barrier().wait();
  if (device_drives_) {
    device_->stamp(0, kLane);
    for (int i = 0; i < calls; ++i) once();
    device_->stamp(1, kLane);
    device_->synchronize();
    return {.seconds = (device_->stamp_seconds(1) - device_->stamp_seconds(0)) / calls};
  }
  const CoreWatch core;
  const Stopwatch watch;
  once();
  if (device_ != nullptr) device_->synchronize();
  const double seconds = watch.seconds();
  return {.seconds = seconds, .off_core_s = reference_ == nullptr ? 0 : core.lost_s(seconds)};
}

double TimedGroup::reference() {
  return reference_ == nullptr ? 0 : reference_->seconds();
}

int TimedGroup::calls_at_once(const std::function<void()>& once) {
  if (!device_drives_) return 1;
  return calls_that_last(largest(*host_, time(once, 1).seconds));  // alike on all ranks
}

std::vector<TimedSample> TimedGroup::sample(const std::function<void()>& once,
                                            const std::function<void()>& before,
                                            const VisitLimits& limits) {
  const double reference_before = reference();
  time(once, 1);  // connections, caches, scratch
  const int calls = calls_at_once(once);
  std::vector<TimedSample> samples;
  double passed = 0;
  const Stopwatch visit;
  while (static_cast<int>(samples.size()) < limits.most) {
    const bool enough = static_cast<int>(samples.size()) >= limits.fewest;
    if (passed > (enough ? 1 : 4) * limits.time.value) break;
    before();
    TimedSample sample = time(once, calls);
    double slowest[3] = {sample.seconds, sample.off_core_s, visit.seconds()};
    const MutableBuffer buffer{slowest, 3, DType::F64};
    host_->all_reduce(buffer, buffer, ReduceOp::Max).wait();
    samples.push_back({.seconds = slowest[0], .off_core_s = slowest[1]});
    passed = slowest[2];
  }
  const double slowest = largest(*host_, std::max(reference_before, reference()));
  for (TimedSample& sample : samples) sample.reference_s = slowest;
  return samples;
}

}  // namespace meshplan::runtime
