#include "measure/call_timer.hpp"

#include <algorithm>
#include <cmath>

#include "os/core_watch.hpp"

namespace meshplan::runtime {
namespace {

constexpr int kFewestRepeats = 5;
constexpr int kMostRepeats = 200;
constexpr int kMostOnHost = 1000;  // of calls that take less than the clock
/// Long against the 0.5 us that CUDA's events resolve, short against the budget of an operator.
constexpr double kBatchSeconds = 5e-4;
constexpr int kMostCalls = 64;
constexpr int kProbeCalls = 4;
/// Seconds that two reference products stand for: short against a burst of another process.
constexpr double kReferenceEvery = 0.01;

}  // namespace

std::vector<double> CallTimer::time(const TimedCall& timed, Seconds budget) {
  std::vector<double> seconds;
  for (const TimedSample& sample : sample(timed, budget, kFewestRepeats, nullptr))
    seconds.push_back(sample.seconds);
  return seconds;
}

std::vector<TimedSample> CallTimer::sample(const TimedCall& timed, Seconds budget, int fewest,
                                           ReferenceProduct* reference) {
  if (!device_.rules().queues) return on_host(timed, budget, fewest, reference);
  std::vector<TimedSample> samples;
  for (const double seconds : on_queues(timed, budget)) samples.push_back({.seconds = seconds});
  return samples;
}

std::vector<TimedSample> CallTimer::on_host(const TimedCall& timed, Seconds budget, int fewest,
                                            ReferenceProduct* reference) {
  const auto reference_now = [&] { return reference == nullptr ? 0 : reference->seconds(); };
  double before = reference_now();
  for (int i = 0; i < 2; ++i) timed.call();
  device_.synchronize();
  std::vector<TimedSample> samples;
  std::size_t judged = 0;  // samples that know the reference after them
  const auto judge = [&] {
    const double after = reference_now();
    for (; judged < samples.size(); ++judged) samples[judged].reference_s = std::max(before, after);
    before = after;
  };
  double spent = 0, unjudged = 0;
  while (static_cast<int>(samples.size()) < fewest ||
         (spent < budget.value && static_cast<int>(samples.size()) < kMostOnHost)) {
    const CoreWatch core;
    const double begin = monotonic_seconds();
    timed.call();
    device_.synchronize();
    const double seconds = monotonic_seconds() - begin;
    samples.push_back({.seconds = seconds, .off_core_s = core.lost_s(seconds)});
    spent += seconds;
    unjudged += seconds;
    if (unjudged < kReferenceEvery) continue;
    judge();
    unjudged = 0;
  }
  judge();
  return samples;
}

double CallTimer::between_stamps(const std::function<void()>& work) {
  device_.stamp(0, program::Lane::Compute);
  work();
  device_.stamp(1, program::Lane::Compute);
  device_.synchronize();
  return device_.stamp_seconds(1) - device_.stamp_seconds(0);
}

std::vector<double> CallTimer::on_queues(const TimedCall& timed, Seconds budget) {
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) timed.call();
  };
  calls(std::max(2, timed.distinct));  // libraries choose kernels, pages are mapped
  device_.synchronize();
  const double probe = between_stamps([&] { calls(kProbeCalls); }) / kProbeCalls;
  const int fitting = static_cast<int>(std::ceil(kBatchSeconds / std::max(probe, 1e-9)));
  const int count = std::clamp(std::max(fitting, timed.distinct), 1, kMostCalls);
  std::unique_ptr<CapturedGraph> graph;
  if (timed.capturable && device_.rules().capture) {
    device_.begin_capture();
    calls(count);
    graph = device_.end_capture();
    device_.synchronize();
  }
  std::vector<double> times;
  double spent = 0;
  while (static_cast<int>(times.size()) < kFewestRepeats ||
         (spent < budget.value && static_cast<int>(times.size()) < kMostRepeats)) {
    const double batch = between_stamps([&] {
      if (graph)
        graph->replay();
      else
        calls(count);
    });
    spent += batch;
    times.push_back(batch / count);
  }
  return times;
}

}  // namespace meshplan::runtime
