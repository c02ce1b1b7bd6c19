// The value of a Python expression as far as it can be told without running anything: literals,
// arithmetic of numbers, names of values that are known, and calls as trees of their arguments.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fields.hpp"
#include "python/tokens.hpp"

namespace meshplan::planner::python {

/// A call is an object of its keyword arguments, with its name under kCall and the positional
/// arguments in a list under kArguments.
inline constexpr const char* kCall = "$call";
inline constexpr const char* kArguments = "$arguments";
/// What is not understood is an object that holds its text.
inline constexpr const char* kSource = "$source";
/// Arguments that were unpacked (**name): their text.
inline constexpr const char* kUnpacked = "$unpacked";

bool is_call(const Json& value);
bool is_unknown(const Json& value);
/// The name of a call, "" of anything else.
std::string call_name(const Json& value);

/// The value of a dotted name, if there is one.
using Lookup = std::function<std::optional<Json>(const std::vector<std::string>& path)>;

/// Tokens of a line, read from left to right.
class Expressions {
 public:
  Expressions(const std::vector<Token>& tokens, std::string_view text, const Lookup& lookup)
      : tokens_(tokens), text_(text), lookup_(lookup) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(place_ + ahead, tokens_.size() - 1)];
  }
  bool at_symbol(std::string_view symbol) const {
    return peek().kind == TokenKind::Symbol && peek().text == symbol;
  }
  bool at_end() const { return peek().kind == TokenKind::End; }
  void step() { place_ = std::min(place_ + 1, tokens_.size() - 1); }

  /// "a.b.c": its names; empty where none begins here.
  std::vector<std::string> dotted_name();

  /// The value of an expression up to the next ',', '=', ':', ';' or closing bracket of its level.
  Json value();

 private:
  struct NotUnderstood {};

  Json sum();
  Json product();
  Json power();
  Json unary();
  Json primary();
  Json number();
  Json string();
  Json name();
  Json call(const std::string& callee);
  Json list(std::string_view closing);
  Json dict();
  bool ends_here() const;
  void skip_rest();

  const std::vector<Token>& tokens_;
  std::string_view text_;
  const Lookup& lookup_;
  std::size_t place_ = 0;
};

}  // namespace meshplan::planner::python
