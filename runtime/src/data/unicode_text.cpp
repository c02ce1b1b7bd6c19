#include "data/unicode_text.hpp"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace meshplan::runtime {
namespace {

/// ICU's \s lacks vertical tab and next line, which Oniguruma's has.
std::string with_white_space_property(const std::string& pattern) {
  std::string result;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      result += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's')
      result += "\\p{White_Space}";
    else if (escaped == 'S')
      result += "\\P{White_Space}";
    else
      result += {'\\', escaped};
  }
  return result;
}

void check_icu(UErrorCode status, const char* what) {
  if (U_FAILURE(status))
    throw InvariantError(fmt::format("ICU: {}: {}", what, u_errorName(status)));
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view text) {
  const auto length = static_cast<std::int64_t>(text.size());
  for (std::int64_t i = 0; i < length;) {
    const std::int64_t begin = i;
    // The macro takes 32-bit offsets: give it one character's worth at a time.
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data()) + begin;
    const auto left = static_cast<std::int32_t>(std::min<std::int64_t>(4, length - begin));
    std::int32_t used = 0;
    UChar32 character = 0;
    U8_NEXT(bytes, used, left, character);
    if (character < 0) return static_cast<std::size_t>(begin);
    i += used;
  }
  return std::string_view::npos;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    all.push_back(text.substr(i, size));
    i += size;
  }
  return all;
}

std::string to_utf8(std::uint32_t code_point) {
  std::string text;
  icu::UnicodeString(static_cast<UChar32>(code_point)).toUTF8String(text);
  return text;
}

std::string normalized(std::string_view text, NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer =
      form == NormalForm::Nfc    ? icu::Normalizer2::getNFCInstance(status)
      : form == NormalForm::Nfkc ? icu::Normalizer2::getNFKCInstance(status)
      : form == NormalForm::Nfd  ? icu::Normalizer2::getNFDInstance(status)
                                 : icu::Normalizer2::getNFKDInstance(status);
  check_icu(status, "normalizer");
  const icu::UnicodeString result = normalizer->normalize(
      icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())}), status);
  check_icu(status, "normalize");
  std::string utf8;
  result.toUTF8String(utf8);
  return utf8;
}

class UnicodeRegex::Implementation {
 public:
  Implementation(const std::string& pattern, const std::string& where)
      : text_(pattern), where_(where) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError place{};
    pattern_.reset(icu::RegexPattern::compile(
        icu::UnicodeString::fromUTF8(with_white_space_property(pattern)), 0, place, status));
    if (U_FAILURE(status))
      throw ConfigError(
          fmt::format("{}: the regular expression '{}' is not understood near its "
                      "character {}: {}",
                      where, printable_line(pattern), place.offset, u_errorName(status)));
  }

  std::vector<std::pair<std::size_t, std::size_t>> matches(std::string_view text) const {
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<UText, decltype(&utext_close)> input(
        utext_openUTF8(nullptr, text.data(), static_cast<std::int64_t>(text.size()), &status),
        utext_close);
    check_icu(status, "open text");
    const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(status));
    check_icu(status, "matcher");
    matcher->reset(input.get());
    // Patterns such as (a+)+$ take a time that doubles with each character.
    constexpr std::int32_t kSteps = 2000;  // ICU's: about a millisecond each
    constexpr std::int64_t kBytesPerStep = 200;
    const auto length = static_cast<std::int64_t>(text.size());
    matcher->setTimeLimit(static_cast<std::int32_t>(kSteps + length / kBytesPerStep), status);
    check_icu(status, "limit time");
    std::vector<std::pair<std::size_t, std::size_t>> found;
    while (matcher->find(status) && U_SUCCESS(status)) {
      const auto begin = static_cast<std::size_t>(matcher->start64(status));
      const auto end = static_cast<std::size_t>(matcher->end64(status));
      if (end > begin) found.emplace_back(begin, end);
    }
    if (U_FAILURE(status))
      throw ConfigError(fmt::format(
          "{}: the regular expression '{}' takes too {} on a text of {} bytes; expected one that "
          "does not try the same characters in many ways",
          where_, printable_line(text_), status == U_REGEX_TIME_OUT ? "long" : "much memory",
          text.size()));
    return found;
  }

 private:
  std::string text_;
  std::string where_;
  std::unique_ptr<icu::RegexPattern> pattern_;
};

UnicodeRegex::UnicodeRegex(const std::string& pattern, const std::string& where)
    : implementation_(std::make_unique<Implementation>(pattern, where)) {}
UnicodeRegex::~UnicodeRegex() = default;
UnicodeRegex::UnicodeRegex(UnicodeRegex&&) noexcept = default;

std::vector<std::pair<std::size_t, std::size_t>> UnicodeRegex::matches(
    std::string_view text) const {
  return implementation_->matches(text);
}

}  // namespace meshplan::runtime
