// Writing Hugging Face configs: the inverse of hf_families.cpp for the families whose weights can
// be exported, checked by importing what was written.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_text.hpp"
#include "model_json.hpp"
#include "models/hugging_face.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::models {
namespace {

std::string_view activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::Silu:
      return "silu";
    case ActivationKind::Gelu:
      return "gelu";
    case ActivationKind::GeluTanh:
      return "gelu_new";
    case ActivationKind::SquaredRelu:
      return "relu2";
    case ActivationKind::Relu:
      return "relu";
    default:
      return "";  // the import that follows names the key
  }
}

Json gpt2_config(const ModelSpec& spec) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_layer", spec.num_layers},
          {"n_embd", spec.hidden_size},
          {"n_head", spec.num_heads},
          {"n_inner", spec.ffn_size},
          {"n_positions", spec.max_positions},
          {"vocab_size", spec.vocab_size},
          {"layer_norm_epsilon", spec.norm_epsilon},
          {"activation_function", activation_name(spec.activation)},
          {"initializer_range", spec.init_std},
          {"scale_attn_weights", spec.attention_scale != 1.0},
          {"attn_pdrop", spec.dropout},
          {"embd_pdrop", spec.dropout},
          {"resid_pdrop", spec.dropout},
          {"tie_word_embeddings", spec.tied_embeddings}};
}

/// null where the frequencies are not scaled.
Json rope_scaling_config(const ModelSpec& spec) {
  if (!spec.rope_scaling) return nullptr;
  const RopeScaling& scaling = *spec.rope_scaling;
  Json config{{"rope_type", name_of(scaling.kind)}, {"factor", scaling.factor}};
  if (scaling.original_max_positions)
    config["original_max_position_embeddings"] = *scaling.original_max_positions;
  if (scaling.kind == RopeScalingKind::Llama3) {
    config["low_freq_factor"] = scaling.low_frequency_factor;
    config["high_freq_factor"] = scaling.high_frequency_factor;
  }
  if (scaling.kind != RopeScalingKind::Yarn) return config;
  config["beta_fast"] = scaling.beta_fast;
  config["beta_slow"] = scaling.beta_slow;
  config["truncate"] = scaling.truncate;
  if (scaling.attention_factor) config["attention_factor"] = *scaling.attention_factor;
  if (scaling.mscale) config["mscale"] = *scaling.mscale;
  if (scaling.mscale_all_dim) config["mscale_all_dim"] = *scaling.mscale_all_dim;
  return config;
}

Json llama_like_config(const ModelSpec& spec, std::string_view architecture) {
  return {{"architectures", {architecture}},
          {"num_hidden_layers", spec.num_layers},
          {"hidden_size", spec.hidden_size},
          {"intermediate_size", spec.ffn_size},
          {"num_attention_heads", spec.num_heads},
          {"num_key_value_heads", spec.num_kv_heads},
          {"head_dim", spec.head_size},
          {"hidden_act", activation_name(spec.activation)},
          {"max_position_embeddings", spec.max_positions},
          {"vocab_size", spec.vocab_size},
          {"rms_norm_eps", spec.norm_epsilon},
          {"rope_theta", spec.rope_base},
          {"rope_scaling", rope_scaling_config(spec)},
          {"attention_dropout", spec.dropout},
          {"initializer_range", spec.init_std},
          {"tie_word_embeddings", spec.tied_embeddings}};
}

/// For model types whose window needs no flag.
void add_window(const ModelSpec& spec, Json& config) {
  config["sliding_window"] = spec.window > 0 ? Json(spec.window) : Json(nullptr);
}

std::string_view layer_type(Mixer mixer) {
  return mixer == Mixer::Sliding  ? "sliding_attention"
         : mixer == Mixer::Linear ? "linear_attention"
                                  : "full_attention";
}

