#include "sim/stacks/release.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <limits>

#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace meshplan::sim {
namespace {

constexpr char kBeforeRelease = '@';

/// What stacks are called elsewhere: by targets of exports and rules, and by their users.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherNames{{
    {"mcore", "megatron-core"},
    {"megatron", "megatron-core"},
    {"megatron-bridge", "megatron-core"},
    {"megatron-lm", "megatron-core"},
}};

/// Digits before the first dot or dash: four of a year, two of its last digits.
std::size_t leading_digits(std::string_view text) {
  const auto first = std::ranges::find_if(text, [](unsigned char c) { return std::isdigit(c); });
  const auto last =
      std::find_if_not(first, text.end(), [](unsigned char c) { return std::isdigit(c); });
  return static_cast<std::size_t>(last - first);
}

}  // namespace

std::optional<Release> Release::parse(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  Release release;
  for (;;) {
    const std::size_t end = std::min(text.find_first_of(".-"), text.size());
    const auto number = parse_integer(text.substr(0, end), 0, std::numeric_limits<int>::max());
    if (!number) return std::nullopt;
    release.numbers_.push_back(*number);
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  while (!release.numbers_.empty() && release.numbers_.back() == 0) release.numbers_.pop_back();
  return release;
}

SoftwareRelease parse_software(std::string_view text) {
  const std::size_t name = text.find(kBeforeRelease);
  if (name == std::string_view::npos) return {.name = std::string(text), .release = {}};
  return {.name = std::string(text.substr(0, name)), .release = std::string(text.substr(name + 1))};
}

std::string with_stack_name(std::string_view text) {
  SoftwareRelease software = parse_software(text);
  for (const auto& [other, name] : kOtherNames)
    if (software.name == other) software.name = name;
  return software.name + (software.release ? kBeforeRelease + *software.release : "");
}

void require_known(const SoftwareRelease& software, const Releases& releases) {
  if (!software.release) return;
  const auto fail = [&](const std::string& what) {
    const std::string expected =
        releases.oldest.empty()
            ? fmt::format("'{}' alone", software.name)
            : fmt::format("{} or later, as in '{}{}{}' ({})", releases.oldest, software.name,
                          kBeforeRelease, releases.oldest, releases.named_by);
    throw ConfigError(fmt::format("software '{}{}{}': {}; expected {}", software.name,
                                  kBeforeRelease, *software.release, what, expected));
  };
  if (releases.oldest.empty())
    fail(fmt::format("no release of {} is told from another", software.name));
  const std::optional<Release> release = Release::parse(*software.release);
  if (!release) fail("its release is not numbers joined by dots or dashes");
  const std::size_t scheme = leading_digits(releases.oldest);
  if (scheme > 1 && leading_digits(*software.release) != scheme)
    fail(fmt::format("{} does not number its releases so", software.name));
  if (*release < *Release::parse(releases.oldest))
    fail(fmt::format("nothing is known of a release before {}", releases.oldest));
}

}  // namespace meshplan::sim
