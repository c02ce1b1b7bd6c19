#include "measure/message_sweep.hpp"

#include <algorithm>
#include <utility>

namespace meshplan::runtime {
namespace {

int per_round(int repeats, int rounds) {
  return std::max(1, (repeats + rounds - 1) / rounds);
}

}  // namespace

MessageSweep::MessageSweep(const MeasuredWorld& world, std::vector<MessageSeries> series,
                           std::vector<std::int64_t> sizes, const MeasureOptions& options)
    : host_(world.host),
      series_(std::move(series)),
      sizes_(std::move(sizes)),
      options_(options),
      evidence_(world.reference != nullptr),
      samples_(series_.size() * sizes_.size()),
      slowest_(series_.size() * sizes_.size()) {
  const Stopwatch watch;
  SampledWork work{.order = {},
                   .visit = [this](std::size_t which) { visit(which); },
                   .seconds = [&] { return largest(host_, watch.seconds()); },
                   .lacking = [this] { return lacking(); },
                   .worthwhile = [this](std::size_t which) { return worthwhile(which); }};
  for (const std::size_t size : coarse_to_fine(sizes_.size()))
    for (std::size_t s = 0; s < series_.size(); ++s)
      if (size == 0 || !series_[s].smallest_only) work.order.push_back(at(s, size));
  const double visits =
      static_cast<double>(options.rounds) * static_cast<double>(work.order.size());
  limits_ = {.fewest = per_round(options.min_repeats, options.rounds),
             .most = per_round(options.max_repeats, options.rounds),
             .time = Seconds{std::min(options.budget_per_case.value / options.rounds,
                                      options.total_budget.value / std::max(1.0, visits))}};
  visits_ = visit_in_rounds(work, {.rounds = options.rounds,
                                   .total_s = options.total_budget.value,
                                   .most_repeats = options.most_revisits});
}

void MessageSweep::visit(std::size_t which) {
  MessageSeries& series = series_[which / sizes_.size()];
  const std::int64_t bytes = sizes_[which % sizes_.size()];
  double fastest = 0;
  if (series.group->member()) {
    std::vector<TimedSample> timed =
        series.group->sample([&] { series.once(bytes); }, [&] { series.before(bytes); }, limits_);
    fastest = std::ranges::min_element(timed, {}, &TimedSample::seconds)->seconds;
    for (TimedSample& sample : timed) {
      sample.seconds *= series.scale;
      sample.off_core_s *= series.scale;
    }
    samples_.add(which, timed);
  }
  slowest_[which] = largest(host_, fastest);
}

/// Going on in proportion from the next smaller message, one of 64 KiB where that is mere latency:
/// would the fewest calls take more than a tenth of the whole budget?
bool MessageSweep::worthwhile(std::size_t which) const {
  constexpr double kMostOfBudget = 0.1;
  constexpr std::int64_t kLatency = 64 << 10;
  const std::size_t size = which % sizes_.size();
  for (std::size_t smaller = size; smaller-- > 0;) {
    const std::size_t other = which - size + smaller;
    if (slowest_[other] <= 0) continue;
    const double times_larger = static_cast<double>(sizes_[size]) /
                                static_cast<double>(std::max(kLatency, sizes_[smaller]));
    const double expected = slowest_[other] * std::max(1.0, times_larger);
    return expected * (limits_.fewest + 1) <= kMostOfBudget * options_.total_budget.value;
  }
  return true;
}

std::vector<std::size_t> MessageSweep::lacking() {
  return on_any_rank(host_, samples_.lacking(std::min(kEnoughUndisturbed, options_.min_repeats)));
}

Estimate MessageSweep::estimate(std::size_t series, std::size_t size) const {
  return runtime::estimate(samples_.of(at(series, size)), samples_.usual_reference(),
                           evidence_ ? kEstimateQuantile : 0.5);
}

program::Quietness MessageSweep::quietness() const {
  std::int64_t counts[2] = {evidence_ ? samples_.count() : 0, samples_.disturbed()};
  host_.broadcast({counts, 2, DType::I64}, 0).wait();
  return {.samples = static_cast<int>(counts[0]),
          .disturbed = static_cast<int>(counts[1]),
          .repeated_visits = visits_.repeated};
}

}  // namespace meshplan::runtime
