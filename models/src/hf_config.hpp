// Reads the keys of one Hugging Face config. Absent keys take the default of the model type's
// configuration class, and every such default is listed.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_fields.hpp"
#include "models/hugging_face.hpp"

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
  int width(Keys keys);     // 1 to limits::kWidth, so that a sum of some fits
  std::optional<int> optional_integer(Keys keys);
  double number(Keys keys);
  /// The file's value, else the class default, else `fallback`, which is not listed.
  double number_or(Keys keys, double fallback);
  bool flag_or(Keys keys, bool fallback);
  std::optional<double> optional_number(Keys keys);
  bool flag(Keys keys);
  /// A name: one printable line.
  std::string text(Keys keys);
  std::vector<int> integers(Keys keys);
  std::vector<std::string> texts(Keys keys);
  ActivationKind activation(Keys keys);

  /// The object under `key`, or nothing if it is absent or null. Its keys are listed, too.
  std::optional<HfConfig> object(std::string_view key) const;
  /// A key of this very object, without defaults.
  std::optional<double> own_number(std::string_view key) const;
  std::optional<std::string> own_text(std::string_view key) const;

  /// How many the object under `key` has, or nothing if it is absent or null.
  std::optional<int> num_entries(std::string_view key) const;

  void assume(std::string line) const { record_->assumptions.push_back(std::move(line)); }
  /// The key has no effect here, for this reason; nothing happens where it is absent.
  void ignore(std::string_view key, std::string_view reason) const;
  /// Every key of the file with what became of it, and the defaults that were filled in. A key that
  /// nothing asked for and that no model type is known to ignore is listed as assumed away, too.
  void report(ImportedModel& model) const;

  /// @throws ConfigError "file: key: message"
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

 private:
  /// The file's value, else the default (which is listed). @throws ConfigError if there is neither
  const Json& lookup(Keys keys);
  bool given_or_default(Keys keys) const;
  std::string name_of(std::string_view key) const;
  void mark_read(std::string_view key) const { record_->read.insert(name_of(key)); }
  void report_object(const Json& object, const std::string& path, ImportedModel& model) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  std::string line_of(std::string_view key, const Json& value) const;
  [[noreturn]] void fail_type(Keys keys, const Json& value, std::string_view expected) const;

  const Json* object_;
  std::string file_;
  std::string path_;
  std::string model_type_;
  Json defaults_;
  /// What became of the file's keys, by path; shared with the objects inside.
  struct Record {
    std::set<std::string> read;
    std::set<std::string> opened;
    std::map<std::string, std::string> ignored;
    std::vector<std::string> listed;
    std::vector<std::string> assumptions;
  };
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
};

/// Why a key that describes no model has no effect; empty for a key that may.
std::string_view reason_to_ignore(std::string_view key);

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
/// The largest of the rates; a key without class default counts as 0.
void fill_dropout(HfConfig& config, ModelSpec& spec, Keys keys);
/// Coefficient of the balance loss that transformers trains with, which is 0 or refused.
double balance_loss(HfConfig& config);
void require_no_jitter(HfConfig& config);
/// @throws ConfigError unless the flag is absent or `value`
void require_absent_or(HfConfig& config, std::string_view key, bool value, std::string_view reason);
/// `layer_types` where the file has them, else `fallback` (one entry per layer); the window too.
void fill_layer_types(HfConfig& config, ModelSpec& spec, std::vector<LayerAttention> fallback);

}  // namespace meshplan::models
