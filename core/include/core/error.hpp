#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan {

/// The user's input is wrong. The message names the place, the value, the rule and a fix.
class ConfigError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing in the search space is possible: exit code 3.
class InfeasibleError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The world failed us: a file, a host, a peer. The message says what was attempted.
class IoError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Our own bug; never reachable from input.
class InvariantError : public std::logic_error {
 public:
  explicit InvariantError(const std::string& what, const char* file = __builtin_FILE(),
                          int line = __builtin_LINE());
};

/// Throws InvariantError with the caller's place unless `condition` holds.
void require_invariant(bool condition, std::string_view what, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());

/// The choice with the smallest edit distance to `given`; empty if there is none.
std::string nearest_choice(std::string_view given, std::span<const std::string> choices);

/// "unknown KIND 'GIVEN'; did you mean 'X'? known: a, b, c" (all choices are listed, sorted).
std::string unknown_name_message(std::string_view kind, std::string_view given,
                                 std::vector<std::string> choices);

/// The divisor of `number` that lies nearest to `wanted`; ties go to the smaller.
int nearest_divisor(int number, int wanted);

}  // namespace meshplan
