#include "formats/megatron/inexpressible.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/describe.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::ActivationKind;
using models::Mlp;
using models::ModelSpec;
using models::MoeSpec;
using models::Positions;
using models::RopeScaling;
using models::RopeScalingKind;
using program::Plan;

constexpr const char* kSoftware = "megatron-core";

/// The model without the parts that there are flags for (mixer_flags.cpp).
ModelSpec without_flagged(ModelSpec model) {
  if (model.attention_gate == models::AttentionGate::Element) model.attention_output_gate = false;
  const auto& linear = model.linear_attention;
  if (linear && linear->kind == models::LinearAttentionKind::GatedDelta && !linear->gate_rank &&
      linear->conv_size > 0)
    model.linear_attention.reset();
  if (model.mla && model.sparse_attention && model.sparse_attention->block == 1)
    model.sparse_attention.reset();
  return model;
}

class Words {
 public:
  explicit Words(const Plan& plan) : plan_(plan), model_(plan.model) {}

  std::vector<std::string> run() {
    for (const program::Violation& violation :
         sim::feature_violations(program::on_stack(plan_, kSoftware)))
      lacks_.push_back(violation.message);
    blocks();
    activations();
    biases();
    positions();
    if (model_.moe) experts(*model_.moe);
    if (model_.mla) latent();
    ranks();
    memory();
    training();
    return std::move(lacks_);
  }

