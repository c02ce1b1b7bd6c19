#include "measure/measure_progress.hpp"

#include <algorithm>
#include <functional>

#include "core/statistics.hpp"
#include "kernels/elementwise/accumulate.hpp"
#include "measure/timed_group.hpp"
#include "runtime/execute/device.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kProgressSizes[] = {256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr int kRepeats = 9;

/// Seconds of `once` on the slowest rank, all entering together: the median of some times.
double seconds_of(Communicator& world, const std::function<void()>& once) {
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    world.barrier().wait();
    const double begin = monotonic_seconds();
    once();
    times.push_back(largest(world, monotonic_seconds() - begin));
  }
  return median(std::move(times));
}

/// Additions in the core's own cache, as many rounds as asked for.
class Computation {
 public:
  explicit Computation(kernels::Backend& backend) : backend_(backend), memory_(2 * kElements) {}

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round)
      backend_.run(kernels::Accumulate{
          .count = kElements, .sum = memory_.data(), .value = memory_.data() + kElements});
  }

 private:
  static constexpr std::int64_t kElements = 4096;  // 16 KiB each
  kernels::Backend& backend_;
  std::vector<float> memory_;
};

}  // namespace

std::span<const std::int64_t> progress_sizes() {
  return kProgressSizes;
}

std::vector<program::ProgressSample> measure_progress(Communicator& world, const JobLayout& layout,
                                                      kernels::Backend& backend,
                                                      std::span<const std::int64_t> sizes) {
  const auto machine = static_cast<std::size_t>(layout.machine());
  Computation computation(backend);
  constexpr int kTrialRounds = 200;
  const double round = seconds_of(world, [&] { computation.run(kTrialRounds); }) / kTrialRounds;
  std::vector<program::ProgressSample> samples;
  for (const std::int64_t bytes : sizes) {
    std::vector<float> data(static_cast<std::size_t>(bytes / size_of(DType::F32)));
    const MutableBuffer buffer{data.data(), std::ssize(data), DType::F32};
    const auto start = [&] { return world.all_reduce(buffer, buffer, ReduceOp::Sum); };
    start().wait();  // connections, scratch
    program::ProgressSample sample{.bytes = bytes};
    sample.communication_seconds = seconds_of(world, [&] { start().wait(); });
    const int rounds =
        std::max(1, static_cast<int>(sample.communication_seconds / 2 / std::max(round, 1e-9)));
    sample.compute_seconds = seconds_of(world, [&] { computation.run(rounds); });
    world.progress_in_background(true);
    sample.together_seconds = seconds_of(world, [&] {
      Handle moving = start();
      computation.run(rounds);
      moving.wait();
    });
    world.progress_in_background(false);
    sample.ranks_on_host = static_cast<int>(layout.ranks_on(layout.machine()).size());
    sample.cores_on_host = layout.cores_of_machine[machine];
    // One file is written of rank 0's: every rank gets these.
    world.broadcast({&sample, static_cast<std::int64_t>(sizeof(sample)), DType::U8}, 0).wait();
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace meshplan::runtime
