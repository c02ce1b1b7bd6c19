#include "weights/hugging_face_tables.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace meshplan::runtime {
namespace {

/// A head of `stride` rows of theirs after the other, of which `count` from `first` on are ours.
FusedRows rows_of_heads(int heads, std::int64_t count, std::int64_t first, std::int64_t stride) {
  FusedRows rows{.total = heads * stride};
  for (int head = 0; head < heads; ++head)
    rows.runs.push_back({.ours = head * count, .theirs = head * stride + first, .count = count});
  return rows;
}

/// Queries of a head, then its gates: `half` 0 or 1.
template <int half>
FusedRows gated_query_rows(const models::ModelSpec& spec) {
  const std::int64_t size = spec.head_size;
  return rows_of_heads(spec.num_heads, size, half * size, 2 * size);
}

/// A key head of a gated delta net: its query, its key, values and gates of its value heads.
struct KeyHead {
  std::int64_t key, values, total;
  explicit KeyHead(const models::LinearAttentionSpec& linear)
      : key(linear.key_head_size),
        values(std::int64_t{linear.num_value_heads / linear.num_key_heads} *
               linear.value_head_size),
        total(2 * key + 2 * values) {}
};

FusedRows delta_qkv_rows(const models::ModelSpec& spec) {
  const models::LinearAttentionSpec& linear = *spec.linear_attention;
  const KeyHead head(linear);
  FusedRows rows{.total = linear.num_key_heads * head.total};
  std::int64_t ours = 0;
  for (const auto& [first, count] :
       {std::pair{std::int64_t{0}, head.key}, std::pair{head.key, head.key},
        std::pair{2 * head.key, head.values}})
    for (int i = 0; i < linear.num_key_heads; ++i, ours += count)
      rows.runs.push_back({.ours = ours, .theirs = i * head.total + first, .count = count});
  return rows;
}

FusedRows delta_gate_rows(const models::ModelSpec& spec) {
  const KeyHead head(*spec.linear_attention);
  return rows_of_heads(spec.linear_attention->num_key_heads, head.values,
                       2 * head.key + head.values, head.total);
}

/// b of the value heads of a key head, then a of these.
FusedRows delta_ba_rows(const models::ModelSpec& spec) {
  const models::LinearAttentionSpec& linear = *spec.linear_attention;
  const std::int64_t group = linear.num_value_heads / linear.num_key_heads;
  FusedRows rows{.total = 2 * std::int64_t{linear.num_value_heads}};
  for (std::int64_t which = 0; which < 2; ++which)
    for (std::int64_t i = 0; i < linear.num_key_heads; ++i)
      rows.runs.push_back({.ours = which * linear.num_value_heads + i * group,
                           .theirs = 2 * i * group + which * group,
                           .count = group});
  return rows;
}

/// Heads of an indexer whose first rows, those that are rotated, lie as pairs (GLM-5).
FusedRows paired_index_rows(const models::ModelSpec& spec, int heads) {
  const std::int64_t size = spec.sparse_attention->index_head_size;
  const std::int64_t half =
      std::min<std::int64_t>(size, spec.mla ? spec.mla->qk_rope_head_size : spec.head_size) / 2;
  FusedRows rows{.total = heads * size};
  for (std::int64_t begin = 0; begin < rows.total; begin += size) {
    for (std::int64_t i = 0; i < half; ++i) {
      rows.runs.push_back({.ours = begin + i, .theirs = begin + 2 * i, .count = 1});
      rows.runs.push_back({.ours = begin + half + i, .theirs = begin + 2 * i + 1, .count = 1});
    }
    if (size > 2 * half)
      rows.runs.push_back(
          {.ours = begin + 2 * half, .theirs = begin + 2 * half, .count = size - 2 * half});
  }
  return rows;
}
FusedRows paired_index_query_rows(const models::ModelSpec& spec) {
  return paired_index_rows(spec, spec.sparse_attention->index_heads);
}
FusedRows paired_index_key_rows(const models::ModelSpec& spec) {
  return paired_index_rows(spec, 1);
}

/// One projection of Mamba 2 to gates, to x, B and C, and to step sizes: `part` 0, 1 or 2.
template <int part>
FusedRows mamba_rows(const models::ModelSpec& spec) {
  const models::MambaSpec& mamba = *spec.mamba;
  const std::int64_t inner = mamba.inner_size();
  const std::array<std::int64_t, 4> bounds{
      0, inner, 2 * inner + 2 * std::int64_t{mamba.num_groups} * mamba.state_size,
      2 * inner + 2 * std::int64_t{mamba.num_groups} * mamba.state_size + mamba.num_heads};
  return {.total = bounds.back(),
          .runs = {{.ours = 0, .theirs = bounds[part], .count = bounds[part + 1] - bounds[part]}}};
}

// Sources: the modeling files of transformers 4 and the published checkpoints of each family.
constexpr std::array kQueries = {
    NameRule{"layers.{L}.self_attn.qkv_proj", "model.layers.{L}.self_attn.q_proj", 0}};

constexpr std::array kLlama = {
    NameRule{"embedding.embed_tokens", "model.embed_tokens"},
    NameRule{"layers.{L}.input_layernorm", "model.layers.{L}.input_layernorm"},
    NameRule{"layers.{L}.post_attention_layernorm", "model.layers.{L}.post_attention_layernorm"},
    NameRule{"layers.{L}.self_attn.qkv_proj", "model.layers.{L}.self_attn.k_proj", 1},
    NameRule{"layers.{L}.self_attn.qkv_proj", "model.layers.{L}.self_attn.v_proj", 2},
    NameRule{"layers.{L}.self_attn.o_proj", "model.layers.{L}.self_attn.o_proj"},
    NameRule{"layers.{L}.mlp.gate_up_proj", "model.layers.{L}.mlp.gate_proj", 0},
    NameRule{"layers.{L}.mlp.gate_up_proj", "model.layers.{L}.mlp.up_proj", 1},
    NameRule{"layers.{L}.mlp.down_proj", "model.layers.{L}.mlp.down_proj"},
    NameRule{"head.norm", "model.norm"},
    NameRule{"head.lm_head", "lm_head"}};

constexpr std::array kHeadNorms = {
    NameRule{"layers.{L}.self_attn.q_norm", "model.layers.{L}.self_attn.q_norm"},
    NameRule{"layers.{L}.self_attn.k_norm", "model.layers.{L}.self_attn.k_norm"}};

constexpr std::array kMixtralExperts = {
    NameRule{"layers.{L}.mlp.gate", "model.layers.{L}.block_sparse_moe.gate"},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj",
             "model.layers.{L}.block_sparse_moe.experts.{X}.w1", 0},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj",
             "model.layers.{L}.block_sparse_moe.experts.{X}.w3", 1},
    NameRule{"layers.{L}.mlp.experts.down_proj",
             "model.layers.{L}.block_sparse_moe.experts.{X}.w2"}};

