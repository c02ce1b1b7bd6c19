// Steps of a tokenizer before its merges: normalization, then cutting into words.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/unicode_text.hpp"

namespace meshplan::runtime {

inline constexpr std::string_view kMetaspace =
    "\u2581";  // stands for a space in SentencePiece's tokens

/// GPT-2's way to write bytes as visible characters: printable ones as themselves, the others as
/// the characters from 256 on, in order (Radford et al. 2019, the encoder that they published).
const std::array<std::string, 256>& byte_characters();

/// @param from  not empty
void replace_all(std::string& text, std::string_view from, std::string_view to);

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

/// The text after all steps. @param file  for messages
/// @throws ConfigError if the steps make a text many times as long
std::string normalize(const std::vector<Normalizer>& steps, std::string_view text,
                      const std::string& file);

/// The words of a normalized text; none is empty.
/// @param first  the text begins its document  @param given_bytes  of the text before normalization
/// @throws ConfigError as normalize
std::vector<std::string> split_into_words(const std::vector<PreTokenizer>& steps, std::string text,
                                          bool first, std::size_t given_bytes,
                                          const std::string& file);

}  // namespace meshplan::runtime
