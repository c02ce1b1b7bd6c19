#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron/bridge_fields.hpp"
#include "formats/megatron/inexpressible.hpp"
#include "formats/megatron_bridge/collector.hpp"
#include "formats/megatron_bridge/field_values.hpp"
#include "formats/megatron_bridge/models.hpp"
#include "formats/megatron_bridge/other_kinds.hpp"
#include "python/tree.hpp"

namespace meshplan::planner::bridge {
namespace {

using megatron::Flag;
using Words = std::vector<std::string>;

/// Fields that several objects have, or whose meaning depends on others: read by themselves.
constexpr std::array<std::string_view, 12> kReadApart = {
    "seq_length",          "vocab_size",           "activation_func",
    "gated_linear_unit",   "overlap_p2p_comm",     "use_distributed_optimizer",
    "overlap_grad_reduce", "overlap_param_gather", "grad_reduce_in_fp32",
    "tp_comm_overlap",     "num_query_groups",     "expert_tensor_parallel_size"};
/// mixed_precision sets these of the model, the optimizer and ddp.
constexpr std::array<std::string_view, 11> kOfPrecision = {"bf16",
                                                           "fp16",
                                                           "fp8",
                                                           "fp8_recipe",
                                                           "fp8_param_gather",
                                                           "fp4",
                                                           "fp4_recipe",
                                                           "first_last_layers_bf16",
                                                           "num_layers_at_start_in_bf16",
                                                           "num_layers_at_end_in_bf16",
                                                           "fp8_dot_product_attention"};
/// What a model is trained with, no part of its shape.
constexpr std::array<std::string_view, 6> kTrainingChoices = {
    "--init-method-std",    "--attention-dropout", "--hidden-dropout",
    "--moe-aux-loss-coeff", "--moe-z-loss-coeff",  "--moe-router-load-balancing-type"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

const Flag* table_flag(std::string_view name) {
  const auto found = std::ranges::find(megatron::flags(), name, &Flag::name);
  return found == megatron::flags().end() ? nullptr : &*found;
}

bool same_operands(const Words& left, const Words& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto a = parse_number(left[i], -1e300, 1e300);
    const auto b = parse_number(right[i], -1e300, 1e300);
    if (left[i] != right[i] && (!a || !b || *a != *b)) return false;
  }
  return true;
}

}  // namespace

RecipeFlags Collector::run() {
  require_understood(recipe_);
  require_decoder_of_text(recipe_, model_.has_value());
  describe();
  for (const char* object : {"model", "ddp", "optimizer", "scheduler", "train", "dist"})
    take(object);
  activation();
  heads();
  experts();
  precision();
  distribution();
  overlap();
  learning_rate();
  batch();
  sequence();
  vocabulary();
  kept_elsewhere();
  if (result_.model) {
    require_unchanged();
    const Json& dropout = at("model", "hidden_dropout");
    result_.dropout = dropout.is_number() ? dropout.get<double>() : 0;  // as all bridges set it
  }
  list_others();
  for (const std::string& note : recipe_.notes) assume(note + "; taken as if it were not there");
  return std::move(result_);
}

void Collector::assume(std::string line) {
  result_.assumptions.push_back(std::move(line));
}

const Json& Collector::at(std::string_view object, const std::string& field) const {
  static const Json kNone;
  const std::string name(object);
  if (!recipe_.tree.contains(name)) return kNone;
  const Json& section = recipe_.tree.at(name);
  return section.is_object() && section.contains(field) ? section.at(field) : kNone;
}

bool Collector::is_true(std::string_view object, const std::string& field) const {
  const Json& value = at(object, field);
  if (python::is_unknown(value)) fail(object, field, value, "True or False");
  return value.is_boolean() && value.get<bool>();
}

bool Collector::was_set(std::string_view object, const std::string& field) const {
  const std::string name(object);
  return recipe_.given.contains(name) && recipe_.given.at(name).is_object() &&
         recipe_.given.at(name).contains(field);
}

std::int64_t Collector::degree(const std::string& field) const {
  const Json& value = at("model", field);
  return value.is_number_integer() ? value.get<std::int64_t>() : 1;
}

void Collector::fail(std::string_view object, const std::string& field, const Json& value,
                     std::string_view expected) const {
  const bool unknown = python::is_unknown(value);
  throw ConfigError(
      fmt::format("{}: {}.{}: '{}'{}; expected {}, or give it with --args {}.{}=VALUE",
                  unknown ? value.value(python::kPlace, recipe_.file) : recipe_.file, object, field,
                  shown(value), unknown ? " is not understood" : "", expected, object, field));
}

void Collector::add(const std::string& flag, const Words& operands, const std::string& field) {
  remove(flag);
  megatron::Argument argument{flag, {}, fmt::format("{}: {}", recipe_.file, field)};
  for (const std::string& operand : operands) argument.values.push_back({operand, {}});
  result_.arguments.push_back(std::move(argument));
  result_.fields[flag] = field;
}

void Collector::remove(std::string_view flag) {
  std::erase_if(result_.arguments, [&](const auto& each) { return each.flag == flag; });
}

bool Collector::has(std::string_view flag) const {
  return std::ranges::any_of(result_.arguments,
                             [&](const auto& each) { return each.flag == flag; });
}

void Collector::switch_to(bool on, const std::string& flag, const std::string& field) {
  if (on)
    add(flag, {}, field);
  else
    remove(flag);
}

void Collector::describe() {
  if (model_)
    start_from(*model_, "the model given");
  else if (!recipe_.hub_name.empty())
    start_from(*hub_model(recipe_.hub_name).spec, recipe_.hub_name);
}

void Collector::start_from(const models::ModelSpec& spec, const std::string& name) {
  program::Plan plan;
  plan.model = spec;
  if (!megatron::inexpressible(plan).empty()) {
    result_.model = spec;
    return;
  }
  for (const Flag& flag : megatron::flags())
    if (megatron::describes_model(flag.name))
      if (const auto values = flag.write(plan))
        add(std::string(flag.name), *values, fmt::format("model ({})", name));
}

bool Collector::is_settled(std::string_view object, const std::string& field,
                           std::string_view flag) const {
  if (object != "model" || !megatron::describes_model(flag)) return false;
  if (!recipe_.hub_name.empty()) return !was_set(object, field);
  return model_.has_value();  // given in place of the one that the recipe builds
}

void Collector::take(const char* object) {
  if (!recipe_.tree.contains(object)) return;
  const Json& section = recipe_.tree.at(object);
  if (!section.is_object()) return;
  const bool has_precision = !at_root("mixed_precision").is_null();
  for (const auto& [field, value] : section.items()) {
    if (field.starts_with('$') || field.starts_with('_') || is_among(kReadApart, field)) continue;
    if (has_precision && is_among(kOfPrecision, field)) continue;
    const auto flags = megatron::flags_of_field(object, field);
    if (flags.empty() && was_set(object, field))
      result_.ignored.push_back(fmt::format("{}.{} = {}", object, field, shown(value)));
    for (const megatron::FieldFlag& each : flags)
      if (!is_settled(object, field, each.flag)) take_field(object, field, value, each);
  }
}

const Json& Collector::at_root(const char* name) const {
  static const Json kNone;
  return recipe_.tree.contains(name) ? recipe_.tree.at(name) : kNone;
}

void Collector::take_field(const char* object, const std::string& field, const Json& value,
                           const megatron::FieldFlag& as) {
  const std::string line = fmt::format("{}.{} = {}", object, field, shown(value));
  if (!as.literal.empty() && !python::is_unknown(value)) {
    const bool on = value.is_boolean() && value.get<bool>() == (as.literal == "True");
    return switch_to(on, as.flag, line);
  }
  if (value.is_null()) return remove(as.flag);
  if (value.is_boolean()) return switch_to(value.get<bool>(), as.flag, line);
  if (value.is_array() && value.empty()) return remove(as.flag);
  if (const auto operands = operands_of(as.flag, value)) return add(as.flag, *operands, line);
  if (table_flag(as.flag) != nullptr) fail(object, field, value, "a value");
  result_.ignored.push_back(line);
}

void Collector::activation() {
  if (!recipe_.hub_name.empty() && !was_set("model", "activation_func") &&
      !was_set("model", "gated_linear_unit"))
    return;
  if (model_ || result_.model) return;
  const Json& function = at("model", "activation_func");
  const std::string name =
      function.is_null() ? (has("--swiglu") ? "silu" : "gelu") : last_word(function);
  const Json& gate = at("model", "gated_linear_unit");
  const bool gated = gate.is_boolean() ? gate.get<bool>() : has("--swiglu");
  for (const char* flag : {"--swiglu", "--squared-relu", "--quick-geglu"}) remove(flag);
  const std::string line = "model.activation_func = " + name;
  if (name == "silu" && gated) return add("--swiglu", {}, line);
  if (name == "squared_relu" && !gated) return add("--squared-relu", {}, line);
  if (name == "quick_gelu" && gated) return add("--quick-geglu", {}, line);
  if (name == "gelu" && !gated) return;
  fail("model", "activation_func", Json(name + (gated ? " with a gate" : " without a gate")),
       "silu or quick_gelu with gated_linear_unit=True, or gelu or squared_relu without");
}

void Collector::heads() {
  const Json& groups = at("model", "num_query_groups");
  if (!is_settled("model", "num_query_groups", "--num-query-groups") &&
      groups.is_number_integer()) {
    add("--group-query-attention", {}, "model.num_query_groups");
    add("--num-query-groups", {groups.dump()}, "model.num_query_groups = " + groups.dump());
  }
  const std::string provider = python::call_name(at_root("model"));
  if (recipe_.hub_name.empty() && !model_) own_layers(provider);
  const bool latent = provider.find("MLA") != std::string::npos ||
                      std::ranges::any_of(recipe_.model_classes, [](const std::string& each) {
                        return each.find("MLA") != std::string::npos;
                      });
  if (latent && !model_) add("--multi-latent-attention", {}, "model = " + provider);
}

void Collector::own_layers(const std::string& provider) {
  const std::string name = provider.substr(provider.rfind('.') + 1);
  constexpr std::array<std::string_view, 4> kPlain = {"GPTModelProvider", "MLAModelProvider",
                                                      "GPTModelConfig", "MLAModelConfig"};
  if (!is_among(kPlain, name))
    assume(
        fmt::format("layers are Megatron-Core's own (model = {}, which may build others)", name));
}

void Collector::batch() {
  const Json& micro = at("train", "micro_batch_size");
  if (!micro.is_number_integer()) fail("train", "micro_batch_size", micro, "a whole number");
}

void Collector::sequence() {
  const Json& data = at("dataset", "seq_length");
  const Json& model = at("model", "seq_length");
  const bool models_own = recipe_.hub_name.empty() || was_set("model", "seq_length");
  const bool differs = models_own && model.is_number_integer() && !data.is_null() && model != data;
  // What the repository's launcher of performance recipes gives the data is the model's.
  const bool is_launched = recipe_.file.find("perf_recipes") != std::string::npos;
  if (differs && !is_launched)
    throw ConfigError(fmt::format(
        "{}: model.seq_length = {}, but dataset.seq_length = {}: Megatron-Bridge refuses what "
        "differs; nearest: {}, with --args model.seq_length={}",
        recipe_.file, shown(model), shown(data), shown(data), shown(data)));
  if (differs)
    assume(
        fmt::format("seq_len = {} (model.seq_length; that of the dataset, {}, is replaced when "
                    "a performance recipe is launched)",
                    shown(model), shown(data)));
  const Json& length = data.is_null() || differs ? model : data;
  if (!length.is_number_integer())
    fail(data.is_null() ? "model" : "dataset", "seq_length", length, "a whole number");
  add("--seq-length", {length.dump()}, "dataset.seq_length = " + length.dump());
  if (!has("--max-position-embeddings") && !result_.model)
    add("--max-position-embeddings", {length.dump()}, "model.seq_length");
}

void Collector::set_vocabulary(std::int64_t size, const std::string& field) {
  if (result_.model) result_.model->vocab_size = static_cast<int>(size);
  if (!result_.model) add("--vocab-size", {std::to_string(size)}, field);
}

void Collector::vocabulary() {
  constexpr std::int64_t kMost = 1 << 24;
  const Json& own = at("model", "vocab_size");
  const Json& told = at("tokenizer", "vocab_size");
  const std::string type = last_word(at("tokenizer", "tokenizer_type"));
  const bool from_tokenizer = is_true("tokenizer", "use_tokenizer_vocab_size");
  const auto is_size = [](const Json& size) {
    return size.is_number_integer() && size.get<std::int64_t>() > 0 &&
           size.get<std::int64_t>() < kMost;
  };
  const bool has_own = is_size(own);
  if (has_own && was_set("model", "vocab_size") && !from_tokenizer)
    return set_vocabulary(own.get<std::int64_t>(), "model.vocab_size = " + own.dump());
  const bool is_described = model_ || !recipe_.hub_name.empty();
  if ((is_described || has_own) && !from_tokenizer) {
    if (!is_described) set_vocabulary(own.get<std::int64_t>(), "model.vocab_size");
    return;
  }
  if (type == "NullTokenizer" && is_size(told)) {
    const std::int64_t size = told.get<std::int64_t>() + 1;
    assume(fmt::format("vocab_size = {} (NullTokenizer's {} and the end of documents{})", size,
                       told.get<std::int64_t>(),
                       from_tokenizer && is_described
                           ? "; the recipe leaves the size to it: use_tokenizer_vocab_size"
                           : ""));
    return set_vocabulary(size, "tokenizer.vocab_size");
  }
  if (is_described)
    return assume(
        fmt::format("vocab_size is the model's (the recipe takes that of its tokenizer, "
                    "{}: use_tokenizer_vocab_size)",
                    shown(at("tokenizer", "tokenizer_model"))));
  for (const char* field : {"tokenizer_type", "tokenizer_model"})
    if (at("tokenizer", field).is_string())
      add(field == std::string_view("tokenizer_type") ? "--tokenizer-type" : "--tokenizer-model",
          {at("tokenizer", field).get<std::string>()}, fmt::format("tokenizer.{}", field));
}

void Collector::require_unchanged() {
  program::Plan plan;
  plan.model = *result_.model;
  std::erase_if(result_.arguments, [&](const megatron::Argument& argument) {
    if (!megatron::describes_model(argument.flag)) return false;
    if (is_among(kTrainingChoices, argument.flag)) return true;
    const auto known = table_flag(argument.flag)->write(plan);
    Words operands;
    for (const auto& value : argument.values) operands.push_back(value.text);
    if (known && same_operands(*known, operands)) return true;
    throw ConfigError(fmt::format(
        "{}: changes the model {}, which flags of Megatron-LM do not describe; give the changed "
        "one with --model",
        argument.place, result_.model->name));
  });
}

void Collector::list_others() {
  for (const auto& [section, value] : recipe_.given.items()) {
    constexpr std::array<std::string_view, 11> kRead = {
        "model", "ddp",       "optimizer",    "scheduler",       "train",  "dist",
        "peft",  "tokenizer", "comm_overlap", "mixed_precision", "dataset"};
    if (!section.starts_with('$') && !is_among(kRead, section) && !value.is_null())
      result_.ignored.push_back(section);
  }
}

RecipeFlags flags_of(const Recipe& recipe, const std::optional<models::ModelSpec>& model) {
  return Collector(recipe, model).run();
}

}  // namespace meshplan::planner::bridge
