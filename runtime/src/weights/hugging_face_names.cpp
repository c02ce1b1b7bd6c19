#include "runtime/weights/hugging_face_names.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "core/index.hpp"
#include "models/graph.hpp"
#include "weights/hugging_face_tables.hpp"

namespace meshplan::runtime {
namespace {

const Family& find_family(const std::string& name) {
  const auto found = std::ranges::find(weight_families(), name, &Family::name);
  if (found == weight_families().end())
    throw ConfigError(unknown_name_message("family of weights", name, hugging_face_families()));
  return *found;
}

std::string replaced(std::string_view pattern, std::string_view key, std::int64_t value) {
  std::string text(pattern);
  if (const auto at = text.find(key); at != std::string::npos)
    text.replace(at, key.size(), std::to_string(value));
  return text;
}

constexpr std::string_view kPrediction = "head.mtp.";

/// The name that rules have for a parameter: theirs number prediction modules on behind the layers.
/// "head.mtp.0.enorm.weight" -> "layers.61.enorm.weight"
std::string name_in_rules(const models::ModelSpec& spec, const std::string& name) {
  if (!is_of_prediction(name)) return name;
  int module = 0;
  const char* const end = name.data() + name.size();
  const char* const rest = std::from_chars(name.data() + kPrediction.size(), end, module).ptr;
  return fmt::format("layers.{}{}", spec.num_layers + module, std::string_view(rest, end));
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
    if (rule.rows != nullptr) return append_rows(rule.rows(spec_), tensor, box);
    HuggingFacePart part{.parameter = parameter_.name, .box = box, .tensor = tensor};
    part.tensor_shape = {box.size.begin() + (experts_ ? 1 : 0), box.size.end()};
    part.strides = dense_strides(box.size);
    if (rule.layout == Layout::Transposed && box.size.size() == 2) {
      std::swap(part.tensor_shape[0], part.tensor_shape[1]);
      part.strides = {1, box.size[0]};
    }
    if (rule.layout == Layout::Depthwise && box.size.size() == 2)
      part.tensor_shape.insert(part.tensor_shape.begin() + 1, 1);
    if (rule.layout == Layout::Interleaved && rope_interleaved_)
      append_interleaved(std::move(part));
    else
      parts_.push_back(std::move(part));
  }

  void append_rows(const FusedRows& rows, const std::string& tensor, const TensorBox& box) {
    HuggingFacePart whole{.parameter = parameter_.name,
                          .box = box,
                          .tensor = tensor,
                          .tensor_shape = box.size,
                          .strides = dense_strides(box.size)};
    whole.tensor_shape[0] = rows.total;
    for (const RowRun& run : rows.runs) {
      HuggingFacePart part = whole;
      part.box.begin[0] += run.ours;
      part.box.size[0] = run.count;
      part.offset = run.theirs * part.strides[0];
      parts_.push_back(std::move(part));
    }
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

/// A norm whose weights a family may hold less one; those of gated norms it does not.
bool is_plain_norm(const std::string& parameter) {
  return parameter.ends_with("norm.weight") && !parameter.ends_with("linear_attn.norm.weight");
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
  append_layer(graph.ending, "head.", parameters);
  std::erase_if(parameters,
                [](const GlobalParameter& p) { return p.name == "head.embed_tokens.weight"; });
  return parameters;
}

std::vector<std::string> hugging_face_families() {
  std::vector<std::string> names;
  for (const Family& family : weight_families()) names.emplace_back(family.name);
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
    const std::string name = name_in_rules(spec, parameter.name);
    const int layer = layer_of(name).value_or(0);
    const std::size_t before = parts.size();
    for (const Rules& rules : table.rules)
      for (const NameRule& rule : rules)
        if (const auto suffix = suffix_of(rule, name, layer)) builder.append(rule, layer, *suffix);
    std::int64_t covered = 0;
    for (std::size_t i = before; i < parts.size(); ++i) covered += parts[i].box.elements();
    if (is_plain_norm(parameter.name))
      for (std::size_t i = before; i < parts.size(); ++i) parts[i].shift = table.norm_shift;
    if (covered == 0 && is_of_prediction(parameter.name)) continue;
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

bool is_of_prediction(std::string_view parameter) {
  return parameter.starts_with(kPrediction);
}

std::string module_of_prediction(int number) {
  return fmt::format("{}{}.", kPrediction, number - 1);
}

std::string module_of_prediction(std::string_view parameter) {
  if (!is_of_prediction(parameter)) return "";
  return std::string(parameter.substr(0, parameter.find('.', kPrediction.size()) + 1));
}

bool names_predictions(const std::string& family) {
  const Family& table = find_family(family);
  return std::ranges::any_of(table.rules, [](const Rules& rules) {
    return std::ranges::any_of(
        rules, [](const NameRule& rule) { return rule.ours == "layers.{L}.eh_proj"; });
  });
}

bool may_begin_anew(const std::string& family, const std::string& parameter) {
  return is_of_prediction(parameter) || (family == "bert" && parameter.starts_with("head."));
}

bool is_ignored(const models::ModelSpec& spec, const std::string& family, const std::string& name) {
  if (spec.tied_embeddings && name == "lm_head.weight") return true;
  if (family == "bert") return name == "embeddings.position_ids" || name.starts_with("cls.");
  if (family == "gpt2")
    return name.starts_with("h.") &&
           (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  if (name.ends_with(".rotary_emb.inv_freq") || name.starts_with("mtp.")) return true;
  constexpr std::string_view kLayers = "model.layers.";
  int layer = 0;
  if (!name.starts_with(kLayers)) return false;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer >= spec.num_layers && layer < spec.num_layers + spec.mtp_layers;
}

}  // namespace meshplan::runtime