void add_layer_types(const ModelSpec& spec, Json& config) {
  Json types = Json::array();
  for (int layer = 0; layer < spec.num_layers; ++layer)
    types.push_back(layer_type(mixer_of_layer(spec, layer)));
  config["layer_types"] = std::move(types);
}

void add_switched_window(const ModelSpec& spec, Json& config) {
  config["use_sliding_window"] = spec.window > 0;
  add_window(spec, config);
}

/// Qwen 2 and 3: layers slide from max_window_layers on, or as layer_types says.
void add_window_of_some_layers(const ModelSpec& spec, Json& config) {
  add_switched_window(spec, config);
  int first = 0;
  if (spec.window > 0)
    while (first < spec.num_layers && mixer_of_layer(spec, first) == Mixer::Full) ++first;
  config["max_window_layers"] = first;
  if (first > 0) add_layer_types(spec, config);
}

/// For the model types that have a balance loss; `balance_loss` in hf_common.cpp says why it is
/// off.
void add_balance_loss(const ModelSpec& spec, Json& config) {
  config["output_router_logits"] = false;
  config["router_aux_loss_coef"] = spec.moe->router.aux_loss_coefficient;
}

Json llama_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "LlamaForCausalLM");
  config["attention_bias"] = spec.qkv_bias;
  config["mlp_bias"] = spec.mlp_bias;
  return config;
}

Json mistral_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "MistralForCausalLM");
  add_window(spec, config);
  return config;
}

Json qwen2_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "Qwen2ForCausalLM");
  add_window_of_some_layers(spec, config);
  return config;
}

Json qwen3_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "Qwen3ForCausalLM");
  add_window_of_some_layers(spec, config);
  config["attention_bias"] = spec.qkv_bias;
  return config;
}

Json mixtral_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "MixtralForCausalLM");
  add_window(spec, config);
  if (!spec.moe) return config;
  config["intermediate_size"] = spec.moe->expert_ffn_size;
  config["num_local_experts"] = spec.moe->num_experts;
  config["num_experts_per_tok"] = spec.moe->top_k;
  add_balance_loss(spec, config);
  return config;
}

/// Experts of Qwen 3 and Qwen3-Next.
void add_qwen_experts(const ModelSpec& spec, Json& config) {
  config["moe_intermediate_size"] = spec.moe->expert_ffn_size;
  config["num_experts"] = spec.moe->num_experts;
  config["num_experts_per_tok"] = spec.moe->top_k;
  config["norm_topk_prob"] = spec.moe->router.normalize_top_k;
  add_balance_loss(spec, config);
  config["mlp_only_layers"] = spec.moe->dense_layers;
}

Json qwen3_moe_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "Qwen3MoeForCausalLM");
  add_switched_window(spec, config);
  config["attention_bias"] = spec.qkv_bias;
  if (spec.moe) add_qwen_experts(spec, config);
  return config;
}

Json gpt_oss_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "GptOssForCausalLM");
  if (!spec.moe) return config;
  config["intermediate_size"] = spec.moe->expert_ffn_size;
  config["num_local_experts"] = spec.moe->num_experts;
  config["num_experts_per_tok"] = spec.moe->top_k;
  add_window(spec, config);
  add_balance_loss(spec, config);
  config["attention_bias"] = spec.qkv_bias;
  config["hidden_act"] = "silu";  // its clamped form has no name
  config["swiglu_limit"] = 7.0;
  add_layer_types(spec, config);
  return config;
}

void add_deepseek_experts(const MoeSpec& moe, Json& config) {
  config["n_routed_experts"] = moe.num_experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["moe_intermediate_size"] = moe.expert_ffn_size;
  config["n_shared_experts"] = moe.shared_expert_ffn_size / std::max(1, moe.expert_ffn_size);
  config["first_k_dense_replace"] = moe.dense_layers.size();
  config["moe_layer_freq"] = 1;  // transformers' class does not read another one
  config["scoring_func"] = moe.router.score == RouterScore::Sigmoid ? "sigmoid" : "softmax";
  config["topk_method"] = moe.router.correction_bias  ? "noaux_tc"
                          : moe.router.num_groups > 1 ? "group_limited_greedy"
                                                      : "greedy";
  config["norm_topk_prob"] = moe.router.normalize_top_k;
  config["routed_scaling_factor"] = moe.router.scaling_factor;
  config["n_group"] = moe.router.num_groups;
  config["topk_group"] = moe.router.top_groups;
}

