#include "planner/search/search.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner {

SearchOutcome search_open_choices(SearchRequest& request, const ParallelFor& parallel_for,
                                  const Progress& progress, const StopRequested& stop) {
  SearchRequest fused = request;
  fused.stack.settings.expert_dispatch =
      sim::fused_dispatch_of(request.stack, request.model, request.cluster);
  const bool open = fused.stack != request.stack && request.constraints.ep != 1;
  SearchOutcome own = search_node_orders(request, parallel_for, progress, stop);
  if (!open || is_incomplete(own)) return own;
  SearchOutcome merged = search_node_orders(fused, parallel_for, progress, stop);
  const std::optional<double> apart = step_time_s(own), together = step_time_s(merged);
  const bool better = together && (!apart || *effective_s(merged) < *effective_s(own));
  SearchOutcome& best = better ? merged : own;
  if (auto* result = std::get_if<SearchResult>(&best))
    result->dispatches = {
        {.step_time_s = apart},
        {.dispatch = *fused.stack.settings.expert_dispatch, .step_time_s = together}};
  if (better) request = std::move(fused);
  return std::move(best);
}

}  // namespace meshplan::planner
