// Gemma 1 to 4.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/index.hpp"
#include "core/limits.hpp"
#include "families/families.hpp"
#include "hf/family_parts.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {
namespace {

void fill_gemma_like(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  // `hidden_act` of older files is not what the class reads.
  spec.activation = config.activation({"hidden_activation"});
  config.ignore("hidden_act", "transformers reads hidden_activation");
  spec.norm_placement = NormPlacement::PrePost;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  set_attention_bias(config, spec);
  const double scalar = config.number({"query_pre_attn_scalar"});
  if (scalar <= 0)
    config.fail("query_pre_attn_scalar", fmt::format("expected a positive number, got {}", scalar));
  if (scalar != spec.head_size) spec.attention_scale = 1.0 / std::sqrt(scalar);
  spec.attention_softcap = config.optional_number({"attn_logit_softcapping"});
  spec.logit_softcap = config.optional_number({"final_logit_softcapping"});
  if (config.has("use_bidirectional_attention"))
    require_absent_or(config, "use_bidirectional_attention", false, "attention is causal");
  config.ignore("use_bidirectional_attention", "it is not true: attention is causal");
}

/// Gemma 1 has neither norms behind its halves nor caps.
void fill_gemma1(HfConfig& config, ModelSpec& spec) {
  fill_llama_like(config, spec);
  spec.ffn_size = config.positive({"intermediate_size"});
  // Older files say "gelu" and mean its tanh form, which `hidden_activation` says.
  const bool said = config.has("hidden_activation");
  spec.activation = said ? config.activation({"hidden_activation"}) : ActivationKind::GeluTanh;
  config.ignore("hidden_act", "every gemma has the tanh form of GELU");
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  set_attention_bias(config, spec);
}

void fill_gemma2(HfConfig& config, ModelSpec& spec) {
  fill_gemma_like(config, spec);
  fill_layer_types(config, spec, full_every(spec, 2, Mixer::Sliding));
}

void fill_vaultgemma(HfConfig& config, ModelSpec& spec) {
  fill_gemma2(config, spec);
  spec.norm_placement = NormPlacement::Pre;
}

void fill_gemma3(HfConfig& config, ModelSpec& spec) {
  fill_gemma_like(config, spec);
  spec.qk_norm = true;
  const bool listed = config.has("layer_types");
  fill_layer_types(
      config, spec,
      listed ? Mixers{}
             : full_every(spec, config.positive({"sliding_window_pattern"}), Mixer::Sliding));
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"})
    if (listed) config.ignore(key, "said by layer_types");
  const auto rope = config.object("rope_parameters");
  const bool local_said = rope && rope->has("sliding_attention");
  if (local_said) config.ignore("rope_local_base_freq", "said by rope_parameters");
  if (!local_said) spec.local_rope_base = config.number({"rope_local_base_freq"});
  if (spec.window == 0) spec.local_rope_base.reset();
}

/// What full layers of Gemma 4 have otherwise than sliding ones.
void fill_gemma4_attention(HfConfig& config, ModelSpec& spec) {
  const int borrowing = config.integer({"num_kv_shared_layers"});
  const bool double_wide = config.flag({"use_double_wide_mlp"});
  const bool one = config.flag({"attention_k_eq_v"});
  const int size = config.positive({"global_head_dim"});
  const auto heads = config.optional_integer({"num_global_key_value_heads"});
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    LayerVariant& own = changes.of(layer);
    if (mixer_of_layer(spec, layer) == Mixer::Full) {
      if (size != spec.head_size) own.head_size = size;
      if (one && heads) own.num_kv_heads = *heads;
      if (one) own.keys_are_values = true;
      if (spec.rope_size) own.rope_size = product_of_sizes(size, *spec.rope_size) / spec.head_size;
    }
    if (layer < spec.num_layers - borrowing) continue;
    own.borrows_keys = true;
    own.keys_are_values.reset();
    if (double_wide) own.ffn_size = product_of_sizes(2, spec.ffn_size);
  }
  changes.store(spec);
  if (spec.rope_size) spec.rope_size.reset();
}

