#include "runtime/data/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <deque>
#include <fmt/format.h>
#include <unordered_map>
#include <variant>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "data/byte_pair_encoding.hpp"
#include "data/unicode_text.hpp"

namespace meshplan::runtime {
namespace {

constexpr std::string_view kMetaspace = "\u2581";  // stands for a space in SentencePiece's tokens

/// GPT-2's way to write bytes as visible characters: printable ones as themselves, the others as
/// the characters from 256 on, in order (Radford et al. 2019, the encoder that they published).
const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> kAll = [] {
    std::array<std::string, 256> table;
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
      table[byte] = to_utf8(visible ? byte : next++);
    }
    return table;
  }();
  return kAll;
}

std::string mapped_bytes(std::string_view text) {
  std::string mapped;
  for (const char byte : text) mapped += byte_characters()[static_cast<unsigned char>(byte)];
  return mapped;
}

/// Bytes that replace_all would make of a text.
std::size_t size_of_replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::size_t size = text.size();
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + from.size()))
    size += to.size() - from.size();  // modulo 2^64, in which sums and differences hold, too
  return size;
}

/// @param from  not empty
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    replaced.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  if (begin > 0) text = std::move(replaced.append(text, begin));
}

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

// ---------------------------------------------------------------- steps before the merges

struct Normalize {
  NormalForm form = NormalForm::Nfc;
};
struct Prepend {
  std::string text;
};
struct Replace {
  std::string from;
  std::string to;
  std::string where;  // file and path, for messages
};
using Normalizer = std::variant<Normalize, Prepend, Replace>;

/// What happens to the matches of a split.
enum class SplitBehavior { Isolated, Removed, MergedWithPrevious, MergedWithNext };

struct Split {
  UnicodeRegex regex;
  SplitBehavior behavior = SplitBehavior::Isolated;
  bool invert = false;  // what the pattern does not match is the separator
};
struct PrependSpace {};  // unless the text starts with one
struct ToByteCharacters {};
struct Metaspace {
  std::string replacement;
  bool prepend = true;
  bool split = true;
};
using PreTokenizer = std::variant<Split, PrependSpace, ToByteCharacters, Metaspace>;

constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::vector<std::string> split_by(const Split& split, const std::string& text) {
  struct Part {
    std::size_t begin;
    std::size_t end;
    bool separator;
  };
  std::vector<Part> parts;
  std::size_t end = 0;
  for (const auto& [first, last] : split.regex.matches(text)) {
    if (first > end) parts.push_back({end, first, split.invert});
    parts.push_back({first, last, !split.invert});
    end = last;
  }
  if (end < text.size()) parts.push_back({end, text.size(), split.invert});
  std::vector<std::string> words;
  bool join = false;  // the part before waits for this one
  for (const Part& part : parts) {
    std::string word = text.substr(part.begin, part.end - part.begin);
    if (part.separator && split.behavior == SplitBehavior::Removed) continue;
    const bool to_previous =
        join || (part.separator && split.behavior == SplitBehavior::MergedWithPrevious);
    join = part.separator && split.behavior == SplitBehavior::MergedWithNext;
    if (to_previous && !words.empty())
      words.back() += word;
    else
      words.push_back(std::move(word));
  }
  return words;
}

std::vector<std::string> split_metaspace(const Metaspace& metaspace, std::string text, bool first) {
  replace_all(text, " ", metaspace.replacement);
  if (metaspace.prepend && first && !text.starts_with(metaspace.replacement))
    text.insert(0, metaspace.replacement);
  if (!metaspace.split) return {std::move(text)};
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (std::size_t at = text.find(metaspace.replacement, 1); at != std::string::npos;
       at = text.find(metaspace.replacement, at + 1)) {
    words.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  words.push_back(text.substr(begin));
  return words;
}

std::vector<std::string> apply(const PreTokenizer& step, const std::string& word, bool first) {
  if (const auto* split = std::get_if<Split>(&step)) return split_by(*split, word);
  if (const auto* metaspace = std::get_if<Metaspace>(&step))
    return split_metaspace(*metaspace, word, first);
  if (std::holds_alternative<ToByteCharacters>(step)) return {mapped_bytes(word)};
  return {word.starts_with(' ') ? word : " " + word};
}

/// Several replacements of a character by two double the text each time, and so does mapping bytes
/// to characters again and again. @param step  for the message: its file and path, and what it does
void require_bounded(std::size_t bytes, std::size_t given, const std::string& step) {
  constexpr std::size_t kMostTimes = 64;
  constexpr std::size_t kAlways = 1 << 20;
  if (bytes > kAlways && bytes / kMostTimes > given)
    throw ConfigError(
        fmt::format("{} makes {} bytes of a text of {}; at most {} times as many are expected",
                    step, bytes, given, kMostTimes));
}

struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool strip_left = false;
  bool strip_right = false;
};