constexpr std::array kExperts = {
    NameRule{"layers.{L}.mlp.gate", "model.layers.{L}.mlp.gate"},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj", "model.layers.{L}.mlp.experts.{X}.gate_proj",
             0},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj", "model.layers.{L}.mlp.experts.{X}.up_proj", 1},
    NameRule{"layers.{L}.mlp.experts.down_proj", "model.layers.{L}.mlp.experts.{X}.down_proj"}};

constexpr std::array kGptOss = {
    NameRule{"layers.{L}.self_attn.sinks", "model.layers.{L}.self_attn.sinks"},
    NameRule{"layers.{L}.mlp.gate", "model.layers.{L}.mlp.router"},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj.weight",
             "model.layers.{L}.mlp.experts.gate_up_proj", 0, Layout::Stacked},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj.weight",
             "model.layers.{L}.mlp.experts.gate_up_proj", 1, Layout::Stacked},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj.bias",
             "model.layers.{L}.mlp.experts.gate_up_proj_bias", 0, Layout::Stacked},
    NameRule{"layers.{L}.mlp.experts.gate_up_proj.bias",
             "model.layers.{L}.mlp.experts.gate_up_proj_bias", 1, Layout::Stacked},
    NameRule{"layers.{L}.mlp.experts.down_proj.weight", "model.layers.{L}.mlp.experts.down_proj",
             std::nullopt, Layout::Stacked},
    NameRule{"layers.{L}.mlp.experts.down_proj.bias", "model.layers.{L}.mlp.experts.down_proj_bias",
             std::nullopt, Layout::Stacked}};

