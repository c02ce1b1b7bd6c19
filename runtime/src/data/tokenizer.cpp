#include "runtime/data/tokenizer.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <unordered_map>

#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/printable.hpp"
#include "data/byte_pair_encoding.hpp"
#include "data/token_steps.hpp"
#include "data/tokenizer_file.hpp"
#include "data/unicode_text.hpp"

namespace meshplan::runtime {

class Tokenizer::Implementation {
 public:
  Implementation(std::string_view text, const std::string& file) : file_(file) {
    const TokenizerFile source(text, file);
    normalizers_ = source.normalizers();
    pre_tokenizers_ = source.pre_tokenizers();
    for (const PreTokenizer& step : pre_tokenizers_)
      byte_level_ = byte_level_ || std::holds_alternative<ToByteCharacters>(step);
    read_model(source);
    added_ = source.added_tokens();
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

  void read_model(const TokenizerFile& source) {
    const Json* model = source.find(source.root(), "model");
    if (model == nullptr || !model->is_object()) source.fail("model", "expected an object");
    const std::string type = source.text(*model, "type", "model", "BPE");
    if (type != "BPE")
      source.fail("model.type", unknown_name_message("tokenizer model", type, {"BPE"}));
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!source.text(*model, key, "model", "").empty())
        source.fail(fmt::format("model.{}", key), "is not supported; expected null or \"\"");
    if (const Json* dropout = source.find(*model, "dropout"); dropout != nullptr && *dropout != 0)
      source.fail("model.dropout", "is not supported: the same text must give the same tokens");
    byte_fallback_ = source.flag(*model, "byte_fallback", "model", false);
    fuse_unknown_ = source.flag(*model, "fuse_unk", "model", false);
    ignore_merges_ = source.flag(*model, "ignore_merges", "model", false);
    const Json* vocab = source.find(*model, "vocab");
    if (vocab == nullptr || !vocab->is_object())
      source.fail("model.vocab", "expected an object of token: id");
    for (const auto& [token, value] : vocab->items()) {
      const std::uint32_t id = source.id(value, "model.vocab." + token);
      ids_[token] = id;
      remember(token, id);
    }
    const std::string unknown = source.text(*model, "unk_token", "model", "");
    if (!unknown.empty()) {
      unknown_ = id_of(unknown);
      if (!unknown_)
        source.fail("model.unk_token",
                    fmt::format("'{}' is not in the vocabulary", short_line(unknown)));
    }
    read_merges(source, *model);
  }

  void read_merges(const TokenizerFile& source, const Json& model) {
    const Json* list = source.find(model, "merges");
    if (list == nullptr || !list->is_array()) source.fail("model.merges", "expected a list");
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
        source.fail(path, "expected \"left right\" or [left, right], got " + quoted(entry));
      const auto a = id_of(left);
      const auto b = id_of(right);
      const auto merged = id_of(left + right);
      if (!a || !b || !merged)
        source.fail(path,
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
    const std::vector<std::string> words = split_into_words(
        pre_tokenizers_, normalize(normalizers_, text, file_), first, text.size(), file_);
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
