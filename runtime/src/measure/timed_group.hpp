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

#include "measure/measure_collectives.hpp"
#include "measure/sampling.hpp"

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
/// The cases that any rank of a group marks, ascending.
std::vector<std::size_t> on_any_rank(Communicator& comm, const std::vector<bool>& marked);

/// How often one case is timed in one visit.
struct VisitLimits {
  int fewest = 2;
  int most = 17;
  Seconds time{0.03};  // wall time; fewer than `fewest` only where these take four times as long
};

/// Some ranks: what moves the data, and what moves times. One and the same without a device.
class TimedGroup {
 public:
  /// Called by all ranks at once.
  TimedGroup(const MeasuredWorld& world, std::span<const int> members, std::string_view name);
  bool member() const { return host_ != nullptr; }
  Communicator& moves() { return moves_ == nullptr ? *host_ : *moves_; }

  /// Times `once` a few times after a warm-up; by the members alone. Times and evidence are those
  /// of the slowest member.
  /// @param before  of every call, not timed
  std::vector<TimedSample> sample(const std::function<void()>& once,
                                  const std::function<void()>& before, const VisitLimits& limits);

 private:
  TimedSample time(const std::function<void()>& once, int calls);
  double reference();
  int calls_at_once(const std::function<void()>& once);

  Device* device_;
  ReferenceProduct* reference_;  // null where nothing is to be seen: a device, too few cores
  bool device_drives_;
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> moves_;
};

}  // namespace meshplan::runtime