constexpr std::array kDeepSeek = {
    NameRule{"layers.{L}.self_attn.q_proj", "model.layers.{L}.self_attn.q_proj", std::nullopt,
             Layout::Interleaved},
    NameRule{"layers.{L}.self_attn.q_a_proj", "model.layers.{L}.self_attn.q_a_proj"},
    NameRule{"layers.{L}.self_attn.q_a_layernorm", "model.layers.{L}.self_attn.q_a_layernorm"},
    NameRule{"layers.{L}.self_attn.q_b_proj", "model.layers.{L}.self_attn.q_b_proj", std::nullopt,
             Layout::Interleaved},
    NameRule{"layers.{L}.self_attn.kv_a_proj_with_mqa",
             "model.layers.{L}.self_attn.kv_a_proj_with_mqa", std::nullopt, Layout::Interleaved},
    NameRule{"layers.{L}.self_attn.kv_a_layernorm", "model.layers.{L}.self_attn.kv_a_layernorm"},
    NameRule{"layers.{L}.self_attn.kv_b_proj", "model.layers.{L}.self_attn.kv_b_proj"},
    NameRule{"layers.{L}.mlp.gate.e_score_correction_bias",
             "model.layers.{L}.mlp.gate.e_score_correction_bias"},
    NameRule{"layers.{L}.mlp.shared_expert.gate_up_proj",
             "model.layers.{L}.mlp.shared_experts.gate_proj", 0},
    NameRule{"layers.{L}.mlp.shared_expert.gate_up_proj",
             "model.layers.{L}.mlp.shared_experts.up_proj", 1},
    NameRule{"layers.{L}.mlp.shared_expert.down_proj",
             "model.layers.{L}.mlp.shared_experts.down_proj"}};

constexpr std::array kIndexer = {
    NameRule{"layers.{L}.self_attn.indexer.wq_b", "model.layers.{L}.self_attn.indexer.wq_b"},
    NameRule{"layers.{L}.self_attn.indexer.wk", "model.layers.{L}.self_attn.indexer.wk"},
    NameRule{"layers.{L}.self_attn.indexer.k_norm", "model.layers.{L}.self_attn.indexer.k_norm"},
    NameRule{"layers.{L}.self_attn.indexer.weights_proj",
             "model.layers.{L}.self_attn.indexer.weights_proj"}};

constexpr std::array kPairedIndexer = {
    NameRule{"layers.{L}.self_attn.indexer.wq_b", "model.layers.{L}.self_attn.indexer.wq_b",
             std::nullopt, Layout::Same, paired_index_query_rows},
    NameRule{"layers.{L}.self_attn.indexer.wk", "model.layers.{L}.self_attn.indexer.wk",
             std::nullopt, Layout::Same, paired_index_key_rows},
    NameRule{"layers.{L}.self_attn.indexer.k_norm", "model.layers.{L}.self_attn.indexer.k_norm",
             std::nullopt, Layout::Same, paired_index_key_rows},
    NameRule{"layers.{L}.self_attn.indexer.weights_proj",
             "model.layers.{L}.self_attn.indexer.weights_proj"}};

/// Of a prediction module, which is a layer behind the last besides.
constexpr std::array kPredictions = {
    NameRule{"layers.{L}.enorm", "model.layers.{L}.enorm"},
    NameRule{"layers.{L}.hnorm", "model.layers.{L}.hnorm"},
    NameRule{"layers.{L}.eh_proj", "model.layers.{L}.eh_proj"},
    NameRule{"layers.{L}.shared_head.norm", "model.layers.{L}.shared_head.norm"}};