Json deepseek_v3_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "DeepseekV3ForCausalLM");
  if (!spec.mla) return config;
  const MlaSpec& mla = *spec.mla;
  config["attention_bias"] = spec.qkv_bias;
  config["head_dim"] = mla.qk_rope_head_size;
  config["q_lora_rank"] = mla.q_lora_rank ? Json(*mla.q_lora_rank) : Json(nullptr);
  config["kv_lora_rank"] = mla.kv_lora_rank;
  config["qk_nope_head_dim"] = mla.qk_nope_head_size;
  config["qk_rope_head_dim"] = mla.qk_rope_head_size;
  config["v_head_dim"] = mla.v_head_size;
  config["num_nextn_predict_layers"] = spec.mtp_layers;
  config["rope_interleave"] = true;
  if (spec.moe) {
    add_deepseek_experts(*spec.moe, config);
  } else {
    config["n_routed_experts"] = 0;
    config["first_k_dense_replace"] = spec.num_layers;
  }
  return config;
}

void add_indexer(const ModelSpec& spec, Json& config) {
  if (!spec.sparse_attention) return;
  config["index_n_heads"] = spec.sparse_attention->index_heads;
  config["index_head_dim"] = spec.sparse_attention->index_head_size;
  config["index_topk"] = spec.sparse_attention->top_k;
}

Json deepseek_v32_config(const ModelSpec& spec) {
  Json config = deepseek_v3_config(spec);
  config["architectures"] = {"DeepseekV32ForCausalLM"};
  add_indexer(spec, config);
  return config;
}

Json glm_moe_dsa_config(const ModelSpec& spec) {
  Json config = deepseek_v32_config(spec);
  config["architectures"] = {"GlmMoeDsaForCausalLM"};
  config["indexer_rope_interleave"] = true;
  return config;
}

Json gemma_config(const ModelSpec& spec, std::string_view architecture) {
  Json config = llama_like_config(spec, architecture);
  config.erase("hidden_act");
  add_window(spec, config);
  config["attention_bias"] = spec.qkv_bias;
  config["hidden_activation"] = spec.activation == ActivationKind::GeluTanh
                                    ? "gelu_pytorch_tanh"
                                    : activation_name(spec.activation);
  const double scale = spec.attention_scale.value_or(0);
  config["query_pre_attn_scalar"] =
      scale > 0 ? Json(std::round(1 / (scale * scale))) : Json(spec.head_size);
  const auto number = [](std::optional<double> cap) { return cap ? Json(*cap) : Json(nullptr); };
  config["attn_logit_softcapping"] = number(spec.attention_softcap);
  config["final_logit_softcapping"] = number(spec.logit_softcap);
  add_layer_types(spec, config);
  return config;
}

Json gemma2_config(const ModelSpec& spec) {
  return gemma_config(spec, "Gemma2ForCausalLM");
}

Json gemma3_config(const ModelSpec& spec) {
  Json config = gemma_config(spec, "Gemma3ForCausalLM");
  config["rope_local_base_freq"] = spec.local_rope_base.value_or(spec.rope_base);
  return config;
}

