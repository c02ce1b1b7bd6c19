#include "formats/megatron_bridge/recipe.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <utility>

#include "core/error.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron_bridge/field_values.hpp"
#include "formats/megatron_bridge/models.hpp"
#include "formats/text/imported.hpp"
#include "python/configuration.hpp"
#include "shell/script.hpp"

namespace meshplan::planner::bridge {
namespace {

using python::Value;
using Fields = std::vector<std::pair<std::string, Value>>;

constexpr std::array<std::string_view, 3> kBuilders = {"to_megatron_provider", "get_model_config",
                                                       "to_megatron_model_config"};
constexpr std::array<std::string_view, 3> kSources = {"from_hf_pretrained", "from_hf_config",
                                                      "from_auto_config"};

template <std::size_t N>
bool ends_with_one_of(std::string_view name, const std::array<std::string_view, N>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return name.ends_with(word); });
}

/// AutoBridge.from_hf_pretrained(NAME).to_megatron_provider() of what is called.
std::string hub_name_of(const python::Object& call) {
  if (!ends_with_one_of(call.name, kBuilders) ||
      !is_object(call.self, python::ObjectKind::Instance))
    return "";
  python::Object& bridge = *call.self.object;
  if (!ends_with_one_of(bridge.name, kSources)) return "";
  const Value* name = bridge.items.empty() ? nullptr : bridge.items.data();
  for (const char* key : {"path", "hf_model_id", "model_id"})
    if (const Value* named = bridge.find(key); named != nullptr && name == nullptr) name = named;
  return name != nullptr && name->is(python::ValueKind::Text) ? name->text : "";
}

/// What recipes ask a model that they have just built, and how its bridge sets it: sizes as its
/// config.json has them, else the defaults of GPTModelProvider and TransformerConfig.
Fields fields_of(const python::Object& call) {
  const std::string name = hub_name_of(call);
  if (name.empty()) return {};
  Fields fields = {{"tensor_model_parallel_size", python::whole(1)},
                   {"pipeline_model_parallel_size", python::whole(1)},
                   {"context_parallel_size", python::whole(1)},
                   {"expert_model_parallel_size", python::whole(1)},
                   {"virtual_pipeline_model_parallel_size", python::none()},
                   {"expert_tensor_parallel_size", python::none()},
                   {"sequence_parallel", python::boolean(false)},
                   {"cuda_graph_impl", python::text("none")},
                   {"cuda_graph_modules", python::none()},
                   {"use_te_rng_tracker", python::boolean(false)},
                   {"use_transformer_engine_op_fuser", python::boolean(false)},
                   {"cross_entropy_loss_fusion", python::boolean(true)}};
  const HubModel model = hub_model(name);
  if (!model.spec) return fields;
  const models::ModelSpec& spec = *model.spec;
  fields.emplace_back("vocab_size", python::whole(spec.vocab_size));
  fields.emplace_back("num_layers", python::whole(spec.num_layers));
  fields.emplace_back("hidden_size", python::whole(spec.hidden_size));
  fields.emplace_back("num_attention_heads", python::whole(spec.num_heads));
  fields.emplace_back("seq_length", python::whole(spec.max_positions));
  fields.emplace_back("num_moe_experts",
                      spec.moe ? python::whole(spec.moe->num_experts) : python::none());
  if (spec.positions == models::Positions::Rope)
    fields.emplace_back("rotary_base", python::real(spec.rope_base));
  if (spec.mla && spec.rope_scaling)
    fields.emplace_back("rotary_scaling_factor", python::real(spec.rope_scaling->factor));
  if (!spec.moe) return fields;
  fields.emplace_back("moe_token_dispatcher_type", python::text("alltoall"));
  fields.emplace_back("moe_grouped_gemm", python::boolean(true));
  fields.emplace_back("moe_permute_fusion", python::boolean(true));
  return fields;
}

Value value_of(const std::string& word) {
  std::int64_t whole = 0;
  const char* const end = word.data() + word.size();
  if (const auto read = std::from_chars(word.data(), end, whole);
      read.ec == std::errc() && read.ptr == end)
    return python::whole(whole);
  if (word.find_first_of("0123456789") != std::string::npos)
    if (const auto number = parse_number(word, -1e300, 1e300)) return python::real(*number);
  if (word == "True" || word == "true") return python::boolean(true);
  if (word == "False" || word == "false") return python::boolean(false);
  if (word == "None" || word == "null" || word == "none") return python::none();
  return python::text(word);
}

