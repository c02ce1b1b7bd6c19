#include "runtime/weights/hugging_face_names.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>
#include <span>

#include "core/error.hpp"
#include "core/index.hpp"
#include "models/graph.hpp"

namespace meshplan::runtime {
namespace {

/// How a tensor of theirs holds the rows of ours.
enum class Layout {
  Same,
  Transposed,   // (in, out): the Conv1D of GPT-2
  Interleaved,  // rotated rows of a head as pairs (2i, 2i + 1); ours are i and i + R/2
  Stacked,      // all experts in one, (X, in, out), rows of the sections in turns: of gate, of up
};

/// One line of the table. "{L}" is the layer, "{X}" the expert. Both sides are followed by the same
/// ".weight", ".bias" or nothing.
struct NameRule {
  std::string_view ours;
  std::string_view theirs;
  std::optional<int> section = std::nullopt;  // of a fused parameter; absent: all of it
  Layout layout = Layout::Same;
};

// Sources: the modeling files of transformers 4 and the published checkpoints of each family.
constexpr std::array kLlama = {
    NameRule{"embedding.embed_tokens", "model.embed_tokens"},
    NameRule{"layers.{L}.input_layernorm", "model.layers.{L}.input_layernorm"},
    NameRule{"layers.{L}.post_attention_layernorm", "model.layers.{L}.post_attention_layernorm"},
    NameRule{"layers.{L}.self_attn.qkv_proj", "model.layers.{L}.self_attn.q_proj", 0},
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

using Rules = std::span<const NameRule>;

struct Family {
  std::string_view name;
  std::string_view prefix;
  std::vector<Rules> rules;
  float norm_shift = 0;  // their norms hold w - norm_shift
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"bert", "bert.", {kBert}},
      {"deepseek_v3", "", {kLlama, kExperts, kDeepSeek}},
      {"gemma2", "", {kLlama, kGemma}, 1},
      {"gemma3_text", "", {kLlama, kHeadNorms, kGemma}, 1},
      {"gpt2", "transformer.", {kGpt2}},
      {"gpt_oss", "", {kLlama, kGptOss}},
      {"llama", "", {kLlama}},
      {"mistral", "", {kLlama}},
      {"mixtral", "", {kLlama, kMixtralExperts}},
      {"qwen2", "", {kLlama}},
      {"qwen3", "", {kLlama, kHeadNorms}},
      {"qwen3_moe", "", {kLlama, kHeadNorms, kExperts}}};
  return kFamilies;
}

const Family& find_family(const std::string& name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  if (found == families().end())
    throw ConfigError(unknown_name_message("family of weights", name, hugging_face_families()));
  return *found;
}

std::string replaced(std::string_view pattern, std::string_view key, std::int64_t value) {
  std::string text(pattern);
  if (const auto at = text.find(key); at != std::string::npos)
    text.replace(at, key.size(), std::to_string(value));
  return text;
}

/// "layers.7.mlp.gate.weight" -> layer 7; nothing for embedding and head.
std::optional<int> layer_of(const std::string& name) {
  constexpr std::string_view kLayerPrefix = "layers.";
  if (!name.starts_with(kLayerPrefix)) return std::nullopt;
  int layer = 0;
  std::from_chars(name.data() + kLayerPrefix.size(), name.data() + name.size(), layer);
  return layer;
}

/// Makes the parts of one parameter.
class PartBuilder {
 public:
  PartBuilder(const models::ModelSpec& spec, const GlobalParameter& parameter,
              bool rope_interleaved, std::vector<HuggingFacePart>& parts)
      : spec_(spec),
        parameter_(parameter),
        rope_interleaved_(rope_interleaved),
        experts_(parameter.shape.size() > 1 &&
                 parameter.name.find(".experts.") != std::string::npos),
        parts_(parts) {}

  /// @param suffix  ".weight", ".bias" or ""
  void append(const NameRule& rule, int layer, std::string_view suffix) {
    const std::string name = replaced(rule.theirs, "{L}", layer) + std::string(suffix);
    if (rule.layout == Layout::Stacked) return append_stacked(rule, name);
    if (!experts_) {
      append_box(rule, name, section_box(rule));
      return;
    }
    for (std::int64_t expert = 0; expert < parameter_.shape[0]; ++expert) {
      TensorBox box = section_box(rule);
      box.begin[0] = expert;
      box.size[0] = 1;
      append_box(rule, replaced(name, "{X}", expert), box);
    }
  }