Json bert_config(const ModelSpec& spec) {
  Json names = Json::object(), numbers = Json::object();
  for (int i = 0; i < spec.num_classes; ++i) {
    names[std::to_string(i)] = fmt::format("LABEL_{}", i);
    numbers[fmt::format("LABEL_{}", i)] = i;
  }
  return {{"architectures", {"BertForSequenceClassification"}},
          {"num_hidden_layers", spec.num_layers},
          {"hidden_size", spec.hidden_size},
          {"intermediate_size", spec.ffn_size},
          {"num_attention_heads", spec.num_heads},
          {"hidden_act", activation_name(spec.activation)},
          {"hidden_dropout_prob", spec.dropout},
          {"attention_probs_dropout_prob", spec.dropout},
          {"max_position_embeddings", spec.max_positions},
          {"type_vocab_size", spec.token_types},
          {"vocab_size", spec.vocab_size},
          {"layer_norm_eps", spec.norm_epsilon},
          {"initializer_range", spec.init_std},
          {"id2label", names},
          {"label2id", numbers}};
}

void add_linear_layers(const ModelSpec& spec, Json& config) {
  if (!spec.linear_attention) return;
  const LinearAttentionSpec& linear = *spec.linear_attention;
  config["linear_num_key_heads"] = linear.num_key_heads;
  config["linear_num_value_heads"] = linear.num_value_heads;
  config["linear_key_head_dim"] = linear.key_head_size;
  config["linear_value_head_dim"] = linear.value_head_size;
  config["linear_conv_kernel_dim"] = linear.conv_size;
}

Json qwen3_next_config(const ModelSpec& spec) {
  Json config = llama_like_config(spec, "Qwen3NextForCausalLM");
  config["attention_bias"] = spec.qkv_bias;
  config["partial_rotary_factor"] =
      double(spec.rope_size.value_or(spec.head_size)) / std::max(1, spec.head_size);
  add_layer_types(spec, config);
  add_linear_layers(spec, config);
  config["num_nextn_predict_layers"] = spec.mtp_layers;
  if (!spec.moe) return config;
  add_qwen_experts(spec, config);
  config["shared_expert_intermediate_size"] = spec.moe->shared_expert_ffn_size;
  config["decoder_sparse_step"] = 1;
  return config;
}

/// A letter for each layer, which is one half.
std::string letters_of_layers(const ModelSpec& spec) {
  std::string letters;
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    const Mixer mixer = mixer_of_layer(spec, layer);
    letters += mixer == Mixer::Mamba                           ? 'M'
               : mixer != Mixer::None                          ? '*'
               : ffn_of_layer(spec, layer) == FeedForward::Moe ? 'E'
                                                               : '-';
  }
  return letters;
}

void add_mamba(const ModelSpec& spec, Json& config) {
  if (!spec.mamba) return;
  const MambaSpec& mamba = *spec.mamba;
  config["mamba_num_heads"] = mamba.num_heads;
  config["mamba_head_dim"] = mamba.head_size;
  config["ssm_state_size"] = mamba.state_size;
  config["n_groups"] = mamba.num_groups;
  config["conv_kernel"] = mamba.conv_size;
  config["use_conv_bias"] = mamba.conv_bias;
  config["use_bias"] = mamba.projection_bias;
  config["chunk_size"] = mamba.chunk_size;
}

Json nemotron_h_config(const ModelSpec& spec) {
  Json config{{"architectures", {"NemotronHForCausalLM"}},
              {"hybrid_override_pattern", letters_of_layers(spec)},
              {"num_hidden_layers", spec.num_layers},
              {"hidden_size", spec.hidden_size},
              {"intermediate_size", spec.ffn_size},
              {"num_attention_heads", spec.num_heads},
              {"num_key_value_heads", spec.num_kv_heads},
              {"head_dim", spec.head_size},
              {"attention_bias", spec.qkv_bias},
              {"mlp_bias", spec.mlp_bias},
              {"mlp_hidden_act", activation_name(spec.activation)},
              {"max_position_embeddings", spec.max_positions},
              {"vocab_size", spec.vocab_size},
              {"layer_norm_epsilon", spec.norm_epsilon},
              {"initializer_range", spec.init_std},
              {"tie_word_embeddings", spec.tied_embeddings},
              {"num_nextn_predict_layers", spec.mtp_layers}};
  add_mamba(spec, config);
  if (!spec.moe) return config;
  const MoeSpec& moe = *spec.moe;
  config["n_routed_experts"] = moe.num_experts;
  config["num_experts_per_tok"] = moe.top_k;
  config["moe_intermediate_size"] = moe.expert_ffn_size;
  config["n_shared_experts"] = moe.shared_expert_ffn_size > 0 ? 1 : 0;
  config["moe_shared_expert_intermediate_size"] = moe.shared_expert_ffn_size;
  config["norm_topk_prob"] = moe.router.normalize_top_k;
  config["routed_scaling_factor"] = moe.router.scaling_factor;
  config["n_group"] = moe.router.num_groups;
  config["topk_group"] = moe.router.top_groups;
  return config;
}

