#include "checks/not_lowered.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "models/adapters.hpp"

namespace meshplan::program {
namespace {

constexpr std::string_view kPredicted =
    "it is predicted for other software, as in --software megatron-core";

class Parts {
 public:
  explicit Parts(const Plan& plan) : plan_(plan), model_(plan.model), parallel_(plan.parallel) {}

  std::vector<std::string> run() {
    experts();
    mixers();
    attention();
    layers();
    if (model_.dropout > 0)
      refuse(true, fmt::format("dropout {}", model_.dropout),
             "--no-dropout plans and trains the model without it");
    if (model_.mtp_layers > 0) predictions();
    refuse(plan_.workload.optimizer.kind == OptimizerKind::Muon, "workload.optimizer.kind 'muon'",
           "use 'adamw'; Megatron-Core's Muon is predicted (stack.software)");
    adapters();
    if (parallel_.cp > 1) context_parallel();
    return std::move(messages_);
  }

 private:
  void refuse(bool uses, std::string_view what, std::string_view way_out = "") {
    if (uses) messages_.push_back(not_lowered_message(model_, what, way_out));
  }

  void mixers() {
    using models::Mixer;
    constexpr std::array kNotYet = {Mixer::Chunked, Mixer::AttentionAndMamba, Mixer::Convolution,
                                    Mixer::Projection};
    for (const Mixer mixer : kNotYet)
      refuse(
          models::has_mixer(model_, mixer),
          fmt::format("a layer that mixes by '{}' (layer_pattern)", models::name_of_mixer(mixer)),
          kPredicted);
    recurrences();
    refuse(std::ranges::find(model_.ffn_pattern, models::FeedForward::Projection) !=
               model_.ffn_pattern.end(),
           "a projection in the place of a feed-forward part (ffn_pattern)", kPredicted);
    if (model_.sparse_attention) chosen_keys();
    refuse(model_.compressed_attention.has_value(), "compressed_attention", kPredicted);
  }

  void chosen_keys() {
    const bool borrows = std::ranges::any_of(
        model_.layer_variants,
        [](const models::LayerVariant& layer) { return layer.borrows_choices == true; });
    refuse(borrows, "keys that an earlier layer chose (borrows_choices)", kPredicted);
    refuse(model_.sparse_attention->block > 1, "keys chosen in blocks (sparse_attention.block)",
           kPredicted);
    refuse(model_.attention_sinks || model_.attention_softcap,
           "sinks or a soft cap of attention to chosen keys", kPredicted);
    refuse(models::has_mixer(model_, models::Mixer::Sliding),
           "a window of attention to chosen keys (layer_pattern)", kPredicted);
    refuse(parallel_.cp > 1, "sparse_attention over cp > 1");
  }

  void recurrences() {
    constexpr int kMostTaps = 4;
    if (const auto& linear = model_.linear_attention) {
      refuse(linear->kind != models::LinearAttentionKind::GatedDelta,
             "linear attention of another kind than 'gated_delta' (linear_attention.kind)",
             kPredicted);
      refuse(linear->conv_size < 1 || linear->conv_size > kMostTaps || linear->gate_rank,
             "linear attention without a convolution of 1 to 4 taps or with a gate of low rank "
             "(linear_attention.conv_size, gate_rank)",
             kPredicted);
      refuse(parallel_.cp > 1, "linear attention over cp > 1");
    }
    if (const auto& mamba = model_.mamba) {
      refuse(mamba->version != 2 || !mamba->norm || mamba->conv_size > kMostTaps,
             "Mamba of version 1, without a norm or with a convolution of more than 4 taps (mamba)",
             kPredicted);
      refuse(parallel_.cp > 1, "Mamba over cp > 1");
    }
  }

