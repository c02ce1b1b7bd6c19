#include "hf_config.hpp"

#include <algorithm>
#include <limits>

namespace meshplan::models {

HfConfig::HfConfig(const Json& object, std::string file, std::string path, std::string model_type,
                   std::string_view defaults)
    : object_(&object),
      file_(std::move(file)),
      path_(std::move(path)),
      model_type_(std::move(model_type)),
      defaults_(Json::parse(defaults)) {}

void HfConfig::fail(std::string_view key, const std::string& message) const {
  throw ConfigError(
      fmt::format("{}: {}{}{}: {}", file_, path_, path_.empty() ? "" : ".", key, message));
}

void HfConfig::fail_missing(std::string_view key) const {
  std::vector<std::string> present;
  for (const auto& [name, value] : object_->items()) present.push_back(name);
  const std::string nearest = nearest_choice(key, present);
  fail(key, fmt::format("required key is missing for model_type '{}'{}", model_type_,
                        nearest.empty() ? "" : fmt::format("; the nearest key is '{}'", nearest)));
}

void HfConfig::fail_type(Keys keys, const Json& value, std::string_view expected) const {
  std::string_view used = *keys.begin();
  for (const std::string_view key : keys)
    if (object_->contains(std::string(key))) {
      used = key;
      break;
    }
  fail(used, fmt::format("expected {}, got {}", expected, value.dump()));
}

bool HfConfig::has(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

const Json& HfConfig::lookup(Keys keys) {
  for (const std::string_view key : keys) {
    const auto found = object_->find(std::string(key));
    if (found != object_->end()) return *found;
  }
  const std::string name(*keys.begin());
  const auto fallback = defaults_.find(name);
  if (fallback == defaults_.end()) fail_missing(name);
  if (!fallback->is_null() && std::ranges::find(listed_, name) == listed_.end()) {
    listed_.push_back(name);
    assume(fmt::format("{} = {} ({} default)", name, fallback->dump(), model_type_));
  }
  return *fallback;
}

std::optional<int> HfConfig::optional_integer(Keys keys) {
  const Json& value = lookup(keys);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number_integer()) fail_type(keys, value, "an integer");
  const double number = value.get<double>();
  if (number < 0 || number > std::numeric_limits<int>::max())
    fail_type(keys, value, "an integer from 0 to 2147483647");
  return value.get<int>();
}

int HfConfig::integer(Keys keys) {
  const auto value = optional_integer(keys);
  if (!value) fail_type(keys, nullptr, "an integer");
  return *value;
}

int HfConfig::positive(Keys keys) {
  const int value = integer(keys);
  if (value < 1) fail_type(keys, value, "an integer of at least 1");
  return value;
}

std::optional<double> HfConfig::optional_number(Keys keys) {
  const Json& value = lookup(keys);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) fail_type(keys, value, "a number");
  return value.get<double>();
}

double HfConfig::number(Keys keys) {
  const auto value = optional_number(keys);
  if (!value) fail_type(keys, nullptr, "a number");
  return *value;
}

bool HfConfig::flag(Keys keys) {
  const Json& value = lookup(keys);
  if (!value.is_boolean()) fail_type(keys, value, "true or false");
  return value.get<bool>();
}

std::string HfConfig::text(Keys keys) {
  const Json& value = lookup(keys);
  if (!value.is_string()) fail_type(keys, value, "a string");
  return value.get<std::string>();
}

std::vector<int> HfConfig::integers(Keys keys) {
  const Json& value = lookup(keys);
  if (value.is_null()) return {};
  if (!value.is_array()) fail_type(keys, value, "a list of integers");
  std::vector<int> list;
  for (const Json& item : value) {
    const bool fits = item.is_number_integer() && item.get<double>() >= 0 &&
                      item.get<double>() <= std::numeric_limits<int>::max();
    if (!fits) fail_type(keys, item, "a list of integers from 0 to 2147483647");
    list.push_back(item.get<int>());
  }
  return list;
}

std::vector<std::string> HfConfig::texts(Keys keys) {
  const Json& value = lookup(keys);
  if (value.is_null()) return {};
  if (!value.is_array()) fail_type(keys, value, "a list of strings");
  std::vector<std::string> list;
  for (const Json& item : value) {
    if (!item.is_string()) fail_type(keys, item, "a list of strings");
    list.push_back(item.get<std::string>());
  }
  return list;
}

ActivationKind HfConfig::activation(Keys keys) {
  static constexpr std::array<std::pair<std::string_view, ActivationKind>, 9> kNames{
      {{"gelu", ActivationKind::Gelu},
       {"gelu_fast", ActivationKind::GeluTanh},
       {"gelu_new", ActivationKind::GeluTanh},
       {"gelu_pytorch_tanh", ActivationKind::GeluTanh},
       {"relu", ActivationKind::Relu},
       {"relu2", ActivationKind::SquaredRelu},
       {"silu", ActivationKind::Silu},
       {"swish", ActivationKind::Silu},
       {"tanh", ActivationKind::Tanh}}};
  const std::string given = text(keys);
  std::vector<std::string> known;
  for (const auto& [name, kind] : kNames) {
    if (name == given) return kind;
    known.emplace_back(name);
  }
  fail(*keys.begin(), unknown_name_message("activation", given, known));
}

std::optional<HfConfig> HfConfig::object(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_object()) fail_type({key}, value, "an object");
  return HfConfig(value, file_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key),
                  model_type_, "{}");
}

std::optional<double> HfConfig::own_number(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_number()) fail_type({key}, value, "a number");
  return value.get<double>();
}

std::optional<std::string> HfConfig::own_text(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_string()) fail_type({key}, value, "a string");
  return value.get<std::string>();
}

}  // namespace meshplan::models
