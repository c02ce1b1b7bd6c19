#include <algorithm>
#include <numeric>

#include "core/index.hpp"
#include "planner/search/search.hpp"

namespace meshplan::planner {
namespace {

constexpr int kMostTypes = 3;  // whose orders are searched: six

/// The given order first, so that it stays where another is no faster.
std::vector<sim::Cluster> orders_of(const SearchRequest& request) {
  std::vector<sim::Cluster> orders;
  const int types = sim::num_node_types(request.cluster);
  const bool one_stage = request.constraints.pp == 1;
  if (types == 1 || types > kMostTypes || one_stage || !request.space.node_orders)
    return {request.cluster};
  std::vector<int> order(at(types));
  std::iota(order.begin(), order.end(), 0);
  do orders.push_back(sim::in_node_order(request.cluster, order));
  while (std::ranges::next_permutation(order).found);
  return orders;
}

}  // namespace

SearchOutcome search_node_orders(SearchRequest& request, const ParallelFor& parallel_for,
                                 const Progress& progress, const StopRequested& stop) {
  const std::vector<sim::Cluster> orders = orders_of(request);
  const auto search_it = [&] {
    return search(request, cost_model(request), parallel_for, progress, stop);
  };
  if (orders.size() == 1) return search_it();
  std::optional<SearchOutcome> best;
  sim::Cluster best_cluster;
  SearchCounts counts;
  std::vector<NodeOrder> searched;
  bool cut_short = false;
  for (const sim::Cluster& cluster : orders) {
    if (cut_short) break;
    request.cluster = cluster;
    SearchOutcome outcome = search_it();
    cut_short = is_incomplete(outcome);
    counts += std::visit([](const auto& found) { return found.counts; }, outcome);
    const std::optional<double> seconds = effective_s(outcome);
    searched.push_back({cluster.name, step_time_s(outcome)});
    const std::optional<double> to_beat = best ? effective_s(*best) : std::nullopt;
    if (best && (!seconds || (to_beat && *seconds >= *to_beat))) continue;
    best = std::move(outcome);
    best_cluster = cluster;
  }
  request.cluster = std::move(best_cluster);
  std::visit(
      [&](auto& found) {
        found.counts = counts;
        found.incomplete = cut_short;
      },
      *best);
  if (auto* result = std::get_if<SearchResult>(&*best)) result->node_orders = std::move(searched);
  return *std::move(best);
}

}  // namespace meshplan::planner
