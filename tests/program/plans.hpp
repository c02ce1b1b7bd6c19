// Plans that the tests of program share: small models whose sizes can be followed by hand.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/plan.hpp"

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
  model.layer_pattern = {models::Mixer::Sliding, models::Mixer::Full};
  model.window = 8;
  model.embedding_scale = 8.0;
  model.tied_embeddings = true;
  return model;
}

/// gemma_style() with soft caps small enough to bend scores and logits.
inline models::ModelSpec gemma2_style() {
  models::ModelSpec model = gemma_style();
  model.name = "gemma2-style";
  model.attention_scale = 0.25;
  model.attention_softcap = 0.5;
  model.logit_softcap = 0.75;
  return model;
}

/// An encoder like BERT's: norms behind the sums and behind the embeddings, two token types, no
/// causal mask, and a pooler and a classifier of sequences.
inline models::ModelSpec bert_style() {
  models::ModelSpec model = gpt2_style();
  model.name = "bert-style";
  model.norm_placement = models::NormPlacement::Post;
  model.activation = models::ActivationKind::Gelu;
  model.tied_embeddings = false;
  model.embedding_norm = true;
  model.token_types = 2;
  model.causal = false;
  model.num_classes = 3;
  model.pooler = true;
  return model;
}

/// A decoder with norms behind the sums and behind the embeddings, as in the first GPT.
inline models::ModelSpec post_norm_style() {
  models::ModelSpec model = gpt2_style();
  model.name = "post-norm-style";
  model.norm_placement = models::NormPlacement::Post;
  model.embedding_norm = true;
  return model;
}

/// Latent attention, whose value heads are smaller than its query heads.
inline models::ModelSpec latent_style(models::ModelSpec model = llama_style()) {
  model.name = "latent-style";
  model.num_heads = model.num_kv_heads = 4;
  model.head_size = 24;
  model.mla = models::MlaSpec{.q_lora_rank = 40,
                              .kv_lora_rank = 28,
                              .qk_nope_head_size = 16,
                              .qk_rope_head_size = 8,
                              .v_head_size = 12};
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
  for (const models::ModelSpec& model : {gemma2_style(), post_norm_style(), bert_style()})
    for (const ParallelConfig& mesh : {meshes[2], meshes[5]}) {
      plans.push_back(make_plan(model, mesh, 5));
      plans.back().recompute.kind = RecomputeKind::Selective;
    }
  Plan uneven = make_plan(llama_style(), {.pp = 2, .dp = 2});
  uneven.layers_per_stage = {1, 3};
  uneven.recompute = {.kind = RecomputeKind::Full, .num_layers = 2};
  uneven.micro_batch_size = 2;
  plans.push_back(uneven);
  return plans;
}

/// Every schedule with chunks or split backwards, with every kind of layer and uneven stages.
inline std::vector<Plan> scheduled_plans() {
  std::vector<Plan> plans;
  struct Case {
    ScheduleKind kind;
    ParallelConfig mesh;
    int num_microbatches;
  };
  const std::vector<Case> cases = {
      {ScheduleKind::Interleaved, {.pp = 2, .vpp = 2, .dp = 2}, 4},
      {ScheduleKind::Interleaved, {.tp = 2, .pp = 2, .vpp = 4, .sp = true}, 5},
      {ScheduleKind::Interleaved, {.pp = 3, .vpp = 2}, 7},
      {ScheduleKind::Interleaved, {.pp = 1, .vpp = 2}, 2},
      {ScheduleKind::OverlappedOneFOneB, {.pp = 1, .dp = 2}, 3},
      {ScheduleKind::OverlappedOneFOneB, {.tp = 2, .pp = 3, .sp = true}, 7},
      {ScheduleKind::OverlappedOneFOneB, {.pp = 2, .vpp = 2, .dp = 2}, 5},
      {ScheduleKind::ZbH1, {.pp = 3, .dp = 2}, 5},
      {ScheduleKind::ZbH1, {.tp = 2, .pp = 2, .sp = true}, 4},
      {ScheduleKind::ZbV, {.pp = 2, .vpp = 2, .dp = 2}, 5},
      {ScheduleKind::ZbV, {.tp = 2, .pp = 4, .vpp = 2, .sp = true}, 8},
      {ScheduleKind::DualPipeV, {.pp = 2, .vpp = 2}, 6},
      {ScheduleKind::DualPipeV, {.tp = 2, .pp = 3, .vpp = 2, .dp = 2}, 7},
  };
  for (const models::ModelSpec& model : {llama_style(), gpt2_style(), gemma_style()})
    for (const Case& one : cases) {
      Plan plan = make_plan(model, one.mesh, one.num_microbatches);
      plan.model.num_layers = 8;
      plan.schedule = one.kind;
      plan.model.qk_norm = model.name == "llama-style" && plans.size() % 3 == 2;
      plan.recompute.kind = static_cast<RecomputeKind>(plans.size() % 3);
      if (plans.size() % 4 == 1) plan.workload.precision = DType::BF16;
      if (plans.size() % 5 == 3) plan.count_ends_as_layers = true;
      const int stages = one.mesh.pp * one.mesh.vpp;
      if (plans.size() % 2 == 1 && stages > 1) {  // the ends alone, and one stage with the rest
        plan.layers_per_stage.assign(static_cast<std::size_t>(stages), 1);
        plan.layers_per_stage.front() = plan.layers_per_stage.back() = stages > 2 ? 0 : 1;
        plan.layers_per_stage[1] +=
            8 - std::accumulate(plan.layers_per_stage.begin(), plan.layers_per_stage.end(), 0);
      }
      plans.push_back(plan);
    }
  return plans;
}

inline std::vector<Plan> all_plans() {
  std::vector<Plan> plans = varied_plans();
  for (Plan& plan : scheduled_plans()) plans.push_back(std::move(plan));
  return plans;
}

/// all_plans() in FP8, with sizes that suit it on every mesh: 64 tokens, feed-forward width 128.
inline std::vector<Plan> float8_plans() {
  std::vector<Plan> plans = all_plans();
  for (Plan& plan : plans) {
    set_precision(plan.workload, Precision::Fp8);
    plan.workload.seq_len = 64;
    plan.model.ffn_size = 128;
  }
  return plans;
}

inline std::string describe(const Plan& plan) {
  return plan.model.name + " " + to_string(plan.parallel) + " recompute " +
         std::to_string(static_cast<int>(plan.recompute.kind)) + " schedule " +
         std::to_string(static_cast<int>(plan.schedule));
}

}  // namespace meshplan::program::test
