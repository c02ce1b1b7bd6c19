// Rounds, disturbances and estimates on a machine whose clock and neighbours are made up.
#include "measure/sampling.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/error.hpp"
#include "core/statistics.hpp"

namespace meshplan::runtime {
namespace {

/// Another process wants the core in bursts: while one lasts, work takes twice as long. Either the
/// kernel takes turns (the thread is off its core for half of the time), or the other one runs on
/// the same core's second thread (only the reference product shows it).
class SharedCore {
 public:
  enum class Neighbour { TakesTurns, SharesTheCore };
  SharedCore(Neighbour neighbour, double burst_s, double pause_s) : neighbour_(neighbour) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> around(0.5, 1.5);
    for (double at = pause_s / 4; at < 50;) {
      bursts_.push_back({at, at + burst_s * around(random)});
      at = bursts_.back().second + pause_s * around(random);
    }
  }

  double now() const { return now_; }

  /// Work that takes `seconds` alone. @returns how it went, without a reference
  TimedSample run(double seconds) {
    const double begin = now_;
    double lost = 0;
    constexpr double kTick = 1e-4;
    for (double done = 0; done < seconds - kTick / 2; now_ += kTick) {
      const bool shared = in_burst();
      done += shared ? kTick / 2 : kTick;
      if (shared && neighbour_ == Neighbour::TakesTurns) lost += kTick / 2;
    }
    return {.seconds = now_ - begin, .off_core_s = lost};
  }

  /// A few timings of one case between two reference products of 1 ms.
  std::vector<TimedSample> visit(double seconds, int repeats) {
    const double before = run(1e-3).seconds;
    std::vector<TimedSample> samples;
    for (int i = 0; i < repeats; ++i) samples.push_back(run(seconds));
    const double slower = std::max(before, run(1e-3).seconds);
    for (TimedSample& sample : samples) sample.reference_s = slower;
    return samples;
  }

 private:
  bool in_burst() const {
    return std::ranges::any_of(
        bursts_, [this](const auto& burst) { return burst.first <= now_ && now_ < burst.second; });
  }

  Neighbour neighbour_;
  std::vector<std::pair<double, double>> bursts_;
  double now_ = 0;
};

constexpr std::size_t kCases = 30;
/// Alone, in seconds.
double truth(std::size_t which) {
  return 5e-3 + 1e-3 * static_cast<double>(which % 7);
}

struct Outcome {
  SampleSet samples{kCases};
  Visits visits;
};

Outcome measure(SharedCore& core, const RoundOptions& options) {
  Outcome outcome;
  SampledWork work{
      .order = {},
      .visit = [&](std::size_t which) { outcome.samples.add(which, core.visit(truth(which), 2)); },
      .seconds = [&] { return core.now(); },
      .lacking =
          [&] {
            std::vector<std::size_t> which;
            const std::vector<bool> lacking = outcome.samples.lacking(4);
            for (std::size_t i = 0; i < kCases; ++i)
              if (lacking[i]) which.push_back(i);
            return which;
          }};
  for (std::size_t i = 0; i < kCases; ++i) work.order.push_back(i);
  outcome.visits = visit_in_rounds(work, options);
  return outcome;
}

double worst_error(const Outcome& outcome) {
  double worst = 0;
  for (std::size_t i = 0; i < kCases; ++i) {
    const Estimate found = estimate(outcome.samples.of(i), outcome.samples.usual_reference());
    worst = std::max(worst, std::abs(found.seconds / truth(i) - 1));
  }
  return worst;
}

}  // namespace

// A fifth of the time somebody else wants the core, in bursts of about a quarter of a second, which
// outlast several cases. Timed once, one after another, some cases have no undisturbed timing; in
// rounds with repeats every case is found exactly.
TEST_CASE("Rounds and repeats see every case undisturbed", "[runtime][sampling]") {
  const auto neighbour =
      GENERATE(SharedCore::Neighbour::TakesTurns, SharedCore::Neighbour::SharesTheCore);
  SharedCore core(neighbour, 0.25, 1.0);
  CHECK(worst_error(measure(core, {})) < 0.03);  // a clock of 0.1 ms
  SharedCore same(neighbour, 0.25, 1.0);
  CHECK(worst_error(measure(same, {.rounds = 1, .most_repeats = 0})) > 0.5);
}

TEST_CASE("Only what was disturbed is timed again", "[runtime][sampling]") {
  SharedCore quiet(SharedCore::Neighbour::TakesTurns, 0.25, 1e6);
  const Outcome outcome = measure(quiet, {});
  CHECK(outcome.visits.first == kCases);
  CHECK(outcome.visits.repeated == 0);
  CHECK(outcome.samples.count() == 3 * 2 * kCases);
  CHECK(outcome.samples.disturbed() == 0);
}

// On a core that is never alone no repeat helps: they end after half of the rounds' time.
TEST_CASE("Repeats are bounded in time and number", "[runtime][sampling]") {
  SharedCore never_alone(SharedCore::Neighbour::TakesTurns, 1e6, 1e-9);
  const Outcome outcome = measure(never_alone, {.most_repeats = 100});
  SharedCore same(SharedCore::Neighbour::TakesTurns, 1e6, 1e-9);
  measure(same, {.most_repeats = 0});
  const double longest_visit = 2 * (2 * truth(6) + 2e-3);
  CHECK(never_alone.now() <= 1.5 * same.now() + longest_visit);
  CHECK(outcome.visits.repeated > 0);
  CHECK(outcome.samples.disturbed() == outcome.samples.count());
  SharedCore third(SharedCore::Neighbour::TakesTurns, 1e6, 1e-9);
  CHECK(measure(third, {.repeat_share = 1e9, .most_repeats = 2}).visits.repeated == 2 * kCases);
}

