#include "planner/failures/failure_play.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <queue>
#include <random>

#include "core/error.hpp"
#include "core/statistics.hpp"

namespace meshplan::planner {
namespace {

/// Exponential gaps. std::exponential_distribution differs between libraries, this does not.
class Gaps {
 public:
  explicit Gaps(std::uint64_t seed) : bits_(seed) {}
  double next(double mean) {
    const double uniform = static_cast<double>(bits_() >> 11) * 0x1.0p-53;  // [0, 1)
    return -mean * std::log1p(-uniform);
  }

 private:
  std::mt19937_64 bits_;
};

/// Seeds of trials that lie far apart (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
/// number generators", SplitMix64).
std::uint64_t seed_of(std::uint64_t seed, int trial) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(trial) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// One trial. Times are seconds from its beginning.
class Trial {
 public:
  Trial(const FailureCosts& costs, double interval_s, double horizon_s, std::uint64_t seed)
      : costs_(costs),
        interval_s_(interval_s),
        horizon_s_(horizon_s),
        gaps_(seed),
        healthy_(costs.num_nodes + costs.spare_nodes) {}

  void run() {
    while (now_ < horizon_s_) {
      if (speed() > 0)
        train();
      else
        wait();
    }
  }

  double failures() const { return failures_; }
  /// Parts of the trial's time.
  TimeParts parts() const {
    return {.useful = seconds_.useful / horizon_s_,
            .lost = seconds_.lost / horizon_s_,
            .saving = seconds_.saving / horizon_s_,
            .restart = seconds_.restart / horizon_s_,
            .smaller = seconds_.smaller / horizon_s_};
  }

 private:
  int running() const { return std::min(costs_.num_nodes, healthy_); }
  double speed() const { return costs_.worlds.speed(running()); }
  double gap_to_failure() {
    return gaps_.next(costs_.mtbf_s * costs_.num_nodes / std::max(1, running()));
  }

  void fail() {
    ++failures_;
    --healthy_;
    repairs_.push(now_ + costs_.repair_s);
  }

  double next_repair() const {
    return repairs_.empty() ? std::numeric_limits<double>::infinity() : repairs_.top();
  }
  void take_repaired() {
    repairs_.pop();
    ++healthy_;
  }
  void take_all_repaired() {
    while (next_repair() <= now_) take_repaired();
  }

  /// No replica is whole: stands still until a node is back.
  void wait() {
    const double end = std::min(next_repair(), horizon_s_);
    seconds_.smaller += end - now_;
    now_ = end;
    take_all_repaired();
    if (now_ < horizon_s_ && speed() > 0) restart(costs_.start_s + costs_.checkpoint.load_s);
  }

  /// Restarts until no failure comes before training goes on.
  void restart(double seconds) {
    while (now_ < horizon_s_) {
      const double gap = gap_to_failure();
      const double end = std::min(now_ + std::min(gap, seconds), horizon_s_);
      const bool fails = gap < seconds && now_ + gap < horizon_s_;
      seconds_.restart += end - now_;
      now_ = end;
      take_all_repaired();
      if (!fails) return;
      fail();
      if (speed() == 0) return;
      seconds = costs_.restart_s();
    }
  }

  /// From a restart to the next failure, or to the checkpoint at which a node joins.
  void train() {
    const double begin = now_, speed_now = speed();
    const double cycle = interval_s_ + costs_.checkpoint.stall_s;
    double end = begin + gap_to_failure();
    const bool fails = end < horizon_s_;
    end = std::min(end, horizon_s_);
    bool joins = false;
    while (!joins && next_repair() <= end) {
      const double at = next_repair();
      take_repaired();
      const double checkpoint = begin + std::ceil(std::max(0.0, at - begin) / cycle) * cycle;
      joins = speed() > speed_now && checkpoint < end;
      if (joins) end = checkpoint;
    }
    now_ = end;
    account(end - begin, speed_now, cycle, fails && !joins);
    if (joins) {
      restart(costs_.rejoin_s());
    } else if (fails) {
      fail();
      if (speed() > 0) restart(costs_.restart_s());
    }
  }

  /// @param elapsed  since the checkpoint that training went on from
  void account(double elapsed, double speed_now, double cycle, bool fails) {
    const double cycles = std::floor(elapsed / cycle);
    const double rest = elapsed - cycles * cycle;
    const double work = cycles * interval_s_ + std::min(rest, interval_s_);
    seconds_.saving += elapsed - work;
    seconds_.smaller += (1 - speed_now) * work;
    double lost = 0;
    if (fails) {
      const double complete =
          std::max(0.0, std::floor((elapsed - costs_.checkpoint.lag_s) / cycle));
      lost = work - complete * interval_s_;
    }
    seconds_.lost += speed_now * lost;
    seconds_.useful += speed_now * (work - lost);
  }

  const FailureCosts& costs_;
  double interval_s_;
  double horizon_s_;
  Gaps gaps_;
  int healthy_;  // nodes, spares among them
  std::priority_queue<double, std::vector<double>, std::greater<>> repairs_;
  double now_ = 0;
  double failures_ = 0;
  TimeParts seconds_;
};

void require_playable(const FailureCosts& costs, const PlayOptions& options) {
  if (!(options.days > 0 && options.days <= kMostDays))
    throw ConfigError(fmt::format("{:g} days to play; expected more than 0 and at most {:g}",
                                  options.days, kMostDays));
  if (options.trials < 1 || options.trials > kMostTrials)
    throw ConfigError(fmt::format("{} trials; expected 1 to {}; nearest: {}", options.trials,
                                  kMostTrials, options.trials < 1 ? 1 : kMostTrials));
  const double failures = options.days * kDaySeconds / costs.mtbf_s * options.trials;
  if (failures > kMostPlayedFailures)
    throw ConfigError(fmt::format(
        "{} trials of {:g} days have {:.2g} failures, which takes too long to play; "
        "nearest: {} trials",
        options.trials, options.days, failures,
        std::max(1, static_cast<int>(options.trials * kMostPlayedFailures / failures))));
}

}  // namespace

FailurePlay play_failures(const FailureCosts& costs, double interval_s,
                          const PlayOptions& options) {
  require_playable(costs, options);
  FailurePlay play;
  std::vector<double> goodputs;
  for (int i = 0; i < options.trials; ++i) {
    Trial trial(costs, interval_s, options.days * kDaySeconds, seed_of(options.seed, i));
    trial.run();
    const TimeParts parts = trial.parts();
    goodputs.push_back(parts.useful);
    play.failures += trial.failures() / options.trials;
    play.parts.useful += parts.useful / options.trials;
    play.parts.lost += parts.lost / options.trials;
    play.parts.saving += parts.saving / options.trials;
    play.parts.restart += parts.restart / options.trials;
    play.parts.smaller += parts.smaller / options.trials;
  }
  double squares = 0;
  for (const double goodput : goodputs) squares += std::pow(goodput - play.parts.useful, 2);
  if (options.trials > 1)
    play.standard_error = std::sqrt(squares / (options.trials - 1) / options.trials);
  play.low = quantile(goodputs, 0.05);
  play.high = quantile(goodputs, 0.95);
  play.paid_goodput = play.parts.useful * costs.num_nodes / (costs.num_nodes + costs.spare_nodes);
  return play;
}

}  // namespace meshplan::planner
