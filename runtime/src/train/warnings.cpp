#include "train/warnings.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/statistics.hpp"
#include "core/units.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::size_t kHistory = 32;      // losses
constexpr std::size_t kLeastHistory = 8;  // before there is a usual loss
constexpr double kDeviations = 2.5631;    // of normal noise from the 10th to the 90th percentile
constexpr double kLeastSpread = 0.01;     // of the median
constexpr int kSlowSteps = 5;
constexpr double kKept = 0.8;  // of a slow step's weight with each further one

}  // namespace

LossSpikes::LossSpikes(double threshold, std::span<const double> history) : threshold_(threshold) {
  const std::size_t skipped = history.size() > kHistory ? history.size() - kHistory : 0;
  for (const double loss : history.subspan(skipped)) history_.push_back(loss);
}

bool LossSpikes::is_spike(double loss, double& usual) const {
  if (threshold_ <= 0 || history_.size() < kLeastHistory) return false;
  const Spread losses = spread_of({history_.begin(), history_.end()});
  usual = losses.median;
  const double spread =
      std::max((losses.p90 - losses.p10) / kDeviations, kLeastSpread * std::abs(usual));
  return loss > usual + threshold_ * spread;
}

std::optional<std::string> LossSpikes::check(double loss) {
  double usual = 0;
  const bool was_in_spike = in_spike_;
  in_spike_ = is_spike(loss, usual);
  history_.push_back(loss);
  if (history_.size() > kHistory) history_.pop_front();
  if (!in_spike_ || was_in_spike) return std::nullopt;
  return fmt::format("the loss jumps to {:.4f} from a median of {:.4f} over the last {} steps",
                     loss, usual, history_.size() - 1);
}

SlowRanks::SlowRanks(double factor, std::vector<int> stages)
    : factor_(factor),
      stages_(std::move(stages)),
      slow_steps_(stages_.size()),
      own_(stages_.size()),
      others_(stages_.size()) {}

std::vector<SlowRanks::Found> SlowRanks::check(std::span<const double> computing_s) {
  std::vector<Found> found;
  if (factor_ <= 0) return found;
  std::vector<double> others;
  for (std::size_t rank = 0; rank < stages_.size(); ++rank) {
    others.clear();
    for (std::size_t other = 0; other < stages_.size(); ++other)
      if (other != rank && stages_[other] == stages_[rank]) others.push_back(computing_s[other]);
    const double usual = others.empty() ? 0 : median(others);
    const bool slow = usual > 0 && computing_s[rank] > factor_ * usual;
    slow_steps_[rank] = slow ? slow_steps_[rank] + 1 : 0;
    own_[rank] = slow ? kKept * own_[rank] + computing_s[rank] : 0;
    others_[rank] = slow ? kKept * others_[rank] + usual : 0;
    if (slow_steps_[rank] < kSlowSteps) continue;
    const double times = own_[rank] / others_[rank];
    found.push_back({.rank = {.rank = static_cast<int>(rank), .times = times}, .warning = ""});
    if (slow_steps_[rank] == kSlowSteps)
      found.back().warning = fmt::format(
          "rank {} has computed {:.2f} x as long as the other ranks of stage {} for {} timed "
          "steps ({:.1f} ms against {:.1f} ms)",
          rank, times, stages_[rank], kSlowSteps, computing_s[rank] * kMilliseconds,
          usual * kMilliseconds);
  }
  std::ranges::stable_sort(
      found, {}, [](const Found& one) { return std::pair(one.warning.empty(), -one.rank.times); });
  return found;
}

}  // namespace meshplan::runtime
