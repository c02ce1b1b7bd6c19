#include "timed_group.hpp"

#include <algorithm>

namespace meshplan::runtime {
namespace {

constexpr program::Lane kLane = program::Lane::Tp;

/// So many that they take about a millisecond: what starts the first one no longer counts.
int calls_that_last(double seconds_of_one) {
  constexpr double kBatchSeconds = 1e-3;
  constexpr double kMostCalls = 20;
  return static_cast<int>(
      std::clamp(kBatchSeconds / std::max(seconds_of_one, 1e-9), 1.0, kMostCalls));
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

TimedGroup::TimedGroup(const MeasuredWorld& world, std::span<const int> members,
                       std::string_view name)
    : device_(world.device),
      device_drives_(device_drives(world)),
      host_(world.host.create_group(members, name)),
      moves_(world.device == nullptr ? nullptr : world.moves->create_group(members, name)) {
  if (moves_ != nullptr && device_drives_) moves_->queue_on(device_->queue(kLane));
}

double TimedGroup::seconds_of(const std::function<void()>& once, int calls) {
  host_->barrier().wait();
  if (device_drives_) {
    device_->stamp(0, kLane);
    for (int i = 0; i < calls; ++i) once();
    device_->stamp(1, kLane);
    device_->synchronize();
    return (device_->stamp_seconds(1) - device_->stamp_seconds(0)) / calls;
  }
  const Stopwatch watch;
  once();
  if (device_ != nullptr) device_->synchronize();
  return watch.seconds();
}

std::vector<double> time_repeats(TimedGroup& group, const std::function<void()>& once,
                                 const MeasureOptions& options,
                                 const std::function<void()>& before) {
  group.seconds_of(once, 1);  // connections, caches, scratch
  const int calls =
      group.queues_calls()
          ? calls_that_last(largest(group.host(), group.seconds_of(once, 1)))  // alike on all ranks
          : 1;
  std::vector<double> times;
  double spent = 0;
  while (static_cast<int>(times.size()) < options.max_repeats &&
         (static_cast<int>(times.size()) < options.min_repeats ||
          spent < options.budget_per_case.value)) {
    before();
    times.push_back(largest(group.host(), group.seconds_of(once, calls)));
    spent += times.back() * calls;
    if (spent > 4 * options.budget_per_case.value) break;
  }
  return times;
}

}  // namespace meshplan::runtime
