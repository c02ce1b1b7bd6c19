// Quotes, parameters and arithmetic of a shell word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/value.hpp"

namespace meshplan::planner::shell {

/// Expands words as a shell does, but for commands, files and what their output would be.
class Expander {
 public:
  Expander(Variables& variables, Budget& budget) : variables_(variables), budget_(budget) {}

  /// The fields that a word becomes: none for an empty array, several for one with items and for
  /// blanks in what stands outside quotes.
  std::vector<Value> fields(std::string_view word);
  /// The same as one text, as in an assignment or a test.
  Value text(std::string_view word);

  /// Null where the variable is not set.
  const Variable* find(std::string_view name) const;
  /// @throws ConfigError, UnknownOperand
  std::int64_t arithmetic(std::string_view expression);

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

  Variables& variables_;
  Budget& budget_;
  bool empty_if_unset_ = false;
  std::vector<std::string> taken_as_empty_;
};

}  // namespace meshplan::planner::shell
