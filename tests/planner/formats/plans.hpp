// Plans that several tests of formats write.
#pragma once

#include "models/model_spec.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// Llama 3 70B on 128 GPUs: tp8 sp pp4 dp4.
inline program::Plan dense_70b() {
  program::Plan plan;
  plan.model = models::load_preset("llama3-70b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 1024, .precision = DType::BF16};
  plan.workload.optimizer.warmup_steps = 500;
  plan.workload.optimizer.decay_steps = 20000;
  plan.parallel = {.tp = 8, .pp = 4, .dp = 4, .sp = true};
  plan.zero_stage = 1;
  plan.recompute.kind = program::RecomputeKind::Selective;
  return plan;
}

/// DeepSeek-V3 on 2,048 GPUs with 64 ranks for the experts, its 61 layers cut where embedding and
/// head leave room.
inline program::Plan deepseek_v3() {
  program::Plan plan;
  plan.model = models::load_preset("deepseek-v3");
  plan.workload = {.seq_len = 4096, .global_batch_size = 15360, .precision = DType::BF16};
  program::set_precision(plan.workload, program::Precision::Fp8);
  plan.parallel = {.tp = 2, .pp = 16, .dp = 64, .ep = 64, .etp = 1, .sp = true};
  plan.layers_per_stage = {3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2};
  plan.zero_stage = 1;
  plan.recompute = {.kind = program::RecomputeKind::Full, .num_layers = 2};
  return plan;
}

/// GPT-3 175B with uneven chunks, interleaved, and sequences over a ring of two.
inline program::Plan uneven_gpt3() {
  program::Plan plan;
  plan.model = models::load_preset("gpt3-175b");
  plan.workload = {.seq_len = 2048, .global_batch_size = 512, .precision = DType::F16};
  plan.parallel = {.tp = 8, .cp = 2, .pp = 4, .vpp = 3, .dp = 2};
  plan.context_parallel = program::ContextMethod::Ring;
  plan.schedule = program::ScheduleKind::Interleaved;
  plan.layers_per_stage = {7, 8, 8, 9, 8, 8, 8, 8, 8, 8, 9, 7};
  return plan;
}

}  // namespace meshplan::planner