// A fifth of the time work takes twice as long: 1 / (1 - 0.2 / 2) = 1.11 times its undisturbed
// time.
TEST_CASE("Noise is what disturbances add over the whole time", "[runtime][sampling]") {
  const auto neighbour =
      GENERATE(SharedCore::Neighbour::TakesTurns, SharedCore::Neighbour::SharesTheCore);
  SharedCore core(neighbour, 0.25, 1.0), quiet(neighbour, 0.25, 1e6);
  const RoundOptions rounds{.rounds = 30, .most_repeats = 0};
  CHECK(noise_of(measure(core, rounds).samples.stretches()) == Approx(0.11).margin(0.03));
  const std::vector<Stretch> none = measure(quiet, rounds).samples.stretches();
  CHECK(none.size() == 30 * kCases);
  CHECK(noise_of(none) == Approx(0).margin(0.01));
  CHECK(noise_of({}) == 0);
}

// 2 calls of 1 s and 1 of 2 s, of which the latter took half as long again: 1 s of 4.
TEST_CASE("Noise weighs what it is seen on by its time", "[runtime][sampling]") {
  CHECK(noise_of(std::vector<Stretch>{{.call_s = 1, .calls = 2, .factor = 1},
                                      {.call_s = 2, .calls = 1, .factor = 1.5},
                                      {.call_s = 1e-5, .calls = 1000, .factor = 9}}) == 0.25);
}

TEST_CASE("A sample is disturbed if its core or its reference was", "[runtime][sampling]") {
  CHECK_FALSE(is_disturbed({.seconds = 1, .off_core_s = 0.01, .reference_s = 1.05}, 1));
  CHECK(is_disturbed({.seconds = 1, .off_core_s = 0.03, .reference_s = 1}, 1));
  CHECK(is_disturbed({.seconds = 1, .reference_s = 1.2}, 1));
  CHECK_FALSE(is_disturbed({.seconds = 1, .reference_s = 1.2}, 0));  // usual one not known
  CHECK_FALSE(is_disturbed({.seconds = 1}, 1));                      // none beside it
}

// The first quartile of 1 to 9 by definition 7: 1 + 8 / 4 = 3.
TEST_CASE("An estimate is a low quantile of undisturbed timings", "[runtime][sampling]") {
  std::vector<TimedSample> samples;
  for (int i = 9; i >= 1; --i) samples.push_back({.seconds = static_cast<double>(i)});
  samples.push_back({.seconds = 0.5, .off_core_s = 0.4});
  samples.push_back({.seconds = 50, .off_core_s = 40});
  const Estimate found = estimate(samples, 0);
  CHECK(found.seconds == 3);
  CHECK(estimate(samples, 0, 0.5).seconds == 5);
  CHECK(found.median_s == 5);
  CHECK(found.samples == 11);
  CHECK(found.disturbed == 2);
}

TEST_CASE("Where everything was disturbed all timings count", "[runtime][sampling]") {
  std::vector<TimedSample> samples;
  for (const double seconds : {4.0, 5.0, 6.0, 7.0, 8.0})
    samples.push_back({.seconds = seconds, .off_core_s = 1});
  CHECK(estimate(samples, 0).seconds == 5);
  CHECK_THROWS_AS(estimate({}, 0), InvariantError);
}

TEST_CASE("From coarse to fine the ends come first and every index once", "[runtime][sampling]") {
  for (std::size_t count = 0; count < 40; ++count) {
    const std::vector<std::size_t> order = coarse_to_fine(count);
    CHECK(std::set<std::size_t>(order.begin(), order.end()).size() == count);
    REQUIRE(order.size() == count);
    if (count < 3) continue;
    CHECK(std::set<std::size_t>(order.begin(), order.begin() + 3) ==
          std::set<std::size_t>{0, (count - 1) / 2, count - 1});
  }
  CHECK(coarse_to_fine(9) == std::vector<std::size_t>{0, 4, 8, 6, 2, 7, 5, 3, 1});
}

// Six sizes of two series, a second each, and time for four: both ends of both series.
TEST_CASE("A short budget covers the range", "[runtime][sampling]") {
  constexpr std::size_t kSizes = 6;
  double now = 0;
  std::multiset<std::size_t> visited;
  SampledWork work{.order = {},
                   .visit =
                       [&](std::size_t which) {
                         visited.insert(which);
                         now += 1;
                       },
                   .seconds = [&] { return now; },
                   .lacking = [] { return std::vector<std::size_t>{}; }};
  for (const std::size_t size : coarse_to_fine(kSizes))
    for (const std::size_t series : {0, 1}) work.order.push_back(series * kSizes + size);
  const Visits visits = visit_in_rounds(work, {.total_s = 5.5});
  CHECK(visits.first == 6);
  CHECK(visited == std::multiset<std::size_t>{0, 2, 5, 6, 8, 11});
}

// 3 seems too slow until 2 is known, 4 for ever.
TEST_CASE("What seems too slow is asked again when its neighbours are known",
          "[runtime][sampling]") {
  std::vector<std::size_t> visited;
  SampledWork work{.order = {0, 4, 3, 1, 2},
                   .visit = [&](std::size_t which) { visited.push_back(which); },
                   .seconds = [] { return 0.0; },
                   .lacking = [] { return std::vector<std::size_t>{}; },
                   .worthwhile =
                       [&](std::size_t which) {
                         const bool knows = std::ranges::find(visited, 2U) != visited.end();
                         return which < 3 || (which == 3 && knows);
                       }};
  CHECK(visit_in_rounds(work, {.rounds = 2}).first == 4);
  CHECK(visited == std::vector<std::size_t>{0, 1, 2, 3, 0, 1, 2, 3});
}

}  // namespace meshplan::runtime
