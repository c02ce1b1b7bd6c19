// Tensor parallelism: ranks share every layer, each with a part of its heads and of its
// feed-forward columns (Shoeybi et al. 2019). Sequence parallelism also divides what lies between:
// norms and residual sums work on a part of the tokens (Korthikanti et al. 2022).
// docs/tensor_parallel.md
#include <cmath>

#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;

int main() {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  program::Plan plan;
  plan.model = models::load_preset("llama3-8b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 8, .precision = DType::BF16};

  // Eight ranks of one node, which NVLink connects: tp communicates in every layer.
  plan.parallel.tp = 8;
  const examples::Costs tp = examples::evaluate("tp 8", plan, cluster);
  plan.parallel.sp = true;
  const examples::Costs sp = examples::evaluate("tp 8 with sp", plan, cluster);

  // The same work on one rank, which it would not fit: all that tp divides is eight times as large.
  program::Plan alone = plan;
  alone.parallel = {};
  const examples::Costs one = examples::evaluate("one rank", alone, sim::with_ranks(cluster, 1));

  std::printf("activations: one rank %.1f GB, tp %.1f GB, tp and sp %.1f GB\n",
              one.memory.activations / 1e9, tp.memory.activations / 1e9,
              sp.memory.activations / 1e9);
  examples::expect(std::abs(8 * sp.memory.activations / one.memory.activations - 1) < 0.02,
                   "tp with sp divides all activations");
  examples::expect(tp.memory.activations > 1.5 * sp.memory.activations,
                   "tp alone leaves the inputs of norms whole on every rank");
  examples::expect(sp.step.seconds[sim::Category::Tp] + sp.step.seconds[sim::Category::Sp] > 0,
                   "the exchanges between layers' parts are not hidden");
}