 private:
  TensorBox section_box(const NameRule& rule) const {
    TensorBox box = whole_box(parameter_.shape);
    if (!rule.section) return box;
    const auto section = static_cast<std::size_t>(*rule.section);
    const std::size_t dim = experts_ ? 1 : 0;
    require_invariant(section < parameter_.sections.size(), "a fused parameter without sections");
    box.begin[dim] = std::accumulate(parameter_.sections.begin(),
                                     parameter_.sections.begin() + *rule.section, std::int64_t{0});
    box.size[dim] = parameter_.sections[section];
    return box;
  }

  void append_box(const NameRule& rule, const std::string& tensor, const TensorBox& box) {
    HuggingFacePart part{.parameter = parameter_.name, .box = box, .tensor = tensor};
    part.tensor_shape = {box.size.begin() + (experts_ ? 1 : 0), box.size.end()};
    part.strides = dense_strides(box.size);
    if (rule.layout == Layout::Transposed && box.size.size() == 2) {
      std::swap(part.tensor_shape[0], part.tensor_shape[1]);
      part.strides = {1, box.size[0]};
    }
    if (rule.layout == Layout::Interleaved && rope_interleaved_)
      append_interleaved(std::move(part));
    else
      parts_.push_back(std::move(part));
  }

  /// One tensor holds all experts: (X, out, in), or (X, out) of biases.
  void append_stacked(const NameRule& rule, const std::string& tensor) {
    const std::vector<std::int64_t>& ours = parameter_.shape;
    const std::int64_t turns = rule.section ? std::ssize(parameter_.sections) : 1;
    HuggingFacePart part{.parameter = parameter_.name,
                         .box = section_box(rule),
                         .tensor = tensor,
                         .tensor_shape = ours,
                         .offset = rule.section.value_or(0),
                         .strides = {ours[1], turns}};
    if (ours.size() == 3) {
      std::swap(part.tensor_shape[1], part.tensor_shape[2]);
      part.strides = {ours[1] * ours[2], turns, ours[1]};
    }
    parts_.push_back(std::move(part));
  }

  /// Heads of rows: first those that stay, then R rotated ones, whose even rows of theirs are our
  /// first half. kv_a_proj_with_mqa is one such head.
  void append_interleaved(HuggingFacePart part) {
    const std::int64_t rotated = spec_.mla->qk_rope_head_size;
    const std::int64_t rows = part.box.size[0];
    const bool per_head = part.parameter.find(".kv_a_proj") == std::string::npos;
    const std::int64_t head = per_head ? spec_.head_size : rows;
    const std::int64_t row = part.strides[0];
    const auto append_rows = [&](std::int64_t first, std::int64_t count, std::int64_t from,
                                 std::int64_t step) {
      if (count == 0) return;
      HuggingFacePart rows_part = part;
      rows_part.box.begin[0] = first;
      rows_part.box.size[0] = count;
      rows_part.offset = from * row;
      rows_part.strides[0] = step * row;
      parts_.push_back(std::move(rows_part));
    };
    for (std::int64_t first = 0; first < rows; first += head) {
      const std::int64_t rope = first + head - rotated;
      append_rows(first, head - rotated, first, 1);
      append_rows(rope, rotated / 2, rope, 2);
      append_rows(rope + rotated / 2, rotated / 2, rope + 1, 2);
    }
  }

  const models::ModelSpec& spec_;
  const GlobalParameter& parameter_;
  bool rope_interleaved_;
  bool experts_;
  std::vector<HuggingFacePart>& parts_;
};

/// ".weight", ".bias" or "" if `name` is the rule's, else nothing.
std::optional<std::string> suffix_of(const NameRule& rule, const std::string& name, int layer) {
  const std::string stem = replaced(rule.ours, "{L}", layer);
  if (!name.starts_with(stem)) return std::nullopt;
  std::string suffix = name.substr(stem.size());
  if (suffix.empty() || suffix == ".weight" || suffix == ".bias") return suffix;
  return std::nullopt;
}

bool is_norm(const std::string& parameter) {
  return parameter.ends_with("norm.weight");
}

void append_layer(const models::LayerGraph& graph, const std::string& prefix,
                  std::vector<GlobalParameter>& parameters) {
  for (const models::Tensor& tensor : graph.tensors) {
    if (tensor.tensor_class != models::TensorClass::Parameter) continue;
    GlobalParameter parameter{.name = prefix + tensor.name, .sections = tensor.sections};
    for (const models::Dim& dim : tensor.shape)
      parameter.shape.push_back(models::evaluate(dim, {}));
    parameters.push_back(std::move(parameter));
  }
}

}  // namespace

