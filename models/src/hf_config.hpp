// Reads the keys of one Hugging Face config. Absent keys take the default of the model type's
// configuration class, and every such default is listed.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fields.hpp"
#include "models/model_spec.hpp"

namespace meshplan::models {

/// Names of one key, first found wins; the first one names it in messages and in the defaults.
using Keys = std::initializer_list<std::string_view>;

class HfConfig {
 public:
  /// @param path  of `object` inside the file, "" or "text_config"
  /// @param defaults  JSON object: class defaults of `model_type`; null = None
  HfConfig(const Json& object, std::string file, std::string path, std::string model_type,
           std::string_view defaults);

  const std::string& model_type() const { return model_type_; }

  /// The key is in the file and not null.
  bool has(std::string_view key) const;
  int integer(Keys keys);   // at least 0
  int positive(Keys keys);  // at least 1
  std::optional<int> optional_integer(Keys keys);
  double number(Keys keys);
  std::optional<double> optional_number(Keys keys);
  bool flag(Keys keys);
  std::string text(Keys keys);
  std::vector<int> integers(Keys keys);
  std::vector<std::string> texts(Keys keys);
  ActivationKind activation(Keys keys);

  /// The object under `key`, or nothing if it is absent or null.
  std::optional<HfConfig> object(std::string_view key) const;
  /// A key of this very object, without defaults.
  std::optional<double> own_number(std::string_view key) const;
  std::optional<std::string> own_text(std::string_view key) const;

  int size() const { return static_cast<int>(object_->size()); }

  void assume(std::string line) { assumptions_.push_back(std::move(line)); }
  std::vector<std::string> take_assumptions() { return std::move(assumptions_); }

  /// @throws ConfigError "file: key: message"
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  /// The file's value, else the default (which is listed). @throws ConfigError if there is neither
  const Json& lookup(Keys keys);
  [[noreturn]] void fail_missing(std::string_view key) const;
  [[noreturn]] void fail_type(Keys keys, const Json& value, std::string_view expected) const;

  const Json* object_;
  std::string file_;
  std::string path_;
  std::string model_type_;
  Json defaults_;
  std::vector<std::string> listed_;
  std::vector<std::string> assumptions_;
};

/// One importable model type: its class defaults and what fills a spec from its keys.
struct HfFamily {
  std::string_view model_type;
  std::string_view defaults;
  void (*fill)(HfConfig&, ModelSpec&);
};

/// Sorted by model_type.
std::vector<HfFamily> hf_families();

// Parts that families share.
void fill_sizes(HfConfig& config, ModelSpec& spec);       // layers, width, query heads, vocabulary
void fill_heads(HfConfig& config, ModelSpec& spec);       // key/value heads and head size
void fill_rope(HfConfig& config, ModelSpec& spec);        // base, local base, rotated part, scaling
void fill_llama_like(HfConfig& config, ModelSpec& spec);  // sizes, rope, norm, activation, tying
/// `layer_types` where the file has them, else `fallback` (one entry per layer); the window too.
void fill_layer_types(HfConfig& config, ModelSpec& spec, std::vector<LayerAttention> fallback);

}  // namespace meshplan::models