Json json_of(const Value& value) {
  switch (value.kind) {
    case python::ValueKind::Bool:
      return value.whole != 0;
    case python::ValueKind::Whole:
      return value.whole;
    case python::ValueKind::Real:
      return value.real;
    case python::ValueKind::Text:
      return value.text;
    default:
      return nullptr;
  }
}

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

/// --args "peft_scheme=None model.tensor_model_parallel_size=4": the function's parameters, and
/// fields of what it returns, as Megatron-Bridge's own run_recipe.py takes them.
struct Overrides {
  Fields parameters;
  std::vector<std::pair<std::string, Json>> fields;  // "model.seq_length"
};

Overrides overrides_of(const std::optional<std::string>& arguments) {
  Overrides overrides;
  if (!arguments) return overrides;
  for (std::string word : shell::shell_words(*arguments)) {
    while (word.starts_with('+') || word.starts_with('-')) word.erase(0, 1);
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw ConfigError(
          fmt::format("--args: '{}': expected NAME=VALUE of a parameter of the recipe, or "
                      "SECTION.FIELD=VALUE, for example model.tensor_model_parallel_size=4",
                      short_line(word)));
    const std::string name = word.substr(0, equals);
    if (name.find("..") != std::string::npos || name.starts_with('.') || name.ends_with('.') ||
        !std::ranges::all_of(name, is_of_name))
      throw ConfigError(fmt::format("--args: '{}': is no name of a field", short_line(name)));
    const Value value = value_of(word.substr(equals + 1));
    if (name.find('.') == std::string::npos)
      overrides.parameters.emplace_back(name, value);
    else
      overrides.fields.emplace_back(name, json_of(value));
  }
  return overrides;
}

void set_fields(const std::vector<std::pair<std::string, Json>>& fields, Json& tree) {
  for (const auto& [path, value] : fields) {
    Json* at = &tree;
    std::size_t begin = 0;
    for (std::size_t dot = path.find('.'); dot != std::string::npos;
         begin = dot + 1, dot = path.find('.', begin)) {
      Json& section = (*at)[path.substr(begin, dot - begin)];
      if (!section.is_object()) section = Json::object();
      at = &section;
    }
    (*at)[path.substr(begin)] = value;
  }
}

/// The name behind the model's call, as JSON has it.
std::string hub_name_of(const Json& model) {
  if (!python::is_call(model) || !model.contains(python::kSelf)) return "";
  const Json& bridge = model.at(python::kSelf);
  if (!ends_with_one_of(python::call_name(model), kBuilders) ||
      !ends_with_one_of(python::call_name(bridge), kSources))
    return "";
  const Json arguments = bridge.value(python::kArguments, Json::array());
  Json name = arguments.empty() ? Json() : arguments[0];
  for (const char* key : {"path", "hf_model_id", "model_id"})
    if (name.is_null()) name = bridge.value(key, Json());
  return name.is_string() ? name.get<std::string>() : shown(name);
}

}  // namespace

bool Recipe::is_whole() const {
  return python::call_name(tree).ends_with("ConfigContainer");
}

Recipe read_recipe(const ImportRequest& request) {
  Recipe recipe{.file = request.main};
  if (const std::size_t colon = recipe.file.rfind(".py:"); colon != std::string::npos) {
    recipe.function = recipe.file.substr(colon + 4);
    recipe.file.resize(colon + 3);
  }
  ImportRequest named = request;
  named.main = recipe.file;
  Overrides overrides = overrides_of(request.arguments);
  python::Configuration configuration =
      python::read_configuration(main_text(named), recipe.file, recipe.function, request.open,
                                 {.given_fields = fields_of,
                                  .results = {{"torch.cuda.is_available", python::boolean(false)}},
                                  .opaque = {"get_mixed_precision_config"},
                                  .arguments = std::move(overrides.parameters)});
  recipe.function = configuration.function;
  recipe.given = std::move(configuration.tree);
  recipe.tree = std::move(configuration.initial);
  set_fields(overrides.fields, recipe.given);
  set_fields(overrides.fields, recipe.tree);
  recipe.classes = std::move(configuration.classes);
  recipe.notes = std::move(configuration.notes);
  if (const auto found = configuration.field_classes.find("model");
      found != configuration.field_classes.end())
    recipe.model_classes = found->second;
  if (recipe.tree.contains("model")) recipe.hub_name = hub_name_of(recipe.tree.at("model"));
  return recipe;
}

}  // namespace meshplan::planner::bridge
