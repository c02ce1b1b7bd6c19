// How unevenly a router loads ranks, by how many of them share the experts.
#pragma once

#include <map>

namespace meshplan::program {

/// Rows of the busiest ep rank's experts over the mean of all ranks: what
/// Plan::expected_expert_imbalance says of one plan, for groups of any size.
class ExpertImbalance {
 public:
  /// The same over any number of ranks.
  ExpertImbalance(double everywhere = 1) : by_ranks_{{2, everywhere}} {}
  /// @param by_ranks  by the size of the group, at least 2; not empty
  explicit ExpertImbalance(std::map<int, double> by_ranks);

  /// 1 for one rank. Between two known sizes the geometric mean, weighted by how
  /// near they are in powers of two; beyond them what the nearest says.
  double over(int ep) const;
  bool operator==(const ExpertImbalance&) const = default;

 private:
  std::map<int, double> by_ranks_;
};

/// Rows of the busiest of `ranks` over their mean, where each holds as many neighbouring experts.
/// @param load  of each expert; `ranks` divides their number
template <class Loads>
double imbalance_over(const Loads& load, int ranks) {
  const auto held = load.size() / static_cast<decltype(load.size())>(ranks);
  double total = 0, busiest = 0;
  for (auto first = load.begin(); first != load.end();) {
    double own = 0;
    for (decltype(load.size()) i = 0; i < held; ++i) own += *first++;
    total += own;
    if (own > busiest) busiest = own;
  }
  return total > 0 ? busiest * ranks / total : 1;
}

/// The same over every number of ranks, from 2 on, that divides the experts.
template <class Loads>
std::map<int, double> imbalance_by_ranks(const Loads& load) {
  std::map<int, double> by_ranks;
  const auto experts = static_cast<int>(load.size());
  for (int ranks = 2; ranks <= experts; ++ranks)
    if (experts % ranks == 0) by_ranks[ranks] = imbalance_over(load, ranks);
  return by_ranks;
}

/// Of a router that sends the i-th busiest expert 1 / i^skew of what the first one gets (Zipf's
/// law), where experts are placed at random: the mean over 64 placements, always the same.
/// @param skew  at least 0, which is a balanced router
ExpertImbalance imbalance_of_skew(double skew, int num_experts);

}  // namespace meshplan::program
