// Data parallelism: every rank holds the model and trains its part of the batch, then the ranks sum
// their gradients. ZeRO (Rajbhandari et al. 2020) divides what they would hold in common: stage 1
// the optimizer state, stage 2 the gradients, too, stage 3 the weights, too. docs/data_parallel.md
#include <cmath>

#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;

int main() {
  // A model, a cluster and a workload. Both presets are compiled in; files are read with
  // models::load_model and sim::parse_cluster.
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 16);
  program::Plan plan;
  plan.model = models::load_preset("llama3.2-1b");
  plan.workload = {.seq_len = 4096, .global_batch_size = 64, .precision = DType::BF16};

  // The strategy: sixteen replicas, micro-batches of one sequence, so four of them a step.
  plan.parallel.dp = 16;
  plan.micro_batch_size = 1;

  std::vector<examples::Costs> stages;
  for (plan.zero_stage = 0; plan.zero_stage <= 3; ++plan.zero_stage)
    stages.push_back(examples::evaluate("ZeRO " + std::to_string(plan.zero_stage), plan, cluster));

  // AdamW in mixed precision keeps a master weight and two moments of 4 bytes for each parameter.
  // 16 ranks that divide them hold a sixteenth each, but for what rounding adds.
  const auto state = [](const examples::Costs& costs) {
    return costs.memory.optimizer + costs.memory.master_parameters;
  };
  std::printf("optimizer state %.2f GB, divided %.2f GB\n", state(stages[0]) / 1e9,
              state(stages[1]) / 1e9);
  examples::expect(std::abs(16 * state(stages[1]) / state(stages[0]) - 1) < 0.01,
                   "ZeRO 1 divides the optimizer state over the ranks");
  examples::expect(stages[3].memory.parameters < stages[2].memory.parameters,
                   "ZeRO 3 divides the weights");
  for (int stage = 0; stage < 3; ++stage)
    examples::expect(stages[stage + 1].memory.total() < stages[stage].memory.total(),
                     "each stage needs less memory than the one before");
}
