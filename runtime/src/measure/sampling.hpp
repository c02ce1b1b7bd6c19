// Timing many cases on a machine that others use, too: which case is timed when, which timings
// count, and what they say together. Pure: clocks and ranks belong to the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace meshplan::runtime {

/// One timing, and the evidence that something else ran meanwhile.
struct TimedSample {
  double seconds = 0;
  double off_core_s = 0;   // that the kernel took the core away from the thread
  double reference_s = 0;  // the slower one of reference products before and after; 0 = none
};

/// Something else had the core for more than 2 % of the time, or the reference product took more
/// than 10 % longer than usual. @param usual_reference_s  0 = not known
bool is_disturbed(const TimedSample& sample, double usual_reference_s);

/// Part of the undisturbed timings that are faster than what a case is said to take. Evidence for
/// it: docs/noise.md.
inline constexpr double kEstimateQuantile = 0.25;
/// Undisturbed timings of a case: fewer are worth another visit.
inline constexpr int kEnoughUndisturbed = 4;
/// The same of reference products: most of them may be disturbed, and alone they hardly vary.
inline constexpr double kUsualReference = 0.1;

/// What the timings of one case say.
struct Estimate {
  double seconds = 0;  // quantile of the undisturbed timings; of all, if there is none
  double p10_s = 0;
  double p90_s = 0;
  double median_s = 0;
  int samples = 0;
  int disturbed = 0;
};
/// @param fraction  0.5 where nothing tells disturbed timings from others
/// @throws InvariantError without samples
Estimate estimate(std::span<const TimedSample> samples, double usual_reference_s,
                  double fraction = kEstimateQuantile);

/// How much longer than undisturbed the timings of a visit took.
struct Stretch {
  double call_s = 0;  // of an undisturbed call, as estimate() says
  int calls = 0;
  double factor = 1;  // at least 1
};
/// What disturbances added to all of them together, as a part of their undisturbed time. Left out
/// are calls of less than 0.1 ms: clock and caches make more of these than other processes do.
double noise_of(std::span<const Stretch> stretches);

/// Timings of several cases that share a reference.
class SampleSet {
 public:
  explicit SampleSet(std::size_t cases) : samples_(cases) {}
  void add(std::size_t which, std::span<const TimedSample> samples);
  std::span<const TimedSample> of(std::size_t which) const { return samples_[which]; }
  /// For each case: were there samples, but fewer undisturbed ones than `enough`?
  std::vector<bool> lacking(int enough) const;
  /// kUsualReference of all reference products; 0 if there is none.
  double usual_reference() const;
  std::vector<double> references() const;
  int count() const;
  int disturbed() const;
  /// For each call of add() that had samples, in order.
  std::vector<Stretch> stretches() const;

 private:
  struct Visit {
    std::size_t which = 0;
    double seconds = 0;
    int samples = 0;
  };
  std::vector<std::vector<TimedSample>> samples_;
  std::vector<Visit> visits_;
};

struct RoundOptions {
  int rounds = 3;  // of all cases, so that a burst of another process meets one of several
  /// The rounds start no visit after it. The order of the cases decides what is left out.
  double total_s = std::numeric_limits<double>::infinity();
  double repeat_share = 0.5;  // of the time that the rounds took, for further visits
  int most_repeats = 3;       // of a case
};

/// What is timed. Of several ranks all call the same functions in the same order, so what
/// `seconds`, `worthwhile` and `lacking` say must be alike on all of them.
struct SampledWork {
  std::vector<std::size_t> order;                     // cases, most wanted first
  std::function<void(std::size_t)> visit;             // times one case a few times
  std::function<double()> seconds;                    // since the start
  std::function<std::vector<std::size_t>()> lacking;  // cases with too few undisturbed samples
  std::function<bool(std::size_t)> worthwhile =
      {};  // asked before a first visit, twice if not; empty: all
};

struct Visits {
  int first = 0;     // cases that were visited at all
  int repeated = 0;  // beyond the rounds
};

/// Visits every case once a round, then those that lack undisturbed samples, until none does or
/// the time for repeats is spent.
Visits visit_in_rounds(const SampledWork& work, const RoundOptions& options);

/// 0 to count - 1, from coarse to fine: the first, the middle, the last, then the middles of the
/// widest gaps, upper ones first. Whatever is cut off, the range is covered.
std::vector<std::size_t> coarse_to_fine(std::size_t count);

}  // namespace meshplan::runtime
