// Times several series of messages over a range of sizes, in rounds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "measure/measure_collectives.hpp"
#include "measure/sampling.hpp"
#include "measure/timed_group.hpp"

namespace meshplan::runtime {

/// One communication of one group.
struct MessageSeries {
  TimedGroup* group = nullptr;
  std::function<void(std::int64_t bytes)> once;
  std::function<void(std::int64_t bytes)> before = [](std::int64_t) {};  // of each, not timed
  double scale = 1;            // of what is timed, what a sample is of
  bool smallest_only = false;  // it has no size
};

/// Timings of each series and size, complete on the members of its group.
class MessageSweep {
 public:
  /// Called by all ranks at once; what is needed most comes first (coarse_to_fine of the sizes), so
  /// that a short budget still covers their range.
  MessageSweep(const MeasuredWorld& world, std::vector<MessageSeries> series,
               std::vector<std::int64_t> sizes, const MeasureOptions& options);

  /// Was it timed at all? Alike on all ranks.
  bool timed(std::size_t series, std::size_t size) const { return slowest_[at(series, size)] > 0; }
  /// @throws InvariantError on a rank that is no member
  Estimate estimate(std::size_t series, std::size_t size) const;
  /// What the first rank saw, which is a member of most groups. Collective over the world.
  program::Quietness quietness() const;

 private:
  std::size_t at(std::size_t series, std::size_t size) const {
    return series * sizes_.size() + size;
  }
  void visit(std::size_t which);
  bool worthwhile(std::size_t which) const;
  std::vector<std::size_t> lacking();

  Communicator& host_;
  std::vector<MessageSeries> series_;
  std::vector<std::int64_t> sizes_;
  const MeasureOptions& options_;
  bool evidence_;  // of disturbances
  VisitLimits limits_;
  SampleSet samples_;
  std::vector<double> slowest_;  // by case, seconds of the last visit's fastest; 0 = not timed
  Visits visits_;
};

template <class Sample>
void set_times(Sample& sample, const Estimate& estimate) {
  sample.repeats = estimate.samples;
  sample.seconds = estimate.seconds;
  sample.p10_s = estimate.p10_s;
  sample.p90_s = estimate.p90_s;
}

/// What rank `from` of the world has, every rank gets.
template <class Sample>
void share(Communicator& world, Sample& sample, int from) {
  world.broadcast({&sample, static_cast<std::int64_t>(sizeof(Sample)), DType::U8}, from).wait();
}

}  // namespace meshplan::runtime
