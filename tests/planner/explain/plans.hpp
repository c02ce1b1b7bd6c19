// Plans and clusters that the tests of explanations share.
#pragma once

#include "models/model_spec.hpp"
#include "planner/explain/standing.hpp"
#include "program/plan/plan.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {

inline sim::Cluster h100s(int ranks) {
  return sim::with_ranks(sim::load_cluster_preset("dgx-h100"), ranks);
}

/// A preset's model in bf16, with the batch and degrees given.
inline program::Plan preset_plan(const char* model, program::ParallelConfig parallel,
                                 std::int64_t global_batch, std::int64_t seq_len) {
  program::Plan plan;
  plan.model = models::load_preset(model);
  plan.workload = {.seq_len = seq_len, .global_batch_size = global_batch};
  plan.workload.precision = DType::BF16;
  plan.parallel = parallel;
  plan.bucket_bytes = default_bucket_bytes(parallel);
  return plan;
}

/// Llama 3 8B on 16 GPUs.
inline program::Plan llama_on_two_nodes() {
  program::Plan plan = preset_plan("llama3-8b", {.tp = 4, .pp = 2, .dp = 2, .sp = true}, 32, 4096);
  plan.zero_stage = 1;
  return plan;
}

}  // namespace meshplan::planner