constexpr std::array kQwen3Next = {
    NameRule{"layers.{L}.self_attn.qkv_proj", "model.layers.{L}.self_attn.q_proj", 0, Layout::Same,
             gated_query_rows<0>},
    NameRule{"layers.{L}.self_attn.gate_proj", "model.layers.{L}.self_attn.q_proj", std::nullopt,
             Layout::Same, gated_query_rows<1>},
    NameRule{"layers.{L}.linear_attn.in_proj_qkv", "model.layers.{L}.linear_attn.in_proj_qkvz",
             std::nullopt, Layout::Same, delta_qkv_rows},
    NameRule{"layers.{L}.linear_attn.z_proj", "model.layers.{L}.linear_attn.in_proj_qkvz",
             std::nullopt, Layout::Same, delta_gate_rows},
    NameRule{"layers.{L}.linear_attn.in_proj_ba", "model.layers.{L}.linear_attn.in_proj_ba",
             std::nullopt, Layout::Same, delta_ba_rows},
    NameRule{"layers.{L}.linear_attn.conv1d", "model.layers.{L}.linear_attn.conv1d", std::nullopt,
             Layout::Depthwise},
    NameRule{"layers.{L}.linear_attn.dt_bias", "model.layers.{L}.linear_attn.dt_bias"},
    NameRule{"layers.{L}.linear_attn.A_log", "model.layers.{L}.linear_attn.A_log"},
    NameRule{"layers.{L}.linear_attn.norm", "model.layers.{L}.linear_attn.norm"},
    NameRule{"layers.{L}.linear_attn.out_proj", "model.layers.{L}.linear_attn.out_proj"},
    NameRule{"layers.{L}.mlp.shared_expert.gate_up_proj",
             "model.layers.{L}.mlp.shared_expert.gate_proj", 0},
    NameRule{"layers.{L}.mlp.shared_expert.gate_up_proj",
             "model.layers.{L}.mlp.shared_expert.up_proj", 1},
    NameRule{"layers.{L}.mlp.shared_expert.down_proj",
             "model.layers.{L}.mlp.shared_expert.down_proj"},
    NameRule{"layers.{L}.mlp.shared_expert_gate", "model.layers.{L}.mlp.shared_expert_gate"}};

// A layer is one half, and so has one norm.
constexpr std::array kNemotronH = {
    NameRule{"embedding.embed_tokens", "embeddings"},
    NameRule{"layers.{L}.input_layernorm", "layers.{L}.norm"},
    NameRule{"layers.{L}.post_attention_layernorm", "layers.{L}.norm"},
    NameRule{"layers.{L}.self_attn.qkv_proj", "layers.{L}.mixer.q_proj", 0},
    NameRule{"layers.{L}.self_attn.qkv_proj", "layers.{L}.mixer.k_proj", 1},
    NameRule{"layers.{L}.self_attn.qkv_proj", "layers.{L}.mixer.v_proj", 2},
    NameRule{"layers.{L}.self_attn.o_proj", "layers.{L}.mixer.o_proj"},
    NameRule{"layers.{L}.mamba.z_proj", "layers.{L}.mixer.in_proj", std::nullopt, Layout::Same,
             mamba_rows<0>},
    NameRule{"layers.{L}.mamba.xbc_proj", "layers.{L}.mixer.in_proj", std::nullopt, Layout::Same,
             mamba_rows<1>},
    NameRule{"layers.{L}.mamba.dt_proj", "layers.{L}.mixer.in_proj", std::nullopt, Layout::Same,
             mamba_rows<2>},
    NameRule{"layers.{L}.mamba.conv1d", "layers.{L}.mixer.conv1d", std::nullopt, Layout::Depthwise},
    NameRule{"layers.{L}.mamba.A_log", "layers.{L}.mixer.A_log"},
    NameRule{"layers.{L}.mamba.D", "layers.{L}.mixer.D"},
    NameRule{"layers.{L}.mamba.dt_bias", "layers.{L}.mixer.dt_bias"},
    NameRule{"layers.{L}.mamba.norm", "layers.{L}.mixer.norm"},
    NameRule{"layers.{L}.mamba.out_proj", "layers.{L}.mixer.out_proj"},
    NameRule{"layers.{L}.mlp.up_proj", "layers.{L}.mixer.up_proj"},
    NameRule{"layers.{L}.mlp.down_proj", "layers.{L}.mixer.down_proj"},
    NameRule{"layers.{L}.mlp.gate", "layers.{L}.mixer.gate"},
    NameRule{"layers.{L}.mlp.gate.e_score_correction_bias",
             "layers.{L}.mixer.gate.e_score_correction_bias"},
    NameRule{"layers.{L}.mlp.experts.up_proj", "layers.{L}.mixer.experts.{X}.up_proj"},
    NameRule{"layers.{L}.mlp.experts.down_proj", "layers.{L}.mixer.experts.{X}.down_proj"},
    NameRule{"layers.{L}.mlp.shared_expert.up_proj", "layers.{L}.mixer.shared_experts.up_proj"},
    NameRule{"layers.{L}.mlp.shared_expert.down_proj", "layers.{L}.mixer.shared_experts.down_proj"},
    NameRule{"head.norm", "norm_f"},
    NameRule{"head.lm_head", "lm_head"}};