 private:
  template <class... Args>
  void lack(bool asked, fmt::format_string<Args...> text, Args&&... args) {
    if (asked) lacks_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void blocks() {
    lack(!model_.causal || model_.num_classes > 0 || model_.pooler || model_.token_types > 0 ||
             model_.embedding_norm,
         "model {}: an encoder; pretrain_gpt.py trains decoders", model_.name);
    lack(model_.norm_placement != models::NormPlacement::Pre,
         "model.norm_placement: norms stand before attention and MLP only; nearest: pre");
    lack(model_.attention_scale.has_value(),
         "model.attention_scale {}: there is no flag for the scale of the scores; nearest: "
         "1 / sqrt(head_size)",
         model_.attention_scale.value_or(0));
    lack(model_.attention_softcap.has_value(),
         "model.attention_softcap {}: there is none; nearest: null",
         model_.attention_softcap.value_or(0));
    lack(model_.logit_softcap.has_value(), "model.logit_softcap {}: there is none; nearest: null",
         model_.logit_softcap.value_or(0));
    lack(model_.embedding_scale != 1, "model.embedding_scale {}: there is none; nearest: 1",
         model_.embedding_scale);
    const std::vector<std::string> parts = models::parts_beyond_plain(without_flagged(model_));
    lack(!parts.empty(), "model {}: {} {} not written by this version", model_.name,
         fmt::join(parts, ", "), parts.size() == 1 ? "is" : "are");
    lack(model_.dropout > 0, "model.dropout {}: not written by this version; nearest: 0",
         model_.dropout);
  }

  void activations() {
    const auto has = [&](Mlp mlp, ActivationKind kind) {
      return model_.mlp == mlp && model_.activation == kind;
    };
    // The kernel that adds the bias computes the tanh approximation; without one it is exact.
    const bool bias = model_.attention_out_bias;
    const bool known =
        has(Mlp::Gated, ActivationKind::Silu) || has(Mlp::Gated, ActivationKind::ClampedSilu) ||
        has(Mlp::Plain, ActivationKind::SquaredRelu) || has(Mlp::Plain, ActivationKind::Gelu) ||
        (has(Mlp::Plain, ActivationKind::GeluTanh) && bias);
    lack(!known,
         "model.activation '{}' of a {} MLP{}: there is gated silu (--swiglu), plain gelu, and "
         "plain squared_relu; nearest: {}",
         name_of_activation(model_.activation), model_.mlp == Mlp::Gated ? "gated" : "plain",
         bias ? "" : " without biases", model_.mlp == Mlp::Gated ? "silu" : "gelu");
  }

  void biases() {
    const bool has_dense = model_.ffn_size > 0;
    lack(has_dense && model_.mlp_bias != model_.attention_out_bias,
         "model.mlp_bias {} with attention_out_bias {}: --disable-bias-linear takes both away; "
         "nearest: mlp_bias {}",
         model_.mlp_bias, model_.attention_out_bias, model_.attention_out_bias);
    lack(model_.attention_out_bias && !model_.qkv_bias,
         "model.qkv_bias false with attention_out_bias true: biases of the linears include those "
         "of q, k and v; nearest: qkv_bias true");
  }

  void positions() {
    if (model_.positions != Positions::Rope) return;
    lack(model_.rope_base != std::floor(model_.rope_base) || model_.rope_base >= 1e15,
         "model.rope_base {}: --rotary-base is a whole number; nearest: {:.0f}", model_.rope_base,
         model_.rope_base);
    lack(model_.local_rope_base.has_value(),
         "model.local_rope_base {}: all layers rotate alike; nearest: null",
         model_.local_rope_base.value_or(0));
    if (!model_.rope_scaling) return;
    const RopeScaling& scaling = *model_.rope_scaling;
    lack(scaling.kind == RopeScalingKind::Dynamic,
         "model.rope_scaling 'dynamic': there is linear, yarn and llama3; nearest: yarn");
    const int original = scaling.original_max_positions.value_or(model_.max_positions);
    lack(scaling.kind == RopeScalingKind::Llama3 &&
             (scaling.low_frequency_factor != 1 || scaling.high_frequency_factor != 4 ||
              original != 8192),
         "model.rope_scaling 'llama3': its constants are low_frequency_factor 1, "
         "high_frequency_factor 4 and original_max_positions 8192, not {}, {} and {}",
         scaling.low_frequency_factor, scaling.high_frequency_factor, original);
    lack(scaling.kind == RopeScalingKind::Linear && scaling.factor != std::floor(scaling.factor),
         "model.rope_scaling.factor {}: --rotary-seq-len-interpolation-factor is a whole number; "
         "nearest: {:.0f}",
         scaling.factor, scaling.factor);
    lack(scaling.attention_factor.has_value(),
         "model.rope_scaling.attention_factor {}: is as the paper says; nearest: null",
         scaling.attention_factor.value_or(0));
  }

  void latent() {
    lack(model_.mla->norm_epsilon != model_.norm_epsilon,
         "model.mla.norm_epsilon {}: all norms have one, here {}; nearest: {}",
         model_.mla->norm_epsilon, model_.norm_epsilon, model_.norm_epsilon);
    lack(model_.qk_norm,
         "model.qk_norm with latent attention: there are norms of its projections "
         "only; nearest: false");
    if (!model_.rope_scaling) return;
    const RopeScaling& scaling = *model_.rope_scaling;
    lack(scaling.kind != RopeScalingKind::Yarn || scaling.beta_fast != 32 ||
             scaling.beta_slow != 1 || !scaling.truncate ||
             scaling.original_max_positions.value_or(model_.max_positions) != 4096,
         "model.rope_scaling with latent attention: is yarn with beta_fast 32, beta_slow 1, "
         "truncate true and original_max_positions 4096");
  }

  void experts(const MoeSpec& moe) {
    const models::RouterSpec& router = moe.router;
    const bool sigmoid = router.score == models::RouterScore::Sigmoid;
    lack(moe.expert_bias != model_.attention_out_bias || router.bias != model_.attention_out_bias,
         "model.moe: expert_bias {} and router.bias {} with attention_out_bias {}: "
         "--disable-bias-linear takes all away; nearest: all {}",
         moe.expert_bias, router.bias, model_.attention_out_bias, model_.attention_out_bias);
    lack(sigmoid && !router.normalize_top_k && moe.top_k > 1,
         "model.moe.router.normalize_top_k false with score 'sigmoid': the weights are always "
         "scaled to sum to 1; nearest: true");
    lack(!sigmoid && router.normalize_top_k && moe.top_k == 1,
         "model.moe.router.normalize_top_k true with top_k 1: a weight that is always 1 has no "
         "gradient, which Megatron-LM refuses; nearest: false");
    lack(!sigmoid && router.correction_bias,
         "model.moe.router.correction_bias with score 'softmax': it is for 'sigmoid' only; "
         "nearest: false");
    // Groups are ranked by the sum of so many of their scores.
    const int scores = router.correction_bias ? 2 : 1;
    lack(router.num_groups > 1 && moe.top_k / router.top_groups != scores,
         "model.moe.router.top_groups {} with top_k {}: Megatron-LM ranks groups by the sum of "
         "top_k / top_groups scores, the plan by {}; nearest: top_groups {}",
         router.top_groups, moe.top_k, scores == 2 ? "the sum of two" : "the largest",
         std::max(1, moe.top_k / scores));
  }

  void ranks() {
    constexpr std::array kOrders = {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"};
    const bool known = std::ranges::find(kOrders, plan_.rank_order) != kOrders.end();
    lack(!known,
         "rank_order '{}': Megatron-LM has {} and, with --use-tp-pp-dp-mapping, {}; nearest: {}",
         plan_.rank_order, kOrders[0], kOrders[1],
         plan_.rank_order.ends_with("pp-dp") ? kOrders[1] : kOrders[0]);
  }

  void memory() {
    const program::Recompute& recompute = plan_.recompute;
    lack(!recompute.layers_per_stage.empty(),
         "recompute.layers_per_stage: all stages recompute alike; nearest: num_layers {}",
         recompute.layers_per_stage.empty() ? 0 : std::ranges::max(recompute.layers_per_stage));
    lack(recompute.kind == program::RecomputeKind::Selective && recompute.num_layers.has_value(),
         "recompute.num_layers {} with kind 'selective': --recompute-num-layers is for 'full' "
         "only; nearest: null",
         recompute.num_layers.value_or(0));
    lack(recompute.kind == program::RecomputeKind::Full && recompute.num_layers == 0,
         "recompute.num_layers 0 with kind 'full': nearest: kind 'none'");
    lack(plan_.offload_optimizer && plan_.zero_stage != 1,
         "offload_optimizer with zero stage {}: --optimizer-cpu-offload needs the distributed "
         "optimizer; nearest: zero stage 1",
         plan_.zero_stage);
    lack(plan_.offload_parameters,
         "offload_parameters: weights lie on the devices; nearest: false");
    lack(plan_.offload_activations > 0,
         "offload_activations {}: --cpu-offloading-num-layers moves other parts of what backward "
         "reads; nearest: 0",
         plan_.offload_activations);
    lack(plan_.zero_shard_group > 0 && plan_.zero_stage != 1,
         "zero_shard_group {} with zero stage {}: copies are of the distributed optimizer; "
         "nearest: zero stage 1",
         plan_.zero_shard_group, plan_.zero_stage);
    lack(plan_.compression.kind != program::CompressionKind::None,
         "compression '{}': gradients travel whole; nearest: none",
         meshplan::name_of(plan_.compression.kind));
    lack(plan_.model.adapters.has_value(),
         "model.adapters: are Megatron-Bridge's (export --to megatron-bridge), alone to train and "
         "one for all parts of a fused linear; nearest: null");
    lack(!plan_.frozen.empty(),
         "frozen '{}': there are flags for all layers at once only (--freeze-all-layers); nearest: "
         "none",
         plan_.frozen.empty() ? "" : plan_.frozen.front());
  }

  void training() {
    const program::Workload& workload = plan_.workload;
    const program::OptimizerConfig& optimizer = workload.optimizer;
    lack(plan_.empty_sequences() > 0,
         "uneven_batch: replicas take equally many sequences; nearest global_batch_size {}",
         workload.global_batch_size + plan_.empty_sequences());
    lack(workload.documents.packed,
         "workload.documents.packed: not written by this version; nearest: false");
    lack(optimizer.kind == program::OptimizerKind::Adam && optimizer.weight_decay > 0,
         "workload.optimizer.kind 'adam' with weight_decay {}: --optimizer adam decouples the "
         "decay; nearest: adamw",
         optimizer.weight_decay);
    const bool is_muon = optimizer.kind == program::OptimizerKind::Muon;
    lack((optimizer.kind == program::OptimizerKind::Sgd || is_muon) && plan_.offload_optimizer,
         "offload_optimizer with {}: is for adam only; nearest: adamw",
         meshplan::name_of(optimizer.kind));
    lack(is_muon && workload.precision == DType::F16,
         "workload.precision 'fp16' with muon: its products are in bf16; nearest: bf16");
  }

  const Plan& plan_;
  const ModelSpec& model_;
  std::vector<std::string> lacks_;
};

}  // namespace

std::vector<std::string> inexpressible(const Plan& plan) {
  return Words(plan).run();
}

}  // namespace meshplan::planner::megatron
