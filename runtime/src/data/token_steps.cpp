#include "data/token_steps.hpp"

#include <cstdint>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"

namespace meshplan::runtime {
namespace {

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

}  // namespace

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

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    replaced.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  if (begin > 0) text = std::move(replaced.append(text, begin));
}

std::string normalize(const std::vector<Normalizer>& steps, std::string_view text,
                      const std::string& file) {
  std::string normal(text);
  for (const Normalizer& step : steps) {
    if (const auto* form = std::get_if<Normalize>(&step))
      normal = normalized(normal, form->form);
    else if (const auto* prepend = std::get_if<Prepend>(&step))
      normal.insert(0, prepend->text);
    else if (const auto* replace = std::get_if<Replace>(&step)) {
      require_bounded(size_of_replaced(normal, replace->from, replace->to), text.size(),
                      fmt::format("{}: replacing '{}'", replace->where, short_line(replace->from)));
      replace_all(normal, replace->from, replace->to);
    }
    require_bounded(normal.size(), text.size(), file + ": normalizer");
  }
  return normal;
}

std::vector<std::string> split_into_words(const std::vector<PreTokenizer>& steps, std::string text,
                                          bool first, std::size_t given_bytes,
                                          const std::string& file) {
  std::vector<std::string> words = {std::move(text)};
  for (const PreTokenizer& step : steps) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i < words.size(); ++i)
      for (std::string& part : apply(step, words[i], first && i == 0))
        if (!part.empty()) next.push_back(std::move(part));
    words = std::move(next);
    std::size_t bytes = 0;
    for (const std::string& word : words) bytes += word.size();
    require_bounded(bytes, given_bytes, file + ": pre_tokenizer");
  }
  return words;
}

}  // namespace meshplan::runtime
