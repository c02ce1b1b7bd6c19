#include "hf/hf_config.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/limits.hpp"
#include "core/line.hpp"
#include "hf/sizes.hpp"

namespace meshplan::models {

HfConfig::HfConfig(const Json& object, std::string file, std::string path, std::string model_type,
                   Json defaults)
    : object_(&object),
      file_(std::move(file)),
      path_(std::move(path)),
      model_type_(std::move(model_type)),
      defaults_(std::move(defaults)) {}

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
  fail(used, fmt::format("expected {}, got {}", expected, quoted(value)));
}

bool HfConfig::has(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

std::string HfConfig::name_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

bool HfConfig::given_or_default(Keys keys) const {
  return defaults_.contains(std::string(*keys.begin())) ||
         std::ranges::any_of(keys, [&](std::string_view key) { return has(key); });
}

const Json& HfConfig::lookup(Keys keys) {
  for (const std::string_view key : keys) {
    const auto found = object_->find(std::string(key));
    if (found == object_->end()) continue;
    mark_read(key);
    return *found;
  }
  const std::string name(*keys.begin());
  const auto fallback = defaults_.find(name);
  if (fallback == defaults_.end()) fail_missing(name);
  std::vector<std::string>& listed = record_->listed;
  if (!fallback->is_null() && std::ranges::find(listed, name) == listed.end()) {
    listed.push_back(name);
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

int HfConfig::width(Keys keys) {
  const int value = positive(keys);
  if (value > limits::kWidth)
    fail_type(keys, value, fmt::format("an integer from 1 to {}", limits::kWidth));
  return value;
}

int HfConfig::layers(Keys keys) {
  const int value = positive(keys);
  if (value > limits::kLayers)
    fail(*keys.begin(), fmt::format("expected at most {}, got {}", limits::kLayers, value));
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

double HfConfig::number_or(Keys keys, double fallback) {
  if (!given_or_default(keys)) return fallback;
  return optional_number(keys).value_or(fallback);
}

bool HfConfig::flag_or(Keys keys, bool fallback) {
  return given_or_default(keys) ? flag(keys) : fallback;
}

bool HfConfig::flag(Keys keys) {
  const Json& value = lookup(keys);
  if (!value.is_boolean()) fail_type(keys, value, "true or false");
  return value.get<bool>();
}

std::string HfConfig::line_of(std::string_view key, const Json& value) const {
  auto text = value.get<std::string>();
  require_line(text, fmt::format("{}: {}", file_, name_of(key)), limits::kNameBytes);
  return text;
}

std::string HfConfig::text(Keys keys) {
  const Json& value = lookup(keys);
  if (!value.is_string()) fail_type(keys, value, "a string");
  return line_of(*keys.begin(), value);
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
    list.push_back(line_of(*keys.begin(), item));
  }
  return list;
}

std::vector<int> HfConfig::integer_or_list(Keys keys) {
  const Json& value = lookup(keys);
  if (!value.is_array()) return {integer(keys)};
  std::vector<int> list = integers(keys);
  if (list.empty()) fail_type(keys, value, "an integer or a list of some");
  return list;
}

std::optional<int> HfConfig::integer_unless_text(Keys keys) {
  if (lookup(keys).is_string()) return std::nullopt;
  return optional_integer(keys);
}

ActivationKind HfConfig::activation(Keys keys) {
  static constexpr std::array<std::pair<std::string_view, ActivationKind>, 10> kNames{
      {{"gelu", ActivationKind::Gelu},
       {"gelu_10", ActivationKind::Gelu},
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
  mark_read(key);
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_object()) fail_type({key}, value, "an object");
  record_->opened.insert(name_of(key));
  HfConfig inner(value, file_, name_of(key), model_type_, Json::object());
  inner.record_ = record_;
  return inner;
}

std::optional<int> HfConfig::num_entries(std::string_view key) const {
  const auto inner = object(key);
  if (!inner) return std::nullopt;
  record_->opened.erase(name_of(key));  // the entries are no keys
  return static_cast<int>(inner->object_->size());
}

std::optional<double> HfConfig::own_number(std::string_view key) const {
  mark_read(key);
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_number()) fail_type({key}, value, "a number");
  return value.get<double>();
}

std::optional<double> HfConfig::own_first_number(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_array() || value.empty() || !value.front().is_number()) return own_number(key);
  mark_read(key);
  return value.front().get<double>();
}

std::optional<int> HfConfig::own_size(std::string_view key) const {
  const auto number = own_number(key);
  if (!number) return std::nullopt;
  return as_size(*number);
}

std::optional<std::string> HfConfig::own_text(std::string_view key) const {
  mark_read(key);
  if (!has(key)) return std::nullopt;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_string()) fail_type({key}, value, "a string");
  return line_of(key, value);
}

bool HfConfig::own_flag(std::string_view key) const {
  mark_read(key);
  if (!has(key)) return false;
  const Json& value = *object_->find(std::string(key));
  if (!value.is_boolean()) fail_type({key}, value, "true or false");
  return value.get<bool>();
}

std::vector<int> HfConfig::own_integers(std::string_view key) const {
  HfConfig copy = *this;
  return has(key) ? copy.integers({key}) : std::vector<int>{};
}

HfConfig HfConfig::needed(std::string_view key) const {
  auto inner = object(key);
  if (!inner) fail_missing(key);
  return *std::move(inner);
}

std::vector<HfConfig> HfConfig::objects(std::string_view key) const {
  mark_read(key);
  if (!has(key)) return {};
  const Json& list = *object_->find(std::string(key));
  if (!list.is_array()) fail_type({key}, list, "a list of objects");
  std::vector<HfConfig> inner;
  for (const Json& item : list) {
    if (!item.is_object()) fail_type({key}, item, "a list of objects");
    HfConfig& one =
        inner.emplace_back(item, file_, fmt::format("{}[{}]", name_of(key), inner.size()),
                           model_type_, Json::object());
    one.record_ = record_;
  }
  return inner;
}

void HfConfig::ignore(std::string_view key, std::string_view reason) const {
  record_->ignored[name_of(key)] = reason;
}

void HfConfig::report(ImportedModel& model) const {
  model.assumptions = record_->assumptions;
  report_object(*object_, path_, model);
}

void HfConfig::report_object(const Json& object, const std::string& path,
                             ImportedModel& model) const {
  for (const auto& [key, value] : object.items()) {
    const std::string name = path.empty() ? key : fmt::format("{}.{}", path, key);
    const auto ignored = record_->ignored.find(name);
    const std::string_view reason =
        ignored != record_->ignored.end() ? ignored->second : reason_to_ignore(key);
    if (record_->opened.contains(name)) {
      report_object(value, name, model);
    } else if (record_->read.contains(name) && ignored == record_->ignored.end()) {
      model.read.push_back({name, value.dump()});
    } else if (reason.empty() && path == path_ && defaults_.contains(key)) {
      model.ignored.push_back({name, value.dump(), "has no effect beside the other keys"});
    } else if (!reason.empty()) {
      model.ignored.push_back({name, value.dump(), std::string(reason)});
    } else {
      std::vector<std::string> known;
      for (const auto& [other, fallback] : defaults_.items()) known.push_back(other);
      for (const std::string& other : record_->read) known.push_back(other);
      const std::string nearest = nearest_choice(name, known);
      const std::string why = fmt::format("unknown to a {}{}", model_type_,
                                          nearest.empty() ? "" : "; nearest: " + nearest);
      model.ignored.push_back({name, value.dump(), why});
      model.assumptions.push_back(fmt::format("{} is left out: {}", short_line(name), why));
    }
  }
}

}  // namespace meshplan::models
