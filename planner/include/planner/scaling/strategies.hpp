// The layouts of the textbooks for one model, side by side, each as good as it can be.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/scaling/figures.hpp"
#include "planner/search/search.hpp"

namespace meshplan::planner {

/// A way to lay a model out: what it fixes; micro-batch, recompute, schedule and degrees that it
/// leaves open are searched.
struct Strategy {
  std::string name;   // "tp x dp"
  std::string about;  // in a line
  Constraints pins;
};

/// Data parallelism with each ZeRO stage, tensor and sequence parallelism, pipelines, context and
/// expert parallelism, each alone and in products; last all that the search knows. ep is listed for
/// models with experts.
std::vector<Strategy> textbook_strategies(const SearchRequest& request);

/// The fastest plan of a strategy.
struct StrategyRow {
  Strategy strategy;
  std::optional<PlanFigures> figures;  // if nothing fits: the plan that lacks least memory
  bool fits = false;                   // beside the reserve
  std::string rule, message;           // why there is no plan
};

/// @param request  its pins of degrees, sp and zero are replaced; all others hold for every
/// strategy
std::vector<StrategyRow> compare_strategies(const SearchRequest& request,
                                            const ParallelFor& parallel_for,
                                            const std::function<void(const std::string&)>& say);

/// The fastest that fits; none: nothing does.
std::optional<std::size_t> fastest_of(const std::vector<StrategyRow>& rows);

}  // namespace meshplan::planner