// ---------------------------------------------------------------- reading the file

/// Reads tokenizer.json; everything that is not supported is an error that names its key.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : file_(file) {
    root_ = parse_json(text, file);
    if (!root_.is_object()) fail("", "expected a JSON object");
  }

  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw ConfigError(path.empty() ? fmt::format("{}: {}", file_, what)
                                   : fmt::format("{}: {}: {}", file_, printable_line(path), what));
  }

  const Json& root() const { return root_; }

  const Json* find(const Json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object, const char* key, const std::string& path,
                   const std::string& fallback) const {
    const Json* found = find(object, key);
    if (found == nullptr) return fallback;
    if (!found->is_string()) fail(path + "." + key, "expected a string, got " + quoted(*found));
    return found->get<std::string>();
  }
  bool flag(const Json& object, const char* key, const std::string& path, bool fallback) const {
    const Json* found = find(object, key);
    if (found == nullptr) return fallback;
    if (!found->is_boolean())
      fail(path + "." + key, "expected true or false, got " + quoted(*found));
    return found->get<bool>();
  }
  std::uint32_t id(const Json& value, const std::string& path) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > 0x7fffffff)
      fail(path, "expected a token id, 0 to 2147483647, got " + quoted(value));
    return value.get<std::uint32_t>();
  }

  std::vector<Normalizer> normalizers() const {
    std::vector<Normalizer> steps;
    if (const Json* found = find(root_, "normalizer")) add_normalizer(*found, "normalizer", steps);
    return steps;
  }
  std::vector<PreTokenizer> pre_tokenizers() const {
    std::vector<PreTokenizer> steps;
    if (const Json* found = find(root_, "pre_tokenizer"))
      add_pre_tokenizer(*found, "pre_tokenizer", steps);
    return steps;
  }

  std::vector<AddedToken> added_tokens() const {
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

 private:
  template <class Steps, class Add>
  void add_sequence(const Json& step, const char* key, const std::string& path, Steps& steps,
                    Add add) const {
    const Json* list = find(step, key);
    if (list == nullptr || !list->is_array()) fail(path + "." + key, "expected a list");
    for (std::size_t i = 0; i < list->size(); ++i)
      (this->*add)((*list)[i], fmt::format("{}.{}[{}]", path, key, i), steps);
  }

  std::string pattern_of(const Json& step, const std::string& path, bool as_regex) const {
    const Json* pattern = find(step, "pattern");
    if (pattern != nullptr && pattern->is_object()) {
      if (const Json* regex = find(*pattern, "Regex");
          regex != nullptr && regex->is_string() && as_regex)
        return regex->get<std::string>();
      if (const Json* plain = find(*pattern, "String"); plain != nullptr && plain->is_string())
        return not_empty(plain->get<std::string>(), as_regex, path);
    }
    fail(path + ".pattern", as_regex ? "expected {\"Regex\": ...} or {\"String\": ...}"
                                     : "expected {\"String\": ...}");
  }

  std::string not_empty(const std::string& text, bool as_regex, const std::string& path) const {
    if (text.empty()) fail(path + ".pattern.String", "expected at least one character, got \"\"");
    return as_regex ? literal_pattern(text) : text;
  }

  void add_normalizer(const Json& step, const std::string& path,
                      std::vector<Normalizer>& steps) const {
    const std::string type = text(step, "type", path, "");
    if (type == "Sequence")
      return add_sequence(step, "normalizers", path, steps, &Reader::add_normalizer);
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

  SplitBehavior behavior_of(const Json& step, const std::string& path) const {
    const std::string name = text(step, "behavior", path, "Isolated");
    if (name == "Isolated") return SplitBehavior::Isolated;
    if (name == "Removed") return SplitBehavior::Removed;
    if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
    fail(path + ".behavior",
         unknown_name_message("behavior", name,
                              {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext"}));
  }

  void add_pre_tokenizer(const Json& step, const std::string& path,
                         std::vector<PreTokenizer>& steps) const {
    const std::string type = text(step, "type", path, "");
    if (type == "Sequence") {
      add_sequence(step, "pretokenizers", path, steps, &Reader::add_pre_tokenizer);
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

  std::string file_;
  Json root_;
};

}  // namespace

// ---------------------------------------------------------------- the tokenizer

class Tokenizer::Implementation {
 public:
  Implementation(std::string_view text, const std::string& file) : file_(file) {
    const Reader reader(text, file);
    normalizers_ = reader.normalizers();
    pre_tokenizers_ = reader.pre_tokenizers();
    for (const PreTokenizer& step : pre_tokenizers_)
      byte_level_ = byte_level_ || std::holds_alternative<ToByteCharacters>(step);
    read_model(reader);
    added_ = reader.added_tokens();
    for (const AddedToken& token : added_) {
      ids_[token.content] = token.id;
      remember(token.content, token.id);
      added_ids_.push_back(token.id);
      added_starts_ += token.content.front();
    }
    // Where several match at one place, the longest is meant.
    std::ranges::stable_sort(added_, std::ranges::greater{},
                             [](const AddedToken& token) { return token.content.size(); });
  }

  std::vector<std::uint32_t> encode(std::string_view document) {
    if (const std::size_t bad = first_invalid_utf8(document); bad != std::string_view::npos)
      throw ConfigError(fmt::format("the text is not UTF-8 at its byte {}", bad));
    if (std::ssize(document) > limits::kTokens)
      throw ConfigError(
          fmt::format("the text has {} bytes; a document has at most {}: cut it, or "
                      "write its parts as lines of a *.jsonl file",
                      document.size(), limits::kTokens));
    std::vector<std::uint32_t> tokens;
    bool first = true;
    while (!document.empty()) {
      const AddedToken* token = nullptr;
      const std::size_t at = next_added(document, token);
      std::string_view before = document.substr(0, at);
      document.remove_prefix(std::min(document.size(), at + (token ? token->content.size() : 0)));
      if (token != nullptr && token->strip_left)
        while (!before.empty() && std::isspace(static_cast<unsigned char>(before.back())) != 0)
          before.remove_suffix(1);
      if (!before.empty()) encode_text(before, first, tokens);
      first = false;
      if (token == nullptr) break;
      tokens.push_back(token->id);
      if (token->strip_right)
        while (!document.empty() && std::isspace(static_cast<unsigned char>(document.front())) != 0)
          document.remove_prefix(1);
    }
    return tokens;
  }

  std::string decode(std::span<const std::uint32_t> tokens) const {
    static const std::unordered_map<std::string_view, char> kBytes = [] {
      std::unordered_map<std::string_view, char> bytes;
      for (std::size_t byte = 0; byte < 256; ++byte)
        bytes[byte_characters()[byte]] = static_cast<char>(byte);
      return bytes;
    }();
    std::string text;
    for (const std::uint32_t id : tokens) {
      const auto known = names_.find(id);
      if (known == names_.end()) continue;
      std::string name = known->second;
      const bool added = std::ranges::find(added_ids_, id) != added_ids_.end();
      if (added) {
        text += name;
      } else if (byte_level_) {
        for (const std::string_view character : characters(name)) {
          const auto byte = kBytes.find(character);
          byte != kBytes.end() ? text += byte->second : text += character;
        }
      } else if (const auto byte = fallback_byte(name)) {
        text += *byte;
      } else {
        replace_all(name, kMetaspace, " ");
        text += name;
      }
    }
    return text;
  }

  std::int64_t vocab_size() const { return vocab_size_; }

  std::optional<std::uint32_t> id_of(std::string_view token) const {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  void remember(const std::string& token, std::uint32_t id) {
    names_[id] = token;
    vocab_size_ = std::max(vocab_size_, std::int64_t{id} + 1);
  }

  /// What "<0xE2>" stands for in a vocabulary with byte_fallback.
  std::optional<char> fallback_byte(std::string_view name) const {
    if (!byte_fallback_ || name.size() != 6 || !name.starts_with("<0x") || name.back() != '>')
      return std::nullopt;
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
    if (error != std::errc() || end != name.data() + 5) return std::nullopt;
    return static_cast<char>(byte);
  }

  void read_model(const Reader& reader) {
    const Json* model = reader.find(reader.root(), "model");
    if (model == nullptr || !model->is_object()) reader.fail("model", "expected an object");
    const std::string type = reader.text(*model, "type", "model", "BPE");
    if (type != "BPE")
      reader.fail("model.type", unknown_name_message("tokenizer model", type, {"BPE"}));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!reader.text(*model, key, "model", "").empty())
        reader.fail(fmt::format("model.{}", key), "is not supported; expected null or \"\"");
    if (const Json* dropout = reader.find(*model, "dropout"); dropout != nullptr && *dropout != 0)
      reader.fail("model.dropout", "is not supported: the same text must give the same tokens");
    byte_fallback_ = reader.flag(*model, "byte_fallback", "model", false);
    fuse_unknown_ = reader.flag(*model, "fuse_unk", "model", false);
    ignore_merges_ = reader.flag(*model, "ignore_merges", "model", false);
    const Json* vocab = reader.find(*model, "vocab");
    if (vocab == nullptr || !vocab->is_object())
      reader.fail("model.vocab", "expected an object of token: id");
    for (const auto& [token, value] : vocab->items()) {
      const std::uint32_t id = reader.id(value, "model.vocab." + token);
      ids_[token] = id;
      remember(token, id);
    }
    const std::string unknown = reader.text(*model, "unk_token", "model", "");
    if (!unknown.empty()) {
      unknown_ = id_of(unknown);
      if (!unknown_)
        reader.fail("model.unk_token",
                    fmt::format("'{}' is not in the vocabulary", short_line(unknown)));
    }
    read_merges(reader, *model);
  }

  void read_merges(const Reader& reader, const Json& model) {
    const Json* list = reader.find(model, "merges");
    if (list == nullptr || !list->is_array()) reader.fail("model.merges", "expected a list");
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Json& entry = (*list)[i];
      std::string left;
      std::string right;
      if (entry.is_string()) {  // "a b"; newer files have ["a", "b"]
        const auto text = entry.get<std::string>();
        const std::size_t space = text.find(' ', 1);
        if (space != std::string::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                 entry[1].is_string()) {
        left = entry[0].get<std::string>();
        right = entry[1].get<std::string>();
      }
      const std::string path = fmt::format("model.merges[{}]", i);
      if (left.empty() || right.empty())
        reader.fail(path, "expected \"left right\" or [left, right], got " + quoted(entry));
      const auto a = id_of(left);
      const auto b = id_of(right);
      const auto merged = id_of(left + right);
      if (!a || !b || !merged)
        reader.fail(path,
                    fmt::format("'{}' is not in the vocabulary", short_line(!a   ? left
                                                                            : !b ? right
                                                                                 : left + right)));
      merges_.add(*a, *b, *merged);
    }
  }

  /// Place of the next added token; the end of the text if there is none.
  std::size_t next_added(std::string_view text, const AddedToken*& token) const {
    for (std::size_t at = text.find_first_of(added_starts_); at != std::string_view::npos;
         at = text.find_first_of(added_starts_, at + 1))
      for (const AddedToken& candidate : added_)
        if (text.substr(at).starts_with(candidate.content)) {
          token = &candidate;
          return at;
        }
    return text.size();
  }

  void encode_text(std::string_view text, bool first, std::vector<std::uint32_t>& tokens) {
    std::string normal(text);
    for (const Normalizer& step : normalizers_) {
      if (const auto* form = std::get_if<Normalize>(&step))
        normal = normalized(normal, form->form);
      else if (const auto* prepend = std::get_if<Prepend>(&step))
        normal.insert(0, prepend->text);
      else if (const auto* replace = std::get_if<Replace>(&step)) {
        require_bounded(
            size_of_replaced(normal, replace->from, replace->to), text.size(),
            fmt::format("{}: replacing '{}'", replace->where, short_line(replace->from)));
        replace_all(normal, replace->from, replace->to);
      }
      require_bounded(normal.size(), text.size(), file_ + ": normalizer");
    }
    std::vector<std::string> words = {std::move(normal)};
    for (const PreTokenizer& step : pre_tokenizers_) {
      std::vector<std::string> next;
      for (std::size_t i = 0; i < words.size(); ++i)
        for (std::string& part : apply(step, words[i], first && i == 0))
          if (!part.empty()) next.push_back(std::move(part));
      words = std::move(next);
      std::size_t bytes = 0;
      for (const std::string& word : words) bytes += word.size();
      require_bounded(bytes, text.size(), file_ + ": pre_tokenizer");
    }
    for (const std::string& word : words) append_word(word, tokens);
  }

  void append_word(const std::string& word, std::vector<std::uint32_t>& tokens) {
    const auto known = cache_.find(word);
    if (known != cache_.end()) {
      tokens.insert(tokens.end(), known->second.begin(), known->second.end());
      return;
    }
    std::vector<std::uint32_t> symbols;
    const auto whole = ignore_merges_ ? id_of(word) : std::nullopt;
    if (whole) {
      symbols = {*whole};
    } else {
      symbols = initial_symbols(word);
      merges_.apply(symbols);
    }
    tokens.insert(tokens.end(), symbols.begin(), symbols.end());
    constexpr std::size_t kCachedWords = 1 << 16;
    constexpr std::size_t kLongestCached = 64;
    if (cache_.size() < kCachedWords && word.size() <= kLongestCached)
      cache_.emplace(word, std::move(symbols));
  }

  std::vector<std::uint32_t> initial_symbols(const std::string& word) const {
    std::vector<std::uint32_t> symbols;
    bool after_unknown = false;
    for (const std::string_view character : characters(word)) {
      if (const auto id = id_of(character)) {
        symbols.push_back(*id);
        after_unknown = false;
      } else if (!append_bytes(character, symbols)) {
        if (!unknown_)
          throw ConfigError(fmt::format(
              "{}: model.vocab: has no token for '{}', no byte_fallback and no unk_token", file_,
              short_line(character)));
        if (!(after_unknown && fuse_unknown_)) symbols.push_back(*unknown_);
        after_unknown = true;
      } else {
        after_unknown = false;
      }
    }
    return symbols;
  }

  /// As "<0xE2>" for each byte. @returns false if the vocabulary does not have them all
  bool append_bytes(std::string_view character, std::vector<std::uint32_t>& symbols) const {
    if (!byte_fallback_) return false;
    std::vector<std::uint32_t> bytes;
    for (const char byte : character) {
      const auto id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
      if (!id) return false;
      bytes.push_back(*id);
    }
    symbols.insert(symbols.end(), bytes.begin(), bytes.end());
    return true;
  }

  std::string file_;
  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::unordered_map<std::uint32_t, std::string> names_;
  std::int64_t vocab_size_ = 0;
  BytePairMerges merges_;
  std::vector<AddedToken> added_;
  std::vector<std::uint32_t> added_ids_;
  std::string added_starts_;  // their first bytes
  std::optional<std::uint32_t> unknown_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::unordered_map<std::string, std::vector<std::uint32_t>> cache_;
};

Tokenizer::Tokenizer(std::string_view text, const std::string& file)
    : implementation_(std::make_unique<Implementation>(text, file)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<std::uint32_t> Tokenizer::encode(std::string_view document) const {
  return implementation_->encode(document);
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  return implementation_->decode(tokens);
}

std::int64_t Tokenizer::vocab_size() const {
  return implementation_->vocab_size();
}

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view token) const {
  return implementation_->id_of(token);
}

std::optional<std::string> Tokenizer::end_token() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>",
                           "<\uff5cend\u2581of\u2581sentence\uff5c>"})
    if (id_of(name)) return name;
  return std::nullopt;
}

}  // namespace meshplan::runtime
