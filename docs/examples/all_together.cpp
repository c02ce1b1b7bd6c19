// All strategies together: a search tries every combination that its pins leave open, prices each
// with the estimator, plays the best with the engine, and says why the first is first.
// docs/planning.md
#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "planner/search/search.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;

int main() {
  planner::SearchRequest request;
  request.model = models::load_preset("qwen3-30b-a3b");
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 64);
  request.workload = {.seq_len = 16384, .global_batch_size = 256, .precision = DType::BF16};
  // Pins are never overridden; what they leave open is searched.
  request.constraints = {.tp = 2,
                         .pp = 2,
                         .cp = 2,
                         .ep = 8,
                         .zero_stage = 1,
                         .sp = true,
                         .recompute = program::RecomputeKind::Selective};

  // Threads belong to the caller: here the search runs in this one.
  const planner::SearchOutcome outcome =
      planner::search(request, planner::cost_model(request), planner::serial());
  const auto* found = std::get_if<planner::SearchResult>(&outcome);
  examples::expect(found != nullptr, "some plan fits");
  for (const planner::RankedPlan& ranked : found->ranked)
    std::printf("%-60s %.3f s\n", planner::describe(planner::candidate_of(ranked.plan)).c_str(),
                ranked.step_time_s());

  const program::Plan& best = found->ranked.front().plan;
  for (const std::string& reason : best.prediction->reasons) std::printf("  %s\n", reason.c_str());
  const examples::Costs costs = examples::evaluate("the first", best, request.cluster);

  examples::expect(best.parallel.world_size() == 64, "it uses all ranks");
  examples::expect(best.parallel.tp == 2 && best.parallel.cp == 2 && best.parallel.ep == 8,
                   "and every pin");
  examples::expect(costs.step.step_time_s == found->ranked.front().step_time_s(),
                   "what was searched is what is simulated");
  examples::expect(costs.step.fits(sim::kMemoryReserve), "it fits, with a reserve");
}
