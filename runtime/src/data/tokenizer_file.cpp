#include "data/tokenizer_file.hpp"

#include <cctype>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace meshplan::runtime {
namespace {

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A regular expression that matches this text and nothing else.
std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

TokenizerFile::TokenizerFile(std::string_view text, const std::string& file) : file_(file) {
  root_ = parse_json(text, file);
  if (!root_.is_object()) fail("", "expected a JSON object");
}

void TokenizerFile::fail(const std::string& path, const std::string& what) const {
  throw ConfigError(path.empty() ? fmt::format("{}: {}", file_, what)
                                 : fmt::format("{}: {}: {}", file_, printable_line(path), what));
}

const Json* TokenizerFile::find(const Json& object, const char* key) const {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TokenizerFile::text(const Json& object, const char* key, const std::string& path,
                                const std::string& fallback) const {
  const Json* found = find(object, key);
  if (found == nullptr) return fallback;
  if (!found->is_string()) fail(path + "." + key, "expected a string, got " + quoted(*found));
  return found->get<std::string>();
}

bool TokenizerFile::flag(const Json& object, const char* key, const std::string& path,
                         bool fallback) const {
  const Json* found = find(object, key);
  if (found == nullptr) return fallback;
  if (!found->is_boolean()) fail(path + "." + key, "expected true or false, got " + quoted(*found));
  return found->get<bool>();
}

std::uint32_t TokenizerFile::id(const Json& value, const std::string& path) const {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7fffffff)
    fail(path, "expected a token id, 0 to 2147483647, got " + quoted(value));
  return value.get<std::uint32_t>();
}

std::vector<Normalizer> TokenizerFile::normalizers() const {
  std::vector<Normalizer> steps;
  if (const Json* found = find(root_, "normalizer")) add_normalizer(*found, "normalizer", steps);
  return steps;
}

std::vector<PreTokenizer> TokenizerFile::pre_tokenizers() const {
  std::vector<PreTokenizer> steps;
  if (const Json* found = find(root_, "pre_tokenizer"))
    add_pre_tokenizer(*found, "pre_tokenizer", steps);
  return steps;
}

std::vector<AddedToken> TokenizerFile::added_tokens() const {
  std::vector<AddedToken> tokens;
  const Json* list = find(root_, "added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) fail("added_tokens", "expected a list");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string path = fmt::format("added_tokens[{}]", i);
    if (!entry.is_object() || !entry.contains("id")) fail(path, "expected an object with an id");
    if (flag(entry, "single_word", path, false)) fail(path + ".single_word", "is not supported");
    tokens.push_back({.content = text(entry, "content", path, ""),
                      .id = id(entry["id"], path + ".id"),
                      .strip_left = flag(entry, "lstrip", path, false),
                      .strip_right = flag(entry, "rstrip", path, false)});
    if (tokens.back().content.empty()) fail(path + ".content", "expected a text");
  }
  return tokens;
}

template <class Steps, class Add>
void TokenizerFile::add_sequence(const Json& step, const char* key, const std::string& path,
                                 Steps& steps, Add add) const {
  const Json* list = find(step, key);
  if (list == nullptr || !list->is_array()) fail(path + "." + key, "expected a list");
  for (std::size_t i = 0; i < list->size(); ++i)
    (this->*add)((*list)[i], fmt::format("{}.{}[{}]", path, key, i), steps);
}

std::string TokenizerFile::pattern_of(const Json& step, const std::string& path,
                                      bool as_regex) const {
  const Json* pattern = find(step, "pattern");
  if (pattern != nullptr && pattern->is_object()) {
    if (const Json* regex = find(*pattern, "Regex");
        regex != nullptr && regex->is_string() && as_regex)
      return regex->get<std::string>();
    if (const Json* plain = find(*pattern, "String"); plain != nullptr && plain->is_string())
      return not_empty(plain->get<std::string>(), as_regex, path);
  }
  fail(path + ".pattern",
       as_regex ? "expected {\"Regex\": ...} or {\"String\": ...}" : "expected {\"String\": ...}");
}

std::string TokenizerFile::not_empty(const std::string& text, bool as_regex,
                                     const std::string& path) const {
  if (text.empty()) fail(path + ".pattern.String", "expected at least one character, got \"\"");
  return as_regex ? literal_pattern(text) : text;
}

void TokenizerFile::add_normalizer(const Json& step, const std::string& path,
                                   std::vector<Normalizer>& steps) const {
  const std::string type = text(step, "type", path, "");
  if (type == "Sequence")
    return add_sequence(step, "normalizers", path, steps, &TokenizerFile::add_normalizer);
  if (type == "NFC")
    steps.emplace_back(Normalize{NormalForm::Nfc});
  else if (type == "NFKC")
    steps.emplace_back(Normalize{NormalForm::Nfkc});
  else if (type == "NFD")
    steps.emplace_back(Normalize{NormalForm::Nfd});
  else if (type == "NFKD")
    steps.emplace_back(Normalize{NormalForm::Nfkd});
  else if (type == "Prepend")
    steps.emplace_back(Prepend{text(step, "prepend", path, "")});
  else if (type == "Replace")
    steps.emplace_back(Replace{.from = pattern_of(step, path, false),
                               .to = text(step, "content", path, ""),
                               .where = file_ + ": " + path});
  else
    fail(path + ".type",
         unknown_name_message("normalizer", type,
                              {"Sequence", "NFC", "NFKC", "NFD", "NFKD", "Prepend", "Replace"}));
}

SplitBehavior TokenizerFile::behavior_of(const Json& step, const std::string& path) const {
  const std::string name = text(step, "behavior", path, "Isolated");
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  fail(path + ".behavior",
       unknown_name_message("behavior", name,
                            {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext"}));
}

void TokenizerFile::add_pre_tokenizer(const Json& step, const std::string& path,
                                      std::vector<PreTokenizer>& steps) const {
  const std::string type = text(step, "type", path, "");
  if (type == "Sequence") {
    add_sequence(step, "pretokenizers", path, steps, &TokenizerFile::add_pre_tokenizer);
  } else if (type == "ByteLevel") {
    if (flag(step, "add_prefix_space", path, true)) steps.emplace_back(PrependSpace{});
    if (flag(step, "use_regex", path, true))
      steps.emplace_back(Split{.regex = UnicodeRegex(kGpt2Pattern, file_ + ": " + path)});
    steps.emplace_back(ToByteCharacters{});
  } else if (type == "Split") {
    steps.emplace_back(
        Split{.regex = UnicodeRegex(pattern_of(step, path, true), file_ + ": " + path),
              .behavior = behavior_of(step, path),
              .invert = flag(step, "invert", path, false)});
  } else if (type == "Digits") {
    const bool single = flag(step, "individual_digits", path, false);
    steps.emplace_back(
        Split{.regex = UnicodeRegex(single ? "\\p{N}" : "\\p{N}+", file_ + ": " + path)});
  } else if (type == "Metaspace") {
    const bool prefix = flag(step, "add_prefix_space", path, true);
    const std::string scheme = text(step, "prepend_scheme", path, prefix ? "first" : "never");
    if (scheme != "first" && scheme != "always" && scheme != "never")
      fail(path + ".prepend_scheme",
           unknown_name_message("scheme", scheme, {"first", "always", "never"}));
    const std::string replacement = text(step, "replacement", path, std::string(kMetaspace));
    if (characters(replacement).size() != 1)
      fail(path + ".replacement", fmt::format("expected one character, got \"{}\"", replacement));
    steps.emplace_back(Metaspace{.replacement = replacement,
                                 .prepend = scheme != "never",
                                 .split = flag(step, "split", path, true)});
  } else {
    fail(path + ".type",
         unknown_name_message("pre-tokenizer", type,
                              {"Sequence", "ByteLevel", "Split", "Digits", "Metaspace"}));
  }
}

}  // namespace meshplan::runtime
