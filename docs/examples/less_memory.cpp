// Two ways to need less memory for more time: recompute activations in the backward pass (Chen et
// al. 2016), and keep the optimizer state in host memory (ZeRO-Offload, Ren et al. 2021).
// docs/recompute.md, docs/data_parallel.md
#include <cmath>

#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;

int main() {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8);
  program::Plan plan;
  plan.model = models::load_preset("llama3-8b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 64, .precision = DType::BF16};
  plan.parallel.dp = 8;
  plan.zero_stage = 1;

  const examples::Costs all = examples::evaluate("keep everything", plan, cluster);
  plan.recompute.kind = program::RecomputeKind::Selective;
  const examples::Costs selective = examples::evaluate("recompute what is cheap", plan, cluster);
  plan.recompute.kind = program::RecomputeKind::Full;
  const examples::Costs full = examples::evaluate("recompute layers", plan, cluster);
  plan.offload_optimizer = true;
  const examples::Costs offloaded = examples::evaluate("and offload", plan, cluster);

  // Full recomputation keeps the input of each layer, and of the loss: 2 bytes a number.
  const models::ModelSpec& model = plan.model;
  const double inputs = 2.0 * 8192 * model.hidden_size * model.num_layers;
  const double logits = 2.0 * 8192 * model.vocab_size;
  std::printf("activations: all %.1f, selective %.1f, full %.1f GB (inputs %.1f, logits %.1f)\n",
              all.memory.activations / 1e9, selective.memory.activations / 1e9,
              full.memory.activations / 1e9, inputs / 1e9, logits / 1e9);
  examples::expect(std::abs(full.memory.activations / (inputs + logits) - 1) < 0.05,
                   "full recomputation keeps the layers' inputs and the logits");
  // Forward is a third of the work and runs twice: at most a third more time.
  const double longer = full.step.step_time_s / all.step.step_time_s;
  examples::expect(longer > 1.2 && longer < 1.34, "it takes up to a third longer");
  const double state = full.memory.master_parameters + full.memory.optimizer;
  examples::expect(std::abs(offloaded.memory.host / state - 1) < 0.01,
                   "the host holds master weights and moments; the device pieces on their way");
  examples::expect(offloaded.step.step_time_s > full.step.step_time_s,
                   "fetching it and storing it takes time");
}
