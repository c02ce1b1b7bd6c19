// Models with weights that tell their names and places, and the smallest of every family.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/hash.hpp"
#include "core/json_fields.hpp"
#include "models/hugging_face.hpp"
#include "runtime/weights/hugging_face_names.hpp"
#include "runtime/weights/parameter_source.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::test {

using runtime::dense_strides, runtime::whole_box;
using Shape = std::vector<std::int64_t>;

/// Every parameter of a model with a value that tells its name and place, exact in bf16.
class MarkedModel final : public runtime::ParameterSource {
 public:
  explicit MarkedModel(const models::ModelSpec& spec) {
    for (const runtime::GlobalParameter& parameter : runtime::global_parameters(spec)) {
      Entry& entry = entries_[parameter.name];
      entry.shape = parameter.shape;
      entry.values.resize(static_cast<std::size_t>(whole_box(parameter.shape).elements()));
      std::uint64_t mark = content_hash(parameter.name);
      for (float& value : entry.values) {
        mark = mark * 6364136223846793005ULL + 1442695040888963407ULL;
        value = static_cast<float>(static_cast<int>(mark >> 56) - 128) / 64.0F;
      }
    }
  }

  void read(const std::string& /*state*/, const std::string& parameter,
            const runtime::TensorTarget& target) override {
    const Entry& entry = entries_.at(parameter);
    runtime::copy_overlap({.data = reinterpret_cast<const std::byte*>(entry.values.data()),
                           .box = whole_box(entry.shape),
                           .strides = dense_strides(entry.shape)},
                          target);
  }

  float at(const std::string& parameter, const Shape& index) const {
    const Entry& entry = entries_.at(parameter);
    const Shape strides = dense_strides(entry.shape);
    const auto place =
        std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
    return entry.values.at(static_cast<std::size_t>(place));
  }

  /// Every parameter read through `source` has our values.
  void check_equals(runtime::ParameterSource& source) const {
    for (const auto& [name, entry] : entries_) {
      std::vector<float> read(entry.values.size(), NAN);
      source.read("weights", name,
                  {.data = read.data(),
                   .box = whole_box(entry.shape),
                   .strides = dense_strides(entry.shape)});
      CAPTURE(name);
      CHECK(read == entry.values);
    }
  }

 private:
  struct Entry {
    Shape shape;
    std::vector<float> values;
  };
  std::map<std::string, Entry> entries_;
};

/// The smallest config of a model type.
inline Json small_config(const std::string& family) {
  static const std::map<std::string, std::string> kConfigs = {
      {"llama", R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
         "vocab_size": 10, "max_position_embeddings": 16})"},
      {"mistral", R"({"model_type": "mistral", "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
         "vocab_size": 10, "max_position_embeddings": 16, "sliding_window": 4})"},
      {"qwen2", R"({"model_type": "qwen2", "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
         "vocab_size": 10, "tie_word_embeddings": true})"},
      {"qwen3", R"({"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 2, "head_dim": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
         "vocab_size": 10})"},
      {"gpt2", R"({"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 10,
         "n_positions": 16})"},
      {"gpt_oss", R"({"model_type": "gpt_oss", "hidden_size": 8, "num_hidden_layers": 2,
         "head_dim": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 6,
         "vocab_size": 10, "num_local_experts": 3, "num_experts_per_tok": 2,
         "sliding_window": 4})"},
      {"bert", R"({"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 10, "num_labels": 3,
         "max_position_embeddings": 16, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0})"},
      {"gemma2", R"({"model_type": "gemma2", "hidden_size": 8, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "head_dim": 4,
         "vocab_size": 10, "query_pre_attn_scalar": 16, "sliding_window": 4})"},
      {"gemma3_text", R"({"model_type": "gemma3_text", "hidden_size": 8, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "head_dim": 4,
         "vocab_size": 10, "query_pre_attn_scalar": 16, "sliding_window": 4,
         "sliding_window_pattern": 3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}})"},
      {"mixtral", R"({"model_type": "mixtral", "hidden_size": 8, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12,
         "vocab_size": 10, "num_local_experts": 3, "num_experts_per_tok": 2})"},
      {"qwen3_moe", R"({"model_type": "qwen3_moe", "hidden_size": 8, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "head_dim": 4,
         "vocab_size": 10, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
         "mlp_only_layers": [1]})"},
      {"qwen3_next", R"({"model_type": "qwen3_next", "hidden_size": 8, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "head_dim": 4,
         "vocab_size": 10, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
         "shared_expert_intermediate_size": 5, "mlp_only_layers": [1], "linear_num_key_heads": 2,
         "linear_num_value_heads": 6, "linear_key_head_dim": 3, "linear_value_head_dim": 4,
         "partial_rotary_factor": 0.5})"},
      {"nemotron_h", R"({"model_type": "nemotron_h", "hidden_size": 8, "num_hidden_layers": 6,
         "hybrid_override_pattern": "M-ME*-", "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 12, "head_dim": 4, "vocab_size": 10, "mamba_num_heads": 6,
         "mamba_head_dim": 3, "ssm_state_size": 5, "n_groups": 2, "n_routed_experts": 3,
         "num_experts_per_tok": 2, "moe_intermediate_size": 6, "n_shared_experts": 1,
         "moe_shared_expert_intermediate_size": 7})"},
      {"deepseek_v3", R"({"model_type": "deepseek_v3", "hidden_size": 8, "num_hidden_layers": 3,
         "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 10, "q_lora_rank": 6,
         "kv_lora_rank": 5, "qk_nope_head_dim": 3, "qk_rope_head_dim": 4, "v_head_dim": 2,
         "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 6,
         "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1})"}};
  if (family != "deepseek_v32" && family != "glm_moe_dsa")
    return parse_json(kConfigs.at(family), family);
  Json config = parse_json(kConfigs.at("deepseek_v3"), family);
  config.update(
      {{"model_type", family}, {"index_n_heads", 3}, {"index_head_dim", 6}, {"index_topk", 5}});
  return config;
}

inline models::ModelSpec small(const std::string& family) {
  return models::import_hugging_face(small_config(family).dump(), family).spec;
}

/// The value of a tensor of an exported folder.
inline float value(const runtime::SafetensorsFile& file, const std::string& tensor,
                   const Shape& index) {
  const runtime::SafeTensor& data = file.at(tensor);
  const Shape strides = dense_strides(data.shape);
  const auto place =
      std::inner_product(index.begin(), index.end(), strides.begin(), std::int64_t{0});
  float result = NAN;
  std::memcpy(&result, data.data.data() + place * 4, sizeof result);
  return result;
}

inline std::vector<std::string> names(const runtime::SafetensorsFile& file) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : file.tensors()) all.push_back(name);
  return all;
}

}  // namespace meshplan::test
