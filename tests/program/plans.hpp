// Plans that the tests of program share: small models whose sizes can be followed by hand.
#pragma once

#include <string>
#include <vector>

#include "models/model_spec.hpp"
#include "program/lower.hpp"
#include "program/plan.hpp"

namespace meshplan::program::test {

/// RMS norms, gated MLP, rotary positions, grouped queries (8 heads, 4 of keys), untied, no biases;
/// a vocabulary that needs padding.
inline models::ModelSpec llama_style() {
  models::ModelSpec model;
  model.name = "llama-style";
  model.num_layers = 4;
  model.hidden_size = 64;
  model.ffn_size = 96;
  model.num_heads = 8;
  model.num_kv_heads = 4;
  model.head_size = 8;
  model.vocab_size = 300;
  model.max_positions = 64;
  return model;
}

/// Layer norms, plain MLP, learned positions, biases everywhere, tied embeddings.
inline models::ModelSpec gpt2_style() {
  models::ModelSpec model = llama_style();
  model.name = "gpt2-style";
  model.num_kv_heads = 8;
  model.norm = models::Norm::LayerNorm;
  model.mlp = models::Mlp::Plain;
  model.activation = models::ActivationKind::GeluTanh;
  model.positions = models::Positions::Learned;
  model.qkv_bias = model.attention_out_bias = model.mlp_bias = true;
  model.tied_embeddings = true;
  return model;
}

/// Norms before and after each part, sliding layers, scaled embeddings.
inline models::ModelSpec gemma_style() {
  models::ModelSpec model = llama_style();
  model.name = "gemma-style";
  model.norm_placement = models::NormPlacement::PrePost;
  model.activation = models::ActivationKind::GeluTanh;
  model.layer_pattern = {models::LayerAttention::Sliding, models::LayerAttention::Full};
  model.window = 8;
  model.embedding_scale = 8.0;
  model.tied_embeddings = true;
  return model;
}

/// Sequences of 16 tokens, micro-batches of one, `num_microbatches` per data-parallel rank.
inline Plan make_plan(const models::ModelSpec& model, const ParallelConfig& parallel = {},
                      int num_microbatches = 8) {
  Plan plan;
  plan.model = model;
  plan.workload.seq_len = 16;
  plan.workload.global_batch_size = std::int64_t{num_microbatches} * parallel.dp;
  plan.parallel = parallel;
  plan.bucket_bytes = 64 << 10;  // several buckets even in a small model
  return plan;
}

/// One plan per kind of thing that lowering does.
inline std::vector<Plan> varied_plans() {
  std::vector<Plan> plans;
  const std::vector<ParallelConfig> meshes = {
      {},
      {.tp = 2},
      {.tp = 2, .sp = true},
      {.pp = 2, .dp = 2},
      {.pp = 4},
      {.tp = 2, .pp = 2, .dp = 2, .sp = true},
      {.tp = 4, .pp = 4, .sp = true},
  };
  for (const models::ModelSpec& model : {llama_style(), gpt2_style(), gemma_style()})
    for (const ParallelConfig& mesh : meshes)
      for (const RecomputeKind recompute :
           {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
        Plan plan = make_plan(model, mesh, 5);
        plan.recompute.kind = recompute;
        if (recompute == RecomputeKind::Full) plan.schedule = ScheduleKind::GPipe;
        if (recompute == RecomputeKind::Selective) plan.workload.precision = DType::BF16;
        plans.push_back(plan);
      }
  Plan uneven = make_plan(llama_style(), {.pp = 2, .dp = 2});
  uneven.layers_per_stage = {1, 3};
  uneven.recompute = {.kind = RecomputeKind::Full, .num_layers = 2};
  uneven.micro_batch_size = 2;
  plans.push_back(uneven);
  return plans;
}

inline std::string describe(const Plan& plan) {
  return plan.model.name + " " + to_string(plan.parallel) + " recompute " +
         std::to_string(static_cast<int>(plan.recompute.kind));
}

}  // namespace meshplan::program::test