std::vector<GlobalParameter> global_parameters(const models::ModelSpec& spec) {
  const models::ModelGraph graph = models::build_graph(spec);
  std::vector<GlobalParameter> parameters;
  append_layer(graph.embedding, "embedding.", parameters);
  for (std::size_t i = 0; i < graph.layer_kind.size(); ++i)
    append_layer(graph.kinds[at(graph.layer_kind[i])], fmt::format("layers.{}.", i), parameters);
  append_layer(graph.head, "head.", parameters);
  if (graph.tied_embeddings)
    std::erase_if(parameters,
                  [](const GlobalParameter& p) { return p.name == "head.embed_tokens.weight"; });
  return parameters;
}

std::vector<std::string> hugging_face_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.name);
  return names;
}

std::string_view optional_prefix(const std::string& family) {
  return find_family(family).prefix;
}

std::vector<HuggingFacePart> hugging_face_parts(const models::ModelSpec& spec,
                                                const std::string& family, bool rope_interleaved) {
  const Family& table = find_family(family);
  std::vector<HuggingFacePart> parts;
  for (const GlobalParameter& parameter : global_parameters(spec)) {
    PartBuilder builder(spec, parameter, rope_interleaved, parts);
    const int layer = layer_of(parameter.name).value_or(0);
    const std::size_t before = parts.size();
    for (const Rules& rules : table.rules)
      for (const NameRule& rule : rules)
        if (const auto suffix = suffix_of(rule, parameter.name, layer))
          builder.append(rule, layer, *suffix);
    std::int64_t covered = 0;
    for (std::size_t i = before; i < parts.size(); ++i) covered += parts[i].box.elements();
    if (is_norm(parameter.name))
      for (std::size_t i = before; i < parts.size(); ++i) parts[i].shift = table.norm_shift;
    if (covered != whole_box(parameter.shape).elements())
      throw ConfigError(
          fmt::format("{}: {} weights have no name for its parameter {}; families: {}", spec.name,
                      family, parameter.name, fmt::join(hugging_face_families(), ", ")));
  }
  return parts;
}

std::string current_name(const std::string& family, std::string name) {
  if (family != "bert") return name;
  for (const auto& [old, current] : {std::pair{".LayerNorm.gamma", ".LayerNorm.weight"},
                                     std::pair{".LayerNorm.beta", ".LayerNorm.bias"}})
    if (name.ends_with(old))
      return name.substr(0, name.size() - std::string_view(old).size()) + current;
  return name;
}

std::optional<std::string> text_tower_name(const std::string& name) {
  // Before transformers 4.52 the language model was a module beside the others, with its head;
  // since then it is one of "model".
  constexpr std::string_view kBeside = "language_model.", kInside = "model.language_model.";
  if (name.starts_with(kInside)) return "model." + name.substr(kInside.size());
  if (name.starts_with(kBeside)) return name.substr(kBeside.size());
  // Weights of the text alone, beside the config of the whole.
  for (const std::string_view own :
       {"lm_head.", "model.embed_tokens.", "model.layers.", "model.norm."})
    if (name.starts_with(own)) return name;
  return std::nullopt;
}

bool is_outside_prefix(std::string_view name) {
  return name.starts_with("lm_head.") || name.starts_with("classifier.");
}

bool may_begin_anew(const std::string& family, const std::string& parameter) {
  return family == "bert" && parameter.starts_with("head.");
}

bool is_ignored(const models::ModelSpec& spec, const std::string& family, const std::string& name) {
  if (spec.tied_embeddings && name == "lm_head.weight") return true;
  if (family == "bert") return name == "embeddings.position_ids" || name.starts_with("cls.");
  if (family == "gpt2")
    return name.starts_with("h.") &&
           (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  constexpr std::string_view kLayers = "model.layers.";
  int layer = 0;
  if (!name.starts_with(kLayers)) return false;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer >= spec.num_layers && layer < spec.num_layers + spec.mtp_layers;
}

}  // namespace meshplan::runtime
