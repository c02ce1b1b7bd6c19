#include "program/plan/expert_imbalance.hpp"

#include <cmath>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace meshplan::program {

ExpertImbalance::ExpertImbalance(std::map<int, double> by_ranks) : by_ranks_(std::move(by_ranks)) {
  require_invariant(!by_ranks_.empty() && by_ranks_.begin()->first >= 2,
                    "an imbalance is of several ranks");
}

double ExpertImbalance::over(int ep) const {
  if (ep <= 1) return 1;
  const auto above = by_ranks_.lower_bound(ep);
  if (above == by_ranks_.end()) return by_ranks_.rbegin()->second;
  if (above == by_ranks_.begin() || above->first == ep) return above->second;
  const auto below = std::prev(above);
  const double weight = std::log2(static_cast<double>(ep) / below->first) /
                        std::log2(static_cast<double>(above->first) / below->first);
  return std::pow(below->second, 1 - weight) * std::pow(above->second, weight);
}

ExpertImbalance imbalance_of_skew(double skew, int num_experts) {
  constexpr int kPlacements = 64;
  std::vector<double> load;
  for (int i = 1; i <= num_experts; ++i) load.push_back(std::pow(i, -skew));
  std::map<int, double> sums;
  std::mt19937 random(1);  // NOLINT: the same placements every time
  for (int placement = 0; placement < kPlacements; ++placement) {
    for (std::size_t i = load.size(); i > 1; --i)  // std::shuffle differs by library
      std::swap(load[i - 1], load[random() % i]);
    for (const auto& [ranks, imbalance] : imbalance_by_ranks(load)) sums[ranks] += imbalance;
  }
  if (sums.empty()) return {};
  for (auto& [ranks, sum] : sums) sum /= kPlacements;
  return ExpertImbalance(std::move(sums));
}

}  // namespace meshplan::program
