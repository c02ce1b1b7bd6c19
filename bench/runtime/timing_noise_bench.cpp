// What estimators of an operation's time are worth on a machine that others use: sessions of three
// visits, as a calibration makes, beside the median of all undisturbed timings.
//   timing_noise_bench [sessions]      default: 15, about a minute; beside scripts/disturber.sh,
//   say
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <vector>

#include "core/statistics.hpp"
#include "kernels/cpu_backend.hpp"
#include "measure/call_timer.hpp"
#include "measure/sampling.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/measure/reference_product.hpp"

namespace meshplan::runtime {
namespace {

struct Operation {
  const char* name;
  std::function<void()> run;
};

using Session = std::vector<TimedSample>;

/// What an estimator makes of every session, beside `typical`.
void judge(const char* name, const std::vector<Session>& sessions,
           const std::function<bool(const TimedSample&)>& counts, double fraction, double typical) {
  double sum = 0, squares = 0, worst = 0;
  for (const Session& session : sessions) {
    std::vector<double> seconds, all;
    for (const TimedSample& sample : session) {
      all.push_back(sample.seconds);
      if (counts(sample)) seconds.push_back(sample.seconds);
    }
    const double error = quantile(seconds.empty() ? all : seconds, fraction) / typical - 1;
    sum += error;
    squares += error * error;
    worst = std::max(worst, std::abs(error));
  }
  const auto count = static_cast<double>(sessions.size());
  fmt::print("  {:32} bias {:+7.2f} %  rms {:7.2f} %  worst {:7.2f} %\n", name, 100 * sum / count,
             100 * std::sqrt(squares / count), 100 * worst);
}

void report(const Operation& operation, const std::vector<Session>& sessions) {
  std::vector<double> references, quiet;
  for (const Session& session : sessions)
    for (const TimedSample& sample : session) references.push_back(sample.reference_s);
  const double usual = quantile(references, kUsualReference);
  for (const Session& session : sessions)
    for (const TimedSample& sample : session)
      if (!is_disturbed(sample, usual)) quiet.push_back(sample.seconds);
  fmt::print("{}: {} of {} timings disturbed\n", operation.name, references.size() - quiet.size(),
             references.size());
  if (quiet.empty()) return;
  const double typical = median(quiet);
  const auto all = [](const TimedSample&) { return true; };
  const auto undisturbed = [usual](const TimedSample& sample) {
    return !is_disturbed(sample, usual);
  };
  judge("median of all", sessions, all, 0.5, typical);
  judge("minimum of all", sessions, all, 0, typical);
  judge("median of undisturbed", sessions, undisturbed, 0.5, typical);
  judge("first quartile of undisturbed", sessions, undisturbed, 0.25, typical);
  judge("10th percentile of undisturbed", sessions, undisturbed, 0.1, typical);
  judge("minimum of undisturbed", sessions, undisturbed, 0, typical);
}

void measure(int num_sessions) {
  constexpr int kRounds = 3;
  constexpr std::int64_t kSmall = 4096, kLarge = 8 << 20;
  const auto backend = kernels::make_cpu_backend(1);
  HostDevice device(*backend);
  CallTimer timer(device);
  ReferenceProduct reference(kernels::make_cpu_backend(1));
  std::vector<float> sum(kLarge), value(kLarge, 1.0F);
  const auto add = [&](std::int64_t count, int times) {
    for (int i = 0; i < times; ++i)
      backend->run(kernels::Accumulate{.count = count, .sum = sum.data(), .value = value.data()});
  };
  const std::vector<Operation> operations = {
      {"additions in the cache, some us", [&] { add(kSmall, 10); }},
      {"additions in the cache, some ms", [&] { add(kSmall, 10000); }},
      {"additions in memory, 64 MiB", [&] { add(kLarge, 1); }}};
  std::vector<std::vector<Session>> sessions(
      operations.size(), std::vector<Session>(static_cast<std::size_t>(num_sessions)));
  for (std::size_t s = 0; s < static_cast<std::size_t>(num_sessions); ++s)
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t o = 0; o < operations.size(); ++o) {
        const Session visit =
            timer.sample({.call = operations[o].run}, Seconds{0.01}, 2, &reference);
        sessions[o][s].insert(sessions[o][s].end(), visit.begin(), visit.end());
      }
      const double until = monotonic_seconds() + 0.3;  // the other operators of a round
      while (monotonic_seconds() < until) add(kSmall, 100);
    }
  for (std::size_t o = 0; o < operations.size(); ++o) report(operations[o], sessions[o]);
}

}  // namespace
}  // namespace meshplan::runtime

int main(int argc, char** argv) {
  meshplan::runtime::measure(argc > 1 ? std::atoi(argv[1]) : 15);
}
