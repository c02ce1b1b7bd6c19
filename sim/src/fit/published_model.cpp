#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>

#include "fit/published_cells.hpp"

namespace meshplan::sim {

/// "512" after `key` in "MLA q_lora1536 kv_lora512; first layer dense".
std::optional<int> number_after(const std::string& text, const std::string& key) {
  const auto found = text.find(key);
  if (found == std::string::npos) return std::nullopt;
  const char* begin = text.data() + found + key.size();
  while (begin < text.data() + text.size() && (*begin == ' ' || *begin == '=')) ++begin;
  int number = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

namespace {

/// The architecture that goes with an activation in decoder models: GELU came with layer norms,
/// biases, learned positions and tied embeddings (GPT-2, GPT-3), SwiGLU with RMS norms and rotary
/// positions (Llama), squared ReLU with layer norms and rotary positions (Nemotron-4).
void set_family(const std::string& activation, models::ModelSpec& spec) {
  using models::ActivationKind;
  if (activation == "gelu") {
    spec.mlp = models::Mlp::Plain;
    spec.activation = ActivationKind::Gelu;
    spec.norm = models::Norm::LayerNorm;
    spec.positions = models::Positions::Learned;
    spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
    spec.tied_embeddings = true;
  } else if (activation == "squared_relu") {
    spec.mlp = models::Mlp::Plain;
    spec.activation = ActivationKind::SquaredRelu;
    spec.norm = models::Norm::LayerNorm;
  } else if (activation == "swiglu") {
    spec.activation = ActivationKind::Silu;
  } else if (activation == "gated_gelu") {
    spec.activation = ActivationKind::Gelu;
  } else {
    const std::vector<std::string> known{"gelu", "gated_gelu", "squared_relu", "swiglu"};
    throw ConfigError(
        fmt::format("activation: {}", unknown_name_message("value", activation, known)));
  }
}

/// Groups of experts that a token is limited to: "groups 8 top 4", else those of DeepSeek-V2 (160
/// experts, section 2.2.2) and -V3 (256, section 2.1.2), whose latent attention comes with them.
void set_groups(const std::string& notes, models::MoeSpec& moe) {
  models::RouterSpec& router = moe.router;
  if (const auto groups = number_after(notes, "groups ")) {
    router.num_groups = std::max(1, *groups);
    router.top_groups = std::clamp(number_after(notes, "top ").value_or(1), 1, router.num_groups);
    return;
  }
  if (!mentions(notes, "MLA")) return;
  if (moe.num_experts == 160 && moe.top_k == 6) router.num_groups = 8, router.top_groups = 3;
  if (moe.num_experts == 256 && moe.top_k == 8) router.num_groups = 8, router.top_groups = 4;
}

void set_experts(const PublishedCells& row, models::ModelSpec& spec) {
  if (!row.has("experts")) return;
  models::MoeSpec moe;
  moe.num_experts = row.integer("experts");
  moe.top_k = row.integer("topk");
  moe.expert_ffn_size = row.integer("moe_ffn_hidden");
  if (row.has("shared_expert_ffn")) {
    // Given per expert or for all of them together; 0 = none.
    if (row.text("shared_expert_ffn") != "0")
      moe.shared_expert_ffn_size = row.integer("shared_expert_ffn");
  }
  const std::string& notes = row.text("arch_notes");
  int dense = 0;
  if (mentions(notes, "first layer dense")) dense = 1;
  if (const auto n = number_after(notes, "first ")) dense = *n;
  if (const auto n = number_after(notes, "dense_first")) dense = *n;
  auto every = number_after(notes, "MoE every ");
  if (!every) every = number_after(notes, "experts every ");
  for (int layer = 0; layer + 1 < spec.num_layers; ++layer)
    if (layer < dense || (every && *every > 1 && (layer + 1) % *every != 0))
      moe.dense_layers.push_back(layer);
  set_groups(notes, moe);
  if (moe.dense_layers.empty()) spec.ffn_size = 0;
  spec.moe = moe;
}

/// Sizes of heads as DeepSeek-V2 and -V3 have them, where the row gives none: queries and keys of
/// 128 + 64, values of 128. `head_dim` is that of queries and keys together, or without the rotated
/// part.
void set_latent_attention(const PublishedCells& row, models::ModelSpec& spec) {
  constexpr int kNope = 128, kRope = 64;
  const std::string& notes = row.text("arch_notes");
  if (!mentions(notes, "MLA")) return;
  models::MlaSpec mla;
  mla.kv_lora_rank = number_after(notes, "kv_lora").value_or(512);
  if (const auto q = number_after(notes, "q_lora")) mla.q_lora_rank = *q;
  const int head = row.has("head_dim") ? spec.head_size : kNope + kRope;
  const int rope = number_after(notes, "rope").value_or(head % 3 == 0 ? head / 3 : kRope);
  const bool with_rope = head % 3 == 0 || head - rope >= kNope;
  mla.qk_rope_head_size = rope;
  mla.qk_nope_head_size = number_after(notes, "nope").value_or(with_rope ? head - rope : head);
  mla.v_head_size = number_after(notes, "v_head").value_or(mla.qk_nope_head_size);
  spec.mla = mla;
  spec.head_size = mla.qk_nope_head_size + mla.qk_rope_head_size;
  spec.num_kv_heads = spec.num_heads;
}

/// The tokens of a window in the clause that speaks of it: "sliding window 4096 every 2nd layer",
/// "windows of 4096", "4096-token window". Smaller numbers count layers.
std::optional<int> window_of(const std::string& notes) {
  constexpr int kSmallestWindow = 16;
  const std::size_t word = notes.find("window");
  if (word == std::string::npos) return std::nullopt;
  const std::size_t before = notes.rfind(';', word);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string clause = notes.substr(begin, notes.find(';', word) - begin);
  std::optional<int> found;
  for (std::size_t i = 0; i < clause.size();) {
    if (std::isdigit(static_cast<unsigned char>(clause[i])) == 0) {
      ++i;
      continue;
    }
    int number = 0;
    const auto end = std::from_chars(clause.data() + i, clause.data() + clause.size(), number);
    if (end.ec == std::errc() && number >= kSmallestWindow) found = number;
    if (found && i + begin > word) break;
    i = static_cast<std::size_t>(end.ptr - clause.data());
  }
  return found;
}

/// "every 2nd" or "alternating", "5:1" and its like, "every 4th layer full", or all layers.
void set_windows(const PublishedCells& row, models::ModelSpec& spec) {
  const std::string& notes = row.text("arch_notes");
  const auto window = window_of(notes);
  if (!window) return;
  spec.window = *window;
  int sliding = 0;  // for one layer that sees all
  if (const auto every = number_after(notes, "every "))
    sliding = std::clamp(*every - 1, 0, spec.num_layers);
  if (mentions(notes, "alternat")) sliding = 1;
  if (const std::size_t colon = notes.find(":1");
      colon != std::string::npos && colon > 0 && notes[colon - 1] >= '1' && notes[colon - 1] <= '9')
    sliding = notes[colon - 1] - '0';
  spec.layer_pattern.assign(static_cast<std::size_t>(std::max(1, sliding)), models::Mixer::Sliding);
  if (sliding > 0) spec.layer_pattern.push_back(models::Mixer::Full);
}

/// Biases, learned sinks of the softmax and a clamped unit, as gpt-oss has them (OpenAI 2025,
/// gpt-oss model card, 2): "attention sinks; clamped SwiGLU; biases", or "QKV bias" alone.
void set_details(const PublishedCells& row, models::ModelSpec& spec) {
  const std::string& notes = row.text("arch_notes");
  spec.attention_sinks = mentions(notes, "sink") && !spec.mla;
  if (mentions(notes, "clamp") && spec.mlp == models::Mlp::Gated)
    spec.activation = models::ActivationKind::ClampedSilu;
  if (!mentions(notes, "bias") || mentions(notes, "no bias") || spec.mla) return;
  spec.qkv_bias = true;
  if (mentions(notes, "qkv bias") || mentions(notes, "QKV bias") || mentions(notes, "qkv_bias"))
    return;
  spec.attention_out_bias = true;
  if (spec.moe) spec.moe->expert_bias = true;
  if (spec.ffn_size > 0) spec.mlp_bias = true;
}

}  // namespace

models::ModelSpec published_model(const PublishedCells& row) {
  models::ModelSpec spec;
  spec.name = "published";
  spec.num_layers = row.integer("layers");
  if (spec.num_layers > limits::kLayers)
    throw ConfigError(
        fmt::format("layers: {}: expected at most {}", spec.num_layers, limits::kLayers));
  spec.hidden_size = row.integer("hidden");
  spec.num_heads = row.integer("heads");
  spec.num_kv_heads = row.integer("kv_heads", spec.num_heads);
  spec.head_size = row.integer("head_dim", spec.hidden_size / spec.num_heads);
  spec.vocab_size = row.integer("vocab");
  spec.max_positions = row.integer("seq_len");
  spec.ffn_size = row.has("ffn_hidden") ? row.integer("ffn_hidden") : 0;
  set_family(row.text("activation"), spec);
  set_latent_attention(row, spec);
  set_experts(row, spec);
  set_windows(row, spec);
  set_details(row, spec);
  return spec;
}

}  // namespace meshplan::sim
