// What the rules of a stack cost a search: every rule for every plan of the space of a dense 70B on
// 1,024 GPUs, and how many plans the stack refuses.
#include <benchmark/benchmark.h>

#include "models/model_spec.hpp"
#include "planner/rules/rules.hpp"
#include "planner/search/search.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan {
namespace {

std::vector<program::Plan> plans_of_space() {
  planner::SearchRequest request;
  request.model = models::load_preset("llama3-70b");
  request.workload = {.seq_len = 8192, .global_batch_size = 1024, .precision = DType::BF16};
  request.cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 1024);
  std::vector<program::Plan> plans;
  for (const planner::Candidate& candidate : planner::enumerate(
           request.model, request.workload,
           {request.cluster.num_ranks(), request.cluster.devices_per_node}, request.constraints))
    plans.push_back(planner::make_plan(request, candidate));
  return plans;
}

/// @param facts  also takes the facts out of the plans
void judge_every_plan(benchmark::State& state, const char* target, bool facts) {
  const std::vector<program::Plan> plans = plans_of_space();
  std::vector<std::string> names;
  for (const planner::FactMeaning& fact : planner::plan_facts()) names.push_back(fact.name);
  const planner::BoundRules rules(planner::rules_for(target), names);
  std::vector<std::vector<std::optional<std::int64_t>>> values;
  for (const program::Plan& plan : plans) values.push_back(planner::plan_fact_values(plan));
  std::size_t refused = 0;
  double judged = 0;
  for (auto _ : state) {
    refused = 0;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (facts) values[i] = planner::plan_fact_values(plans[i]);
      refused += rules.first_refusal(values[i]).has_value();
    }
    benchmark::DoNotOptimize(refused);
    judged += static_cast<double>(plans.size());
  }
  state.counters["plans"] = static_cast<double>(plans.size());
  state.counters["refused"] = static_cast<double>(refused);
  state.counters["judged/s"] = benchmark::Counter(judged, benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(judge_every_plan, megatron_lm, "megatron-lm", false);
BENCHMARK_CAPTURE(judge_every_plan, megatron_lm_with_facts, "megatron-lm", true);
BENCHMARK_CAPTURE(judge_every_plan, torchtitan_with_facts, "torchtitan", true);

}  // namespace
}  // namespace meshplan
