// Checks that allow no difference at all: messages arrive as they were sent, a sum repeats to the
// bit, and ranks that hold the same hold the same bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::program {

struct Compared;

constexpr std::string_view kMessage = "message";  // ExactCheck::what
constexpr std::string_view kCopies = "copies";

/// One message or copy that is not what it should be.
struct BitDifference {
  std::string name;                 // step, operation, group, call, ranks; or step, tensor, ranks
  double difference = 1;            // relative, of the first element that differs; 1 = not known
  std::vector<std::int64_t> where;  // that element, if one is known
  std::optional<double> value;      // there; none = not a finite number
  std::optional<double> expected;   // as sent, as summed once more, or as the first rank holds it
};

/// Two numbers that are to be the same bits, but are not: a difference of 0, as of zeros of two
/// signs, counts as the least that a file can hold.
BitDifference differing_element(std::string name, std::vector<std::int64_t> where, double value,
                                double expected);

/// All checks of one kind in a run.
struct ExactCheck {
  std::string what;  // kMessage, kCopies
  std::string name;  // "all_gather of tp", "weights"
  std::int64_t checked = 0;
  std::int64_t differ = 0;
  std::vector<BitDifference> first;  // of those that differ, at most kNamedDifferences
};
constexpr std::size_t kNamedDifferences = 8;

/// Adds one more to those that differ, and its description while there are few.
void add_difference(ExactCheck& check, BitDifference difference);

/// Merges checks of the same kind and name into `all`.
void add_checks(std::vector<ExactCheck>& all, const std::vector<ExactCheck>& more);

/// A figure for each kind (the part of what was checked that differs), followed by one for each
/// difference that is described (which counts as `checked` 0). The tolerance is 0.
std::vector<Compared> exact_figures(const std::vector<ExactCheck>& checks);

/// Is it one of exact_figures()?
bool is_exact(const Compared& compared);

/// How many of what a figure has checked differ.
std::int64_t differing(const Compared& compared);

/// What one rank hands to the others.
std::string to_json(const std::vector<ExactCheck>& checks);
/// @throws ConfigError
std::vector<ExactCheck> parse_exact_checks(std::string_view text, const std::string& source);

}  // namespace meshplan::program
