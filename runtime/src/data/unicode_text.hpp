// What tokenizers need of Unicode, by ICU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshplan::runtime {

/// Byte offset of the first byte that is not UTF-8; npos if all is.
std::size_t first_invalid_utf8(std::string_view text);

/// Its characters, one after the other, as UTF-8.
std::vector<std::string_view> characters(std::string_view text);

std::string to_utf8(std::uint32_t code_point);

enum class NormalForm { Nfc, Nfkc, Nfd, Nfkd };
std::string normalized(std::string_view text, NormalForm form);

/// A regular expression as tokenizer.json writes them (Oniguruma's syntax). Not thread-safe.
class UnicodeRegex {
 public:
  /// @throws ConfigError naming `where` if the pattern is not understood
  UnicodeRegex(const std::string& pattern, const std::string& where);
  ~UnicodeRegex();
  UnicodeRegex(UnicodeRegex&&) noexcept;

  /// Byte ranges [begin, end) of its matches, in order; none is empty.
  /// @throws ConfigError naming `where` and the pattern if it takes too long or too much memory
  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace meshplan::runtime
