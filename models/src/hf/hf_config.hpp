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
#include "models/imported_model.hpp"

namespace meshplan::models {

/// Names of one key, first found wins; the first one names it in messages and in the defaults.
using Keys = std::initializer_list<std::string_view>;

class HfConfig {
 public:
  /// @param path  of `object` inside the file, "" or "text_config"
  /// @param defaults  JSON object: class defaults of `model_type`; null = None
  HfConfig(const Json& object, std::string file, std::string path, std::string model_type,
           Json defaults);

  const std::string& model_type() const { return model_type_; }

  /// The key is in the file and not null.
  bool has(std::string_view key) const;
  int integer(Keys keys);   // at least 0
  int positive(Keys keys);  // at least 1
  int width(Keys keys);     // 1 to limits::kWidth, so that a sum of some fits
  int layers(Keys keys);    // 1 to limits::kLayers
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
  /// A list of at least one integer; one integer is such a list.
  std::vector<int> integer_or_list(Keys keys);
  /// Nothing where the file says it in words ("auto") or not at all.
  std::optional<int> integer_unless_text(Keys keys);
  ActivationKind activation(Keys keys);

  /// The object under `key`, or nothing if it is absent or null. Its keys are listed, too.
  std::optional<HfConfig> object(std::string_view key) const;
  /// A key of this very object, without defaults.
  std::optional<double> own_number(std::string_view key) const;
  /// The same, or of a list of numbers the first.
  std::optional<double> own_first_number(std::string_view key) const;
  /// The number under a key of this very object as a size (hf/sizes.hpp).
  std::optional<int> own_size(std::string_view key) const;
  std::optional<std::string> own_text(std::string_view key) const;
  /// Absent or null: false.
  bool own_flag(std::string_view key) const;
  std::vector<int> own_integers(std::string_view key) const;
  /// The object under `key`, which must be there.
  HfConfig needed(std::string_view key) const;
  /// A list of objects; empty where it is absent.
  std::vector<HfConfig> objects(std::string_view key) const;
  /// Did something ask for the key, so that it counts?
  bool was_read(std::string_view key) const { return record_->read.contains(name_of(key)); }

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

/// One importable model type: what fills a spec from its keys.
struct HfFamily {
  std::string_view model_type;
  void (*fill)(HfConfig&, ModelSpec&);
};

}  // namespace meshplan::models
