// Context parallelism: ranks share each sequence, so that long ones fit. Attention then needs keys
// of other ranks: it gathers them, passes them around a ring (Liu et al. 2023), or exchanges heads
// for tokens (Ulysses, Jacobs et al. 2023). docs/context_parallel.md
#include <cmath>

#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;
using program::ContextMethod;

int main() {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  program::Plan plan;
  plan.model = models::load_preset("llama3-8b");
  plan.workload = {.seq_len = 65536, .global_batch_size = 1, .precision = DType::BF16};
  plan.zero_stage = 3;

  // One sequence of 64 Ki tokens on eight ranks.
  plan.parallel.cp = 8;
  std::vector<examples::Costs> methods;
  for (const ContextMethod method :
       {ContextMethod::AllGather, ContextMethod::Ring, ContextMethod::Ulysses}) {
    plan.context_parallel = method;
    methods.push_back(examples::evaluate(std::string(name_of(method)), plan, cluster));
  }

  // The same sequence on one rank: what it keeps for the backward pass is eight times as much.
  program::Plan alone = plan;
  alone.parallel = {};
  alone.zero_stage = 0;
  const examples::Costs one = examples::evaluate("one rank", alone, sim::with_ranks(cluster, 1));
  const double kept = methods[0].memory.activations;
  std::printf("activations: %.1f GB on one rank, %.1f GB on each of eight\n",
              one.memory.activations / 1e9, kept / 1e9);
  examples::expect(std::abs(8 * kept / one.memory.activations - 1) < 0.05,
                   "eight ranks keep an eighth each");
  // Attention's pairs of query and key are divided evenly: twice as many ranks, half of the time.
  examples::expect(one.step.step_time_s > 6 * methods[0].step.step_time_s,
                   "eight ranks are at least six times as fast");
}
