#include "measure/sampling.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/statistics.hpp"

namespace meshplan::runtime {
namespace {

constexpr double kOffCore = 0.02;
constexpr double kSlowReference = 0.1;

std::vector<double> seconds_of(std::span<const TimedSample> samples) {
  std::vector<double> seconds;
  for (const TimedSample& sample : samples) seconds.push_back(sample.seconds);
  return seconds;
}

}  // namespace

bool is_disturbed(const TimedSample& sample, double usual_reference_s) {
  return sample.off_core_s > kOffCore * sample.seconds ||
         (usual_reference_s > 0 && sample.reference_s > (1 + kSlowReference) * usual_reference_s);
}

Estimate estimate(std::span<const TimedSample> samples, double usual_reference_s, double fraction) {
  require_invariant(!samples.empty(), "an estimate needs samples");
  std::vector<double> quiet;
  for (const TimedSample& sample : samples)
    if (!is_disturbed(sample, usual_reference_s)) quiet.push_back(sample.seconds);
  const int disturbed = static_cast<int>(samples.size() - quiet.size());
  if (quiet.empty()) quiet = seconds_of(samples);
  const Spread spread = spread_of(quiet);
  return {.seconds = quantile(quiet, fraction),
          .p10_s = spread.p10,
          .p90_s = spread.p90,
          .median_s = spread.median,
          .samples = static_cast<int>(samples.size()),
          .disturbed = disturbed};
}

void SampleSet::add(std::size_t which, std::span<const TimedSample> samples) {
  if (samples.empty()) return;
  samples_[which].insert(samples_[which].end(), samples.begin(), samples.end());
  Visit visit{.which = which, .samples = static_cast<int>(samples.size())};
  for (const TimedSample& sample : samples) visit.seconds += sample.seconds;
  visits_.push_back(visit);
}

double noise_of(std::span<const Stretch> stretches) {
  constexpr double kShortest = 1e-4;
  double undisturbed = 0, added = 0;
  for (const Stretch& stretch : stretches) {
    if (stretch.call_s < kShortest) continue;
    const double expected = stretch.calls * stretch.call_s;
    undisturbed += expected;
    added += (stretch.factor - 1) * expected;
  }
  return undisturbed > 0 ? added / undisturbed : 0;
}

std::vector<Stretch> SampleSet::stretches() const {
  const double usual = usual_reference();
  std::vector<double> undisturbed;
  for (const auto& samples : samples_)
    undisturbed.push_back(samples.empty() ? 0 : estimate(samples, usual).seconds);
  std::vector<Stretch> stretches;
  for (const Visit& visit : visits_) {
    const double call = undisturbed[visit.which];
    stretches.push_back({.call_s = call,
                         .calls = visit.samples,
                         .factor = std::max(1.0, visit.seconds / (visit.samples * call))});
  }
  return stretches;
}

std::vector<bool> SampleSet::lacking(int enough) const {
  const double usual = usual_reference();
  std::vector<bool> lacking;
  for (const auto& samples : samples_)
    lacking.push_back(!samples.empty() &&
                      std::ranges::count_if(samples, [usual](const TimedSample& sample) {
                        return !is_disturbed(sample, usual);
                      }) < enough);
  return lacking;
}

std::vector<double> SampleSet::references() const {
  std::vector<double> references;
  for (const auto& samples : samples_)
    for (const TimedSample& sample : samples)
      if (sample.reference_s > 0) references.push_back(sample.reference_s);
  return references;
}

double SampleSet::usual_reference() const {
  std::vector<double> all = references();
  return all.empty() ? 0 : quantile(std::move(all), kUsualReference);
}

int SampleSet::count() const {
  std::size_t count = 0;
  for (const auto& samples : samples_) count += samples.size();
  return static_cast<int>(count);
}

int SampleSet::disturbed() const {
  const double usual = usual_reference();
  std::ptrdiff_t count = 0;
  for (const auto& samples : samples_)
    count += std::ranges::count_if(
        samples, [usual](const TimedSample& sample) { return is_disturbed(sample, usual); });
  return static_cast<int>(count);
}

namespace {

/// What was not worthwhile is asked once more at the end, when its neighbours are known.
std::vector<std::size_t> first_round(const SampledWork& work, const RoundOptions& options) {
  std::vector<std::size_t> visited, deferred;
  const auto go_through = [&](const std::vector<std::size_t>& cases, bool defers) {
    for (const std::size_t which : cases) {
      if (work.seconds() > options.total_s) return;
      if (work.worthwhile && !work.worthwhile(which)) {
        if (defers) deferred.push_back(which);
        continue;
      }
      work.visit(which);
      visited.push_back(which);
    }
  };
  go_through(work.order, true);
  go_through(std::vector<std::size_t>(deferred), false);
  return visited;
}

}  // namespace

Visits visit_in_rounds(const SampledWork& work, const RoundOptions& options) {
  const std::vector<std::size_t> visited = first_round(work, options);
  Visits visits{.first = static_cast<int>(visited.size())};
  for (int round = 1; round < options.rounds; ++round)
    for (const std::size_t which : visited) {
      if (work.seconds() > options.total_s) break;
      work.visit(which);
    }
  const double deadline = (1 + options.repeat_share) * work.seconds();
  for (int repeat = 0; repeat < options.most_repeats; ++repeat) {
    const std::vector<std::size_t> lacking = work.lacking();
    if (lacking.empty()) break;
    for (const std::size_t which : lacking) {
      if (work.seconds() > deadline) return visits;
      work.visit(which);
      ++visits.repeated;
    }
  }
  return visits;
}

std::vector<std::size_t> coarse_to_fine(std::size_t count) {
  std::vector<std::size_t> order;
  std::vector<bool> taken(count, false);
  const auto take = [&](std::size_t which) {
    if (taken[which]) return;
    taken[which] = true;
    order.push_back(which);
  };
  if (count == 0) return order;
  take(0);
  take((count - 1) / 2);
  take(count - 1);
  while (order.size() < count) {
    std::vector<std::size_t> fixed;
    for (std::size_t i = 0; i < count; ++i)
      if (taken[i]) fixed.push_back(i);
    for (std::size_t i = fixed.size() - 1; i > 0; --i)
      if (fixed[i] - fixed[i - 1] > 1) take((fixed[i] + fixed[i - 1]) / 2);
  }
  return order;
}

}  // namespace meshplan::runtime
