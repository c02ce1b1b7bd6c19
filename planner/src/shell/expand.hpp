// Quotes, parameters and arithmetic of a shell word.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/value.hpp"

namespace meshplan::planner::shell {

/// What stands behind a script's or a function's name; absent where the caller left it out.
struct Arguments {
  static constexpr std::size_t kMost = 4096;

  std::string name;  // $0
  std::vector<std::optional<Variable>> given;
  std::size_t shifted = 0;   // so many of them are behind the script
  bool of_function = false;  // what is not given is empty, not unknown

  /// Those that are left, up to the first that was not given.
  std::size_t count() const;
};

/// Expands words as a shell does, but for commands, files and what their output would be.
class Expander {
 public:
  Expander(Variables& variables, Budget& budget) : variables_(variables), budget_(budget) {}

  /// The fields that a word becomes: none for an empty array, several for one with items and for
  /// blanks in what stands outside quotes.
  std::vector<Value> fields(std::string_view word);
  /// The same as one text, as in an assignment or a test.
  Value text(std::string_view word);

  /// Text that stands as in double quotes, but for these: a here-document.
  Value here_document(std::string_view text);

  /// Null where the variable is not set.
  const Variable* find(std::string_view name) const;
  /// @throws ConfigError, UnknownOperand
  std::int64_t arithmetic(std::string_view expression);

  Arguments arguments;
  int last_argument = 0;  // the highest number of the script's that was asked for
  /// What the caller could set to make known what was expanded since the last call.
  std::set<std::string> needs_met() { return std::exchange(needs_met_, {}); }
  /// What texts that need `needs` are compared with: candidates for what the caller sets.
  std::map<std::string, std::vector<std::string>> choices;
  void note_choice(const Value& value, const std::string& choice);

  /// While it lives, what is not set counts as empty: tests ask whether it is.
  class EmptyIfUnset {
   public:
    explicit EmptyIfUnset(Expander& expander) : expander_(expander) {
      expander_.empty_if_unset_ = true;
    }
    EmptyIfUnset(const EmptyIfUnset&) = delete;
    EmptyIfUnset& operator=(const EmptyIfUnset&) = delete;
    ~EmptyIfUnset() { expander_.empty_if_unset_ = false; }

   private:
    Expander& expander_;
  };
  /// The variables that counted as empty since the last call.
  std::vector<std::string> taken_as_empty() { return std::exchange(taken_as_empty_, {}); }

 private:
  struct Sink;

  void expand(std::string_view word, Sink& sink, bool in_quotes);
  void parameter(std::string_view name, std::string_view written, Sink& sink, bool quoted);
  void braces(std::string_view inner, Sink& sink, bool quoted);
  void items(const Variable& variable, bool joined, Sink& sink, bool quoted);
  void unset(const std::string& name, const std::string& written, Sink& sink, bool quoted);
  /// $(...) and $((...))
  void substitution(std::string_view text, Sink& sink, bool quoted);
  void index(std::string_view name, std::string_view subscript, std::string_view rest,
             std::string_view written, Sink& sink, bool quoted);
  void modified(std::string_view name, std::string_view rest, std::string_view written, Sink& sink,
                bool quoted);
  void length(std::string_view inner, std::string_view written, Sink& sink);
  /// $1, $#, $@ and their like. @returns false for what is no such name
  bool special(std::string_view name, std::string_view written, Sink& sink, bool quoted);
  void ask_for_argument(std::string_view name);
  void all_arguments(bool joined, Sink& sink, bool quoted);
  Value unknown_parameter(std::string_view name, std::string_view written) const;

  Variables& variables_;
  Budget& budget_;
  bool empty_if_unset_ = false;
  std::vector<std::string> taken_as_empty_;
  std::set<std::string> needs_met_;
};

}  // namespace meshplan::planner::shell
