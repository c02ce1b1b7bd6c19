// Training runs that several tests of predictions share.
#pragma once

#include "sim/prices/fitted_constants.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

/// A GPT of `layers` layers of 1024, 16 heads, and a vocabulary of 1024.
/// Nothing overlaps unless a case says so.
inline TrainingRun small_gpt(int layers = 4) {
  TrainingRun run;
  run.settings.overlap_dp = run.settings.overlap_tp = run.settings.overlap_p2p = false;
  run.model.name = "small";
  run.model.num_layers = layers;
  run.model.hidden_size = 1024;
  run.model.ffn_size = 4096;
  run.model.num_heads = run.model.num_kv_heads = 16;
  run.model.head_size = 64;
  run.model.vocab_size = 1024;
  run.model.max_positions = 1024;
  run.model.mlp = models::Mlp::Plain;
  run.model.activation = models::ActivationKind::Gelu;
  run.model.norm = models::Norm::LayerNorm;
  run.seq_len = 1024;
  run.micro_batch_size = 2;
  run.global_batch_size = 16;
  run.cluster = "dgx-a100";
  run.profile = "meshplan";
  return run;
}

/// With the constants that are shipped.
inline RunPrediction predict(const TrainingRun& run) {
  static const Constants constants = constants_of(fitted_constants());
  return PreparedRun(run).predict(constants);
}

inline RunMemory memory_of(const TrainingRun& run, int stage = 0) {
  return PreparedRun(run).memory_of_stages()[static_cast<std::size_t>(stage)];
}

}  // namespace meshplan::sim
