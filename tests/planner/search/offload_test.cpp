// Where a search moves activations to the host.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/search/search.hpp"
#include "planner/search/space.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

/// Fits without recompute on no mesh.
SearchRequest tight_request() {
  SearchRequest request;
  request.model = models::load_preset("llama3-8b");
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  request.workload = {.seq_len = 32768, .global_batch_size = 8, .precision = DType::BF16};
  request.constraints = {.tp = 2, .pp = 2, .dp = 2, .cp = 1, .micro_batch_size = 1};
  request.space = space_preset("offload");
  request.top = 200;
  return request;
}

std::vector<RankedPlan> ranked(const SearchRequest& request) {
  const SearchOutcome outcome = search(request, cost_model(request), serial(), {});
  return std::get<SearchResult>(outcome).ranked;
}

bool offloads(const RankedPlan& ranked) {
  return ranked.plan.offload_activations > 0;
}

}  // namespace

TEST_CASE("Activations go to the host in plans that must recompute else",
          "[planner][search][offload]") {
  const std::vector<RankedPlan> plans = ranked(tight_request());
  const auto first = std::ranges::find_if(plans, offloads);
  REQUIRE(first != plans.end());
  const program::Plan& plan = first->plan;
  CHECK(plan.recompute.kind != program::RecomputeKind::Full);
  const int layers = std::ranges::max(program::resolved_layers_per_stage(plan));
  CHECK(plan.offload_activations <= layers);
}

TEST_CASE("A pinned number of offloaded layers is in every plan", "[planner][search][offload]") {
  SearchRequest request = tight_request();
  request.constraints.offload_activations = 3;
  for (const RankedPlan& ranked : ranked(request)) CHECK(ranked.plan.offload_activations == 3);
  request.constraints.offload_activations = 0;
  for (const RankedPlan& ranked : ranked(request)) CHECK(ranked.plan.offload_activations == 0);
}

}  // namespace meshplan::planner
