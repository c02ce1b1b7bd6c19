// Plans of the sizes that users run: presets on many ranks, in bf16.
#pragma once

#include "program/plan/plan.hpp"

namespace meshplan::program::test {

inline Plan large_plan(const char* model, const ParallelConfig& parallel, int microbatches = 16) {
  Plan plan;
  plan.model = models::load_preset(model);
  plan.model.mtp_layers = 0;
  plan.parallel = parallel;
  plan.workload.seq_len = 4096;
  if (plan.model.positions == models::Positions::Learned)
    plan.workload.seq_len = plan.model.max_positions;
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = std::int64_t{microbatches} * parallel.dp;
  return plan;
}

}  // namespace meshplan::program::test