void fill_gemma4_experts(HfConfig& config, ModelSpec& spec) {
  if (!config.flag({"enable_moe_block"})) return;
  MoeSpec moe;
  moe.num_experts = config.positive({"num_experts"});
  moe.top_k = config.positive({"top_k_experts"});
  moe.expert_ffn_size = config.positive({"moe_intermediate_size"});
  moe.shared_expert_ffn_size = spec.ffn_size;  // the dense MLP beside them
  spec.ffn_size = 0;
  spec.moe = std::move(moe);
  predict_only(spec, "norms and scales of the router, and of experts and MLP apart (gemma4)");
}

void fill_gemma4(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_layer_types(config, spec, full_every(spec, 6, Mixer::Sliding));
  fill_rope(config, spec, RotatedParts::OfEachKind);
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  spec.ffn_size = config.positive({"intermediate_size"});
  spec.activation = config.activation({"hidden_activation"});
  spec.norm_placement = NormPlacement::PrePost;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.attention_scale = 1.0;
  spec.logit_softcap = config.optional_number({"final_logit_softcapping"});
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  config.ignore("use_bidirectional_attention", "of images: text is causal");
  predict_only(spec, "norms of values and a learned scale of each layer (every gemma4)");
  fill_gemma4_attention(config, spec);
  fill_gemma4_experts(config, spec);
  if (spec.moe) set_ffns(spec, std::vector<FeedForward>(at(spec.num_layers), FeedForward::Moe));
  if (const int size = config.integer({"hidden_size_per_layer_input"}); size > 0)
    spec.layer_inputs =
        LayerInputSpec{.size = size, .vocab_size = config.positive({"vocab_size_per_layer_input"})};
  config.ignore("vocab_size_per_layer_input", "there are no inputs per layer");
}

/// Gemma 3n: four streams that take turns (AltUp), a low-rank residual beside attention (LAuReL).
void fill_gemma3n(HfConfig& config, ModelSpec& spec) {
  fill_sizes(config, spec);
  fill_heads(config, spec);
  fill_layer_types(config, spec, full_every(spec, 5, Mixer::Sliding));
  fill_rope(config, spec);
  spec.local_rope_base = config.number({"rope_local_base_freq"});
  spec.norm_epsilon = config.number({"rms_norm_eps"});
  spec.tied_embeddings = config.flag({"tie_word_embeddings"});
  const std::vector<int> widths = config.integer_or_list({"intermediate_size"});
  spec.ffn_size = widths.front();
  spec.activation = config.activation({"hidden_activation"});
  spec.norm_placement = NormPlacement::PrePost;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.attention_scale = 1.0;
  spec.logit_softcap = config.optional_number({"final_logit_softcapping"});
  set_attention_bias(config, spec);
  spec.qk_norm = true;
  const int borrowing = config.integer({"num_kv_shared_layers"});
  LayerChanges changes(spec.num_layers);
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    if (layer >= spec.num_layers - borrowing) changes.of(layer).borrows_keys = true;
    if (widths.size() > at(layer) && widths[at(layer)] != spec.ffn_size)
      changes.of(layer).ffn_size = widths[at(layer)];
  }
  changes.store(spec);
  spec.layer_inputs = LayerInputSpec{.size = config.positive({"hidden_size_per_layer_input"}),
                                     .vocab_size = config.positive({"vocab_size_per_layer_input"})};
  const int streams = config.positive({"altup_num_inputs"});
  spec.low_rank_residual = config.positive({"laurel_rank"});
  config.ignore("activation_sparsity_pattern", "the products are done whole");
  predict_only(spec, fmt::format("{} streams that take turns (gemma3n)", streams));
}

}  // namespace

std::vector<HfFamily> gemma_families() {
  return {{"gemma", fill_gemma1},          {"gemma2", fill_gemma2},
          {"vaultgemma", fill_vaultgemma}, {"gemma3_text", fill_gemma3},
          {"gemma3n_text", fill_gemma3n},  {"gemma4_text", fill_gemma4}};
}

}  // namespace meshplan::models
