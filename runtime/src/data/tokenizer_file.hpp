// A tokenizer.json: its values, checked, and the steps and tokens that it lists.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "data/token_steps.hpp"

namespace meshplan::runtime {

struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool strip_left = false;
  bool strip_right = false;
};

/// Reads tokenizer.json; everything that is not supported is an error that names its key.
class TokenizerFile {
 public:
  /// @throws ConfigError if the text is no JSON object
  TokenizerFile(std::string_view text, const std::string& file);

  [[noreturn]] void fail(const std::string& path, const std::string& what) const;

  const Json& root() const { return root_; }

  /// Nothing where the key is absent or null.
  const Json* find(const Json& object, const char* key) const;
  std::string text(const Json& object, const char* key, const std::string& path,
                   const std::string& fallback) const;
  bool flag(const Json& object, const char* key, const std::string& path, bool fallback) const;
  std::uint32_t id(const Json& value, const std::string& path) const;

  std::vector<Normalizer> normalizers() const;
  std::vector<PreTokenizer> pre_tokenizers() const;
  std::vector<AddedToken> added_tokens() const;

 private:
  template <class Steps, class Add>
  void add_sequence(const Json& step, const char* key, const std::string& path, Steps& steps,
                    Add add) const;
  std::string pattern_of(const Json& step, const std::string& path, bool as_regex) const;
  std::string not_empty(const std::string& text, bool as_regex, const std::string& path) const;
  void add_normalizer(const Json& step, const std::string& path,
                      std::vector<Normalizer>& steps) const;
  SplitBehavior behavior_of(const Json& step, const std::string& path) const;
  void add_pre_tokenizer(const Json& step, const std::string& path,
                         std::vector<PreTokenizer>& steps) const;

  std::string file_;
  Json root_;
};

}  // namespace meshplan::runtime
