// Layers of other parts than attention and an MLP of one size: gated delta rule, Mamba 2, layers
// that are halves, gates of attention, keys that an indexer chooses, sizes of single layers, scaled
// residuals. Any plan gives the losses, gradients and gradient norm of one rank.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/parity/parity_check.hpp"
#include "runtime/parity/parity_models.hpp"

namespace meshplan::test::parity_parts {
namespace {

using models::FeedForward;
using models::Mixer;
using models::ModelSpec;

constexpr int kTwoSteps = 2;

/// Qwen3-Next: three layers of gated delta rule to one of gated attention, norms of heads, experts
/// with a gated shared one.
ModelSpec gated_delta_style() {
  ModelSpec model = shared_experts_style();
  model.name = "gated-delta-style";
  model.num_layers = 4;
  model.moe->dense_layers.clear();
  model.ffn_size = 0;
  model.moe->shared_expert_gate = true;
  model.layer_pattern = {Mixer::Linear, Mixer::Linear, Mixer::Linear, Mixer::Full};
  model.linear_attention = models::LinearAttentionSpec{
      .num_key_heads = 4, .num_value_heads = 8, .key_head_size = 8, .value_head_size = 8};
  model.qk_norm = model.attention_output_gate = true;
  model.rope_size = 4;
  return model;
}

/// Nemotron-H: every layer is a half, Mamba 2, attention without positions, an MLP or experts.
ModelSpec mamba_style() {
  ModelSpec model = shared_experts_style();
  model.name = "mamba-style";
  model.num_layers = 8;
  model.moe->dense_layers.clear();
  model.positions = models::Positions::None;
  model.mlp = models::Mlp::Plain;
  model.activation = models::ActivationKind::SquaredRelu;
  model.layer_pattern = {Mixer::Mamba, Mixer::None, Mixer::Full, Mixer::None};
  model.ffn_pattern = {FeedForward::None, FeedForward::Dense, FeedForward::None, FeedForward::Moe};
  model.mamba = models::MambaSpec{
      .num_heads = 8, .head_size = 8, .state_size = 8, .num_groups = 4, .chunk_size = 8};
  return model;
}

/// Layers with heads and MLPs of their own, found by a search for architectures.
ModelSpec uneven_style() {
  ModelSpec model = llama_style();
  model.name = "uneven-style";
  model.num_layers = 4;
  model.layer_variants = {{.layers = {1}, .num_kv_heads = 4, .ffn_size = 48},
                          {.layers = {2}, .ffn_size = 160, .rotates = false}};
  model.ffn_pattern = {FeedForward::Dense, FeedForward::Dense, FeedForward::Dense,
                       FeedForward::None};
  return model;
}

/// The same of a mixture: one layer's queries are twice as wide.
ModelSpec uneven_experts_style() {
  ModelSpec model = mixtral_style();
  model.name = "uneven-experts-style";
  model.layer_variants = {{.layers = {1}, .num_heads = 16, .num_kv_heads = 8}};
  return model;
}

/// Norms behind the halves alone, and Granite's factors.
ModelSpec scaled_style() {
  ModelSpec model = llama_style();
  model.name = "scaled-style";
  model.norm_placement = models::NormPlacement::Output;
  model.residual_scale = 0.5;
  model.logit_scale = 0.25;
  return model;
}

/// Both halves read the stream before either adds to it: GPT-J, with a bias behind its head, and
/// GPT-NeoX, with norms of their own.
ModelSpec parallel_style(models::Residual residual) {
  ModelSpec model = gpt2_style();
  model.name = residual == models::Residual::Parallel ? "gptj-style" : "neox-style";
  model.residual = residual;
  model.positions = models::Positions::Rope;
  model.tied_embeddings = false;
  model.head_bias = residual == models::Residual::Parallel;
  return model;
}

/// A gate of each head, in every second layer behind a window.
ModelSpec head_gate_style() {
  ModelSpec model = sliding_style();
  model.name = "head-gate-style";
  model.attention_output_gate = true;
  model.attention_gate = models::AttentionGate::Head;
  return model;
}

/// Cohere's halves: side by side, behind one layer norm without a bias.
ModelSpec cohere_style() {
  ModelSpec model = llama_style();
  model.name = "cohere-style";
  model.norm = models::Norm::LayerNorm;
  model.norm_bias = false;
  model.residual = models::Residual::Parallel;
  model.logit_scale = 0.5;
  return model;
}

/// An indexer beside plain attention, which reads the stream; one layer sees all keys.
ModelSpec sparse_style() {
  ModelSpec model = llama_style();
  model.name = "sparse-style";
  model.init_std = kUnevenStd;
  model.sparse_attention =
      models::SparseAttentionSpec{.index_heads = 4, .index_head_size = 8, .top_k = 6};
  model.layer_variants = {{.layers = {1}, .sees_all = true}};
  return model;
}

void check_parity(const ModelSpec& model) {
  check_every_axis("parts", model);
}

}  // namespace

TEST_CASE("every plan of a model with the gated delta rule gives the gradients of one rank",
          "[parity][parts]") {
  check_parity(gated_delta_style());
}

TEST_CASE("every plan of a model with Mamba 2 and layers of one half gives those of one rank",
          "[parity][parts]") {
  check_parity(mamba_style());
}

TEST_CASE("every plan of a model whose layers differ in size gives the gradients of one rank",
          "[parity][parts]") {
  for (const ModelSpec& model : {uneven_style(), uneven_experts_style()}) check_parity(model);
}

TEST_CASE("every plan of a model with other residuals gives the gradients of one rank",
          "[parity][parts]") {
  check_parity(scaled_style());
  check_parity(parallel_style(models::Residual::Parallel));
  check_parity(parallel_style(models::Residual::ParallelOwnNorms));
  check_parity(cohere_style());
}

TEST_CASE("every plan of a model with sparse attention gives the gradients of one rank",
          "[parity][parts]") {
  check_parity(sparse_latent_style());
  check_parity(sparse_style());
}

TEST_CASE("sparse attention to all keys trains as attention does", "[parity][parts]") {
  for (ModelSpec model : {sparse_latent_style(), sparse_style()}) {
    ModelSpec dense = model;
    dense.sparse_attention.reset();
    dense.layer_variants.clear();
    const Plan base = plan_on(dense);
    model.sparse_attention->top_k = static_cast<int>(base.workload.seq_len);
    Plan sparse = plan_on(model);
    sparse.workload.optimizer.clip_norm = 0;
    Plan plain = base;
    plain.workload.optimizer.clip_norm = 0;
    ParityJob job{.steps = kTwoSteps};
    const RunResult expected = job.run_alone(plain);
    const RunResult made = job.run_alone(sparse);
    for (int step = 0; step < kTwoSteps; ++step)
      CHECK(made.losses[step] == Approx(expected.losses[step]).epsilon(1e-6));
    // Parameters are drawn by name, so that these are the same in both.
    double worst = 0;
    for (const auto& [name, gradient] : expected.gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        worst = std::max(worst, std::abs(made.gradients.at(name)[i] - gradient[i]));
    CHECK(worst <= 1e-6);
  }
}

TEST_CASE("every plan of a model with a gate of each head gives the gradients of one rank",
          "[parity][parts]") {
  check_parity(head_gate_style());
}

}  // namespace meshplan::test::parity_parts
