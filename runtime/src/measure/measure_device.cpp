#include "measure/measure_device.hpp"

#include <algorithm>
#include <functional>
#include <memory>

#include "comm/staging_communicator.hpp"
#include "core/error.hpp"
#include "core/statistics.hpp"
#include "measure/call_timer.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::int64_t kCopySizes[] = {4 << 10,  32 << 10,  256 << 10, 2 << 20,
                                       16 << 20, 128 << 20, 256 << 20};

/// Memory of a backend, or pinned memory, freed at the end.
using Memory = std::unique_ptr<void, std::function<void(void*)>>;

Memory device_memory(kernels::Backend& backend, std::int64_t bytes) {
  return {backend.allocate(bytes), [&backend](void* memory) { backend.free(memory); }};
}

Memory pinned_memory(const std::shared_ptr<StagingMemory>& staging, std::int64_t bytes) {
  return {staging->allocate_host(bytes), [staging](void* memory) { staging->free_host(memory); }};
}

}  // namespace

std::span<const std::int64_t> copy_sizes() {
  return kCopySizes;
}

std::vector<program::CopySample> measure_copies(Device& device, std::span<const std::int64_t> sizes,
                                                Seconds budget_per_case) {
  const std::shared_ptr<StagingMemory> staging = device.make_staging();
  require_invariant(staging != nullptr, "copies are measured on a device with memory of its own");
  const std::int64_t largest = *std::ranges::max_element(sizes);
  const Memory from = device_memory(device.backend(), largest);
  const Memory to = device_memory(device.backend(), largest);
  const Memory host = pinned_memory(staging, largest);
  void* queue = device.queue(program::Lane::Compute);
  CallTimer timer(device);
  std::vector<program::CopySample> samples;
  for (const std::int64_t bytes : sizes) {
    const auto add = [&](const char* kind, const std::function<void()>& copy) {
      samples.push_back(
          {kind, bytes, median(timer.time({.call = copy, .capturable = false}, budget_per_case))});
    };
    add("host_to_device", [&] { staging->copy_to_device(to.get(), host.get(), bytes, queue); });
    add("device_to_host", [&] { staging->copy_to_host(host.get(), from.get(), bytes, queue); });
    add("device_to_device", [&] { device.backend().copy(to.get(), from.get(), bytes); });
  }
  return samples;
}

program::LaunchSample measure_launch(Device& device) {
  constexpr int kCalls = 200;  // fewer than a queue holds: the host never waits for the device
  constexpr int kRepeats = 7;
  const Seconds budget{0.05};
  const Memory memory = device_memory(device.backend(), 256);
  const std::function<void()> call = [&] {
    device.backend().run(kernels::Fill{.count = 1, .x = memory.get()});
  };
  CallTimer timer(device);
  program::LaunchSample sample;
  sample.device_seconds = median(timer.time({.call = call}, budget));
  sample.queued_seconds = median(timer.time({.call = call, .capturable = false}, budget));
  std::vector<double> host;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin = monotonic_seconds();
    for (int i = 0; i < kCalls; ++i) call();
    host.push_back((monotonic_seconds() - begin) / kCalls);
    device.synchronize();
  }
  sample.host_seconds = median(std::move(host));
  return sample;
}

}  // namespace meshplan::runtime