constexpr std::array kGpt2 = {
    NameRule{"embedding.embed_tokens", "wte"},
    NameRule{"embedding.embed_positions", "wpe"},
    NameRule{"layers.{L}.input_layernorm", "h.{L}.ln_1"},
    NameRule{"layers.{L}.self_attn.qkv_proj", "h.{L}.attn.c_attn", std::nullopt,
             Layout::Transposed},
    NameRule{"layers.{L}.self_attn.o_proj", "h.{L}.attn.c_proj", std::nullopt, Layout::Transposed},
    NameRule{"layers.{L}.post_attention_layernorm", "h.{L}.ln_2"},
    NameRule{"layers.{L}.mlp.up_proj", "h.{L}.mlp.c_fc", std::nullopt, Layout::Transposed},
    NameRule{"layers.{L}.mlp.down_proj", "h.{L}.mlp.c_proj", std::nullopt, Layout::Transposed},
    NameRule{"head.norm", "ln_f"},
    NameRule{"head.lm_head", "lm_head"}};

constexpr std::array kGemma = {
    NameRule{"layers.{L}.pre_feedforward_layernorm", "model.layers.{L}.pre_feedforward_layernorm"},
    NameRule{"layers.{L}.post_feedforward_layernorm",
             "model.layers.{L}.post_feedforward_layernorm"}};

constexpr std::array kBert = {
    NameRule{"embedding.embed_tokens", "embeddings.word_embeddings"},
    NameRule{"embedding.embed_positions", "embeddings.position_embeddings"},
    NameRule{"embedding.embed_token_types", "embeddings.token_type_embeddings"},
    NameRule{"embedding.embed_norm", "embeddings.LayerNorm"},
    NameRule{"layers.{L}.self_attn.qkv_proj", "encoder.layer.{L}.attention.self.query", 0},
    NameRule{"layers.{L}.self_attn.qkv_proj", "encoder.layer.{L}.attention.self.key", 1},
    NameRule{"layers.{L}.self_attn.qkv_proj", "encoder.layer.{L}.attention.self.value", 2},
    NameRule{"layers.{L}.self_attn.o_proj", "encoder.layer.{L}.attention.output.dense"},
    NameRule{"layers.{L}.post_attention_layernorm", "encoder.layer.{L}.attention.output.LayerNorm"},
    NameRule{"layers.{L}.mlp.up_proj", "encoder.layer.{L}.intermediate.dense"},
    NameRule{"layers.{L}.mlp.down_proj", "encoder.layer.{L}.output.dense"},
    NameRule{"layers.{L}.post_feedforward_layernorm", "encoder.layer.{L}.output.LayerNorm"},
    NameRule{"head.pooler.dense", "pooler.dense"},
    NameRule{"head.classifier", "classifier"}};

}  // namespace

const std::vector<Family>& weight_families() {
  static const std::vector<Family> kFamilies = {
      {"bert", "bert.", {kBert}},
      {"deepseek_v3", "", {kQueries, kLlama, kExperts, kDeepSeek, kPredictions}},
      {"deepseek_v32", "", {kQueries, kLlama, kExperts, kDeepSeek, kIndexer, kPredictions}},
      {"gemma2", "", {kQueries, kLlama, kGemma}, 1},
      {"gemma3_text", "", {kQueries, kLlama, kHeadNorms, kGemma}, 1},
      {"glm_moe_dsa", "", {kQueries, kLlama, kExperts, kDeepSeek, kPairedIndexer, kPredictions}},
      {"gpt2", "transformer.", {kGpt2}},
      {"gpt_oss", "", {kQueries, kLlama, kGptOss}},
      {"llama", "", {kQueries, kLlama}},
      {"mistral", "", {kQueries, kLlama}},
      {"mixtral", "", {kQueries, kLlama, kMixtralExperts}},
      {"nemotron_h", "backbone.", {kNemotronH}},
      {"qwen2", "", {kQueries, kLlama}},
      {"qwen3", "", {kQueries, kLlama, kHeadNorms}},
      {"qwen3_moe", "", {kQueries, kLlama, kHeadNorms, kExperts}},
      {"qwen3_next", "", {kQwen3Next, kLlama, kHeadNorms, kExperts}, 1}};
  return kFamilies;
}

}  // namespace meshplan::runtime