struct Exporter {
  std::string_view family;
  Json (*config)(const ModelSpec&);
};

// In the order of preference for a model that several can express.
constexpr std::array<Exporter, 16> kExporters = {{{"gpt2", gpt2_config},
                                                  {"bert", bert_config},
                                                  {"gemma2", gemma2_config},
                                                  {"gemma3_text", gemma3_config},
                                                  {"llama", llama_config},
                                                  {"mistral", mistral_config},
                                                  {"qwen2", qwen2_config},
                                                  {"qwen3", qwen3_config},
                                                  {"mixtral", mixtral_config},
                                                  {"qwen3_moe", qwen3_moe_config},
                                                  {"gpt_oss", gpt_oss_config},
                                                  {"deepseek_v3", deepseek_v3_config},
                                                  {"deepseek_v32", deepseek_v32_config},
                                                  {"glm_moe_dsa", glm_moe_dsa_config},
                                                  {"qwen3_next", qwen3_next_config},
                                                  {"nemotron_h", nemotron_h_config}}};

/// The fields in which `spec` comes back changed from the config; choices of training may.
std::vector<std::string> lost_fields(const ModelSpec& spec, const std::string& text) {
  ModelSpec back = import_hugging_face(text, "config.json").spec;
  back.name = spec.name;
  std::vector<std::string> lost;
  for (const FieldDifference& difference : differences(spec, back))
    if (!is_training_choice(difference.field))
      lost.push_back(fmt::format("{} = {} would become {}", difference.field, difference.left,
                                 difference.right));
  return lost;
}

std::string config_text(const Exporter& exporter, const ModelSpec& spec) {
  Json config = exporter.config(spec);
  config["model_type"] = exporter.family;
  return json_text(config) + "\n";
}

bool can_express(const Exporter& exporter, const ModelSpec& spec) {
  try {
    return lost_fields(spec, config_text(exporter, spec)).empty();
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::string export_hugging_face(const ModelSpec& spec, const std::string& model_type) {
  const auto* exporter = std::ranges::find(kExporters, model_type, &Exporter::family);
  if (exporter == kExporters.end()) {
    std::vector<std::string> names;
    for (const Exporter& known : kExporters) names.emplace_back(known.family);
    throw ConfigError(unknown_name_message("model_type to export", model_type, names));
  }
  std::string text = config_text(*exporter, spec);
  const std::vector<std::string> lost = lost_fields(spec, text);
  if (!lost.empty())
    throw ConfigError(fmt::format("{}: a {} config cannot say everything: {}", spec.name,
                                  model_type, fmt::join(lost, "; ")));
  return text;
}

std::string matching_model_type(const ModelSpec& spec) {
  const auto* found = std::ranges::find_if(
      kExporters, [&](const Exporter& exporter) { return can_express(exporter, spec); });
  if (found != kExporters.end()) return std::string(found->family);
  throw ConfigError(fmt::format(
      "{}: no Hugging Face model type that meshplan writes can express this model; name one with "
      "--model-type to see what is in the way",
      spec.name));
}

}  // namespace meshplan::models
