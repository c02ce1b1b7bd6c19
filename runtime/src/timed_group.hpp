// How communication is timed: what collectives (measure_collectives.cpp) and links
// (measure_links.cpp) share.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/statistics.hpp"
#include "runtime/measure_collectives.hpp"

namespace meshplan::runtime {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Memory that messages lie in: the device's, or the host's where there is none. Touched once.
class MeasuredMemory {
 public:
  MeasuredMemory(const MeasuredWorld& world, std::int64_t bytes);
  std::byte* data() { return static_cast<std::byte*>(memory_.get()); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, std::function<void(void*)>> memory_;
  std::int64_t bytes_;
};

/// MeasureOptions::bytes after defaults.
std::vector<std::int64_t> message_sizes(const MeasureOptions& options);

/// Does the device start and end communication, rather than the host?
bool device_drives(const MeasuredWorld& world);

/// The largest of one number over a group: all ranks decide alike.
double largest(Communicator& comm, double value);

/// Some ranks: what moves the data, and what moves times. One and the same without a device.
class TimedGroup {
 public:
  /// Called by all ranks at once.
  TimedGroup(const MeasuredWorld& world, std::span<const int> members, std::string_view name);
  bool member() const { return host_ != nullptr; }
  Communicator& moves() { return moves_ == nullptr ? *host_ : *moves_; }
  Communicator& host() { return *host_; }

  /// Seconds of `once`, as this rank sees it; all members of the group enter together.
  double seconds_of(const std::function<void()>& once, int calls);
  bool queues_calls() const { return device_drives_; }

 private:
  Device* device_;
  bool device_drives_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> moves_;
};

/// Times of `once`, each that of the slowest rank, until the budget or max_repeats is spent. Fewer
/// than min_repeats only where these would take more than four budgets.
/// @param before  of every call, not timed
std::vector<double> time_repeats(
    TimedGroup& group, const std::function<void()>& once, const MeasureOptions& options,
    const std::function<void()>& before = [] {});

/// @param scale  of what was timed, what the sample is of
template <class Sample>
void set_times(Sample& sample, const std::vector<double>& times, double scale) {
  const Spread spread = spread_of(times);
  sample.repeats = static_cast<int>(times.size());
  sample.seconds = spread.median * scale;
  sample.p10_s = spread.p10 * scale;
  sample.p90_s = spread.p90 * scale;
}

}  // namespace meshplan::runtime
