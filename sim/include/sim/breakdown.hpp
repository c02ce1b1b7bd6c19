// Where the wall time of a step goes, for each rank: every instant in exactly one category, and
// communication only where no computation hides it. Works on predicted and measured traces alike.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "program/trace.hpp"

namespace meshplan::sim {

enum class Category {
  Forward,
  Backward,
  Recompute,
  Tp,  // exposed tensor-parallel communication, and so on
  Sp,
  Cp,
  Ep,
  Pp,
  Dp,
  Bubble,  // waiting for another stage to start its send, or for the last stage to arrive
  Optimizer,
  Host,   // loading data; nothing issued before the first operation
  Other,  // nothing in progress between operations
};
constexpr int kNumCategories = 13;

std::string_view name_of(Category category);
/// All categories in order, for tables.
constexpr std::array<Category, kNumCategories> all_categories() {
  return {Category::Forward, Category::Backward, Category::Recompute, Category::Tp,
          Category::Sp,      Category::Cp,       Category::Ep,        Category::Pp,
          Category::Dp,      Category::Bubble,   Category::Optimizer, Category::Host,
          Category::Other};
}

/// Seconds per category.
struct Breakdown {
  std::array<double, kNumCategories> seconds{};
  double& operator[](Category category) { return seconds[static_cast<std::size_t>(category)]; }
  double operator[](Category category) const { return seconds[static_cast<std::size_t>(category)]; }
  double total() const;
  bool operator==(const Breakdown&) const = default;
};

struct RankBreakdown {
  int rank = 0;
  Breakdown seconds;
  bool operator==(const RankBreakdown&) const = default;
};

/// One entry per rank that has spans, ascending. The window of a rank is one step: of a simulated
/// trace the period that ends with its last span; of a measured one from the common start to the
/// last end of any rank (divided by the number of traced steps, if there are several).
std::vector<RankBreakdown> breakdown(const program::Trace& trace);

/// The mean over ranks.
Breakdown mean_of(const std::vector<RankBreakdown>& ranks);

}  // namespace meshplan::sim
