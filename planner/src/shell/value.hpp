// What a shell script's words come to without running it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace meshplan::planner::shell {

/// A part of a text that nobody can know without running the script.
struct Unknown {
  std::string written;  // as it stands in the text: "${DIR}"
  std::string why;      // "DIR is not set", "$(hostname) is a command's output"
  /// What the caller could set to decide it: variables, and arguments by their number ("2").
  std::set<std::string> needs = {};
  std::set<std::string> flags = {};  // "--bf16": what it may hold; "--": more than are listed
  bool operator==(const Unknown&) const = default;
};

constexpr std::size_t kMostNeeds = 64;  // of one unknown part; more are not named

inline void add_needs(std::set<std::string>& needs, const std::set<std::string>& more) {
  for (const std::string& each : more)
    if (needs.size() < kMostNeeds) needs.insert(each);
}

/// The text of a word. What cannot be known stands in it as written, as in "${DIR}/logs".
struct Value {
  static constexpr std::size_t kMostUnknown = 64;  // named; more are unknown without a name

  std::string text;
  std::vector<Unknown> unknown;

  bool known() const { return unknown.empty(); }
  Value& operator+=(const Value& more) {
    text += more.text;
    for (const Unknown& each : more.unknown) name(each);
    return *this;
  }
  void name(const Unknown& each) {
    if (unknown.size() < kMostUnknown && std::ranges::find(unknown, each) == unknown.end())
      unknown.push_back(each);
  }
  bool operator==(const Value&) const = default;
};

/// A piece of a value's text, with the unknown parts that stand in it.
Value part_of(const Value& whole, std::string text);

/// A scalar has one item.
struct Variable {
  bool is_array = false;
  std::vector<Value> items;
};
using Variables = std::map<std::string, Variable, std::less<>>;

/// Bounds what a script may make of itself: doubling variables, arrays of arrays, endless calls.
class Budget {
 public:
  static constexpr std::size_t kText = std::size_t{1} << 21;  // bytes of all expansions
  static constexpr std::size_t kSteps = std::size_t{1} << 20;
  static constexpr int kDepth = 64;  // of expansions, calls and sourced files inside each other

  /// @throws ConfigError
  void take_text(std::size_t bytes) {
    text_ += bytes + 16;  // an empty word takes memory, too
    if (text_ > kText) throw ConfigError("its variables grow beyond 2 MiB of text");
  }
  void take_step() {
    if (++steps_ > kSteps) throw ConfigError("it takes more than 2^20 steps to read");
  }
  void enter() {
    if (++depth_ > kDepth)
      throw ConfigError("its expansions, calls or files nest deeper than 64 levels");
  }
  void leave() { --depth_; }

 private:
  std::size_t text_ = 0;
  std::size_t steps_ = 0;
  int depth_ = 0;
};

/// One level deeper while it lives.
class Level {
 public:
  explicit Level(Budget& budget) : budget_(budget) { budget.enter(); }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { budget_.leave(); }

 private:
  Budget& budget_;
};

/// The name that `text` begins with, letters, digits and '_'; empty if it begins with none.
std::string_view leading_name(std::string_view text);

}  // namespace meshplan::planner::shell
