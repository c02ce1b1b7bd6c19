// Expert parallelism: of a mixture of experts every rank holds a part, and tokens travel to the
// ranks of the experts that their router chose, and back (GShard, Lepikhin et al. 2020). The other
// layers are data parallel on the same ranks. docs/expert_parallel.md
#include <cmath>

#include "evaluate.hpp"
#include "models/counts.hpp"
#include "models/graph.hpp"
#include "models/model_spec.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;

int main() {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 64);
  program::Plan plan;
  plan.model = models::load_preset("mixtral-8x7b");
  plan.workload = {.seq_len = 4096, .global_batch_size = 256, .precision = DType::BF16};

  // Sixty-four data-parallel ranks; groups of eight hold one expert of each layer a rank.
  plan.parallel.dp = 64;
  plan.parallel.ep = 8;
  plan.zero_stage = 2;
  plan.recompute.kind = program::RecomputeKind::Selective;
  const examples::Costs ep = examples::evaluate("ep 8", plan, cluster);

  // Of 46.7 billion parameters (Jiang et al. 2024) a rank holds one expert of eight and the rest.
  const models::ParameterCounts counts = models::count_parameters(models::build_graph(plan.model));
  const double experts = 3.0 * static_cast<double>(plan.model.num_layers) * 4096 * 14336 * 8;
  const double held = static_cast<double>(counts.total) - experts * 7 / 8;
  std::printf("%.1f of %.1f billion parameters a rank\n", held / 1e9,
              static_cast<double>(counts.total) / 1e9);
  examples::expect(std::abs(static_cast<double>(counts.total) / 46.7e9 - 1) < 0.002,
                   "the model has 46.7 billion parameters");
  examples::expect(std::abs(ep.memory.parameters / (2 * held) - 1) < 0.01,
                   "a rank holds its share of them, 2 bytes each");

  // A router that sends half as many rows again to the busiest rank makes all others wait for it.
  plan.expected_expert_imbalance = 1.5;
  const examples::Costs uneven = examples::evaluate("ep 8, busiest rank 1.5 x", plan, cluster);
  examples::expect(uneven.step.step_time_s > ep.step.step_time_s, "an uneven router costs time");
}