  void attention() {
    refuse(model_.qk_norm && model_.qk_norm_over != models::QkNorm::Head,
           "a norm of queries and keys that is not of each head with common weights (qk_norm_over)",
           kPredicted);
    refuse(model_.positions == models::Positions::Alibi, "positions 'alibi'", kPredicted);
    const bool other_values =
        !model_.mla && std::ranges::any_of(models::layers_of_each_kind(model_), [&](int layer) {
          const models::ModelSpec own = models::spec_of_layer(model_, layer);
          return own.keys_are_values || own.borrows_keys ||
                 own.value_head_size.value_or(own.head_size) != own.head_size;
        });
    refuse(other_values,
           "attention whose values are not of the keys' heads and sizes (value_head_size, "
           "keys_are_values, borrows_keys)",
           kPredicted);
  }

  void layers() {
    refuse(model_.hyper_connections.has_value(), "hyper_connections", kPredicted);
    refuse(model_.vision.has_value(), "a vision tower (vision)",
           "--text-only plans and trains the decoder alone");
    refuse(model_.low_rank_residual.has_value(), "low_rank_residual", kPredicted);
    refuse(model_.layer_inputs.has_value(), "layer_inputs", kPredicted);
    for (const std::string& part : model_.only_predicted) refuse(true, part, kPredicted);
  }

  void predictions() {
    const auto refuse_with = [&](bool uses, std::string_view what) {
      refuse(uses, fmt::format("multi-token prediction (mtp_layers) {}", what),
             "--no-mtp plans the model without these modules");
    };
    refuse_with(parallel_.cp > 1, "over cp > 1");
    refuse_with(plan_.workload.documents.packed, "with packed documents");
    refuse_with(model_.positions == models::Positions::Learned, "with positions 'learned'");
    refuse_with(model_.embedding_norm, "with embedding_norm");
    refuse_with(model_.mtp_layers > 1 && models::predicts_with_experts(model_),
                "by several modules with experts");
  }

  void experts() {
    if (!model_.moe) return;
    const models::MoeSpec& moe = *model_.moe;
    refuse(moe.latent_size.has_value(), "experts of latent vectors (moe.latent_size)", kPredicted);
    refuse(moe.router.score == models::RouterScore::SqrtSoftplus,
           "a router that scores by 'sqrt_softplus' (moe.router.score)", kPredicted);
    refuse(moe.router.z_loss_coefficient != 0 && moe.router.score == models::RouterScore::Sigmoid,
           "a z-loss of a sigmoid router (moe.router.z_loss_coefficient)");
  }

  void adapters() {
    if (!model_.adapters) return;
    refuse(models::has_adapters_apart(model_),
           "an adapter for a part of a fused linear (adapters.modules)",
           "qkv_proj and gate_up_proj have one for all their parts");
    const auto has = [&](std::string_view module) {
      return models::has_adapters(*model_.adapters, module);
    };
    refuse(model_.moe && (has("gate_up_proj") || has("up_proj") || has("down_proj")),
           "an adapter of experts (adapters.modules)", "attention's are: qkv_proj, o_proj");
    refuse(parallel_.cp > 1 && has("kv_b_proj"), "an adapter of kv_b_proj over cp > 1");
  }

  void context_parallel() {
    refuse(!model_.causal, "attention without a causal mask over cp > 1");
    refuse(model_.moe && model_.moe->capacity_factor != 0 && plan_.workload.documents.packed,
           "a capacity of experts (moe.capacity_factor) over cp > 1 with packed documents, whose "
           "tokens do not lie in the order of their sequence,");
    const bool has_window = std::ranges::find(model_.layer_pattern, models::Mixer::Sliding) !=
                            model_.layer_pattern.end();
    refuse(plan_.context_parallel == ContextMethod::Ring && has_window,
           "a sliding window in a ring over cp > 1 (use context_parallel 'all_gather')");
  }

  const Plan& plan_;
  const models::ModelSpec& model_;
  const ParallelConfig& parallel_;
  std::vector<std::string> messages_;
};

}  // namespace

std::string not_lowered_message(const models::ModelSpec& model, std::string_view what,
                                std::string_view way_out) {
  return fmt::format("{}: {} is not lowered by this version{}{}", model.name, what,
                     way_out.empty() ? "" : "; ", way_out);
}

std::vector<std::string> not_lowered(const Plan& plan) {
  return Parts(plan).run();
}

}  // namespace meshplan::program
