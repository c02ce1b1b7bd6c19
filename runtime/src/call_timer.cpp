#include "runtime/call_timer.hpp"

#include <algorithm>
#include <cmath>

namespace meshplan::runtime {
namespace {

constexpr int kFewestRepeats = 5;
constexpr int kMostRepeats = 200;
/// Long against the 0.5 us that CUDA's events resolve, short against the budget of an operator.
constexpr double kBatchSeconds = 5e-4;
constexpr int kMostCalls = 64;
constexpr int kProbeCalls = 4;

}  // namespace

std::vector<double> CallTimer::time(const TimedCall& timed, Seconds budget) {
  return device_.rules().queues ? on_queues(timed, budget) : on_host(timed, budget);
}

std::vector<double> CallTimer::on_host(const TimedCall& timed, Seconds budget) {
  for (int i = 0; i < 2; ++i) timed.call();
  device_.synchronize();
  std::vector<double> times;
  const double begin = monotonic_seconds();
  double now = begin;
  while (now - begin < budget.value || static_cast<int>(times.size()) < kFewestRepeats) {
    timed.call();
    device_.synchronize();
    const double end = monotonic_seconds();
    times.push_back(end - now);
    now = end;
  }
  return times;
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
  const bool capture = timed.capturable && device_.rules().capture;
  if (capture) {
    if (graph_ < 0) graph_ = device_.new_graph();
    device_.begin_capture();
    calls(count);
    device_.end_capture(graph_);
    device_.synchronize();
  }
  std::vector<double> times;
  double spent = 0;
  while (static_cast<int>(times.size()) < kFewestRepeats ||
         (spent < budget.value && static_cast<int>(times.size()) < kMostRepeats)) {
    const double batch = between_stamps([&] {
      if (capture)
        device_.replay(graph_);
      else
        calls(count);
    });
    spent += batch;
    times.push_back(batch / count);
  }
  return times;
}

}  // namespace meshplan::runtime
