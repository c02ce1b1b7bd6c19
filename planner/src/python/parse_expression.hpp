// Expressions out of the tokens of a line.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "python/syntax.hpp"
#include "python/tokens.hpp"

namespace meshplan::planner::python {

/// Tokens of a line, read from left to right.
class Expressions {
 public:
  Expressions(const std::vector<Token>& tokens, const LogicalLine& line)
      : tokens_(tokens), line_(line) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(place_ + ahead, tokens_.size() - 1)];
  }
  bool at_symbol(std::string_view symbol) const {
    return peek().kind == TokenKind::Symbol && peek().text == symbol;
  }
  bool at_word(std::string_view word) const {
    return peek().kind == TokenKind::Name && peek().text == word;
  }
  bool at_end() const { return peek().kind == TokenKind::End; }
  void step() { place_ = std::min(place_ + 1, tokens_.size() - 1); }
  bool take(std::string_view symbol);

  /// An expression up to the next ',', '=', ':', ';' or closing bracket of its level; what is not
  /// understood is a node of its own.
  NodePtr value();
  /// Several with commas between them: a List.
  NodePtr values();
  /// The target of a loop, up to its "in"; null where it is not understood.
  NodePtr loop_target();

 private:
  struct NotUnderstood {};
  class Nesting;

  NodePtr target();
  NodePtr conditional();
  NodePtr disjunction();
  NodePtr conjunction();
  NodePtr negation();
  NodePtr comparison();
  NodePtr sum();
  NodePtr product();
  NodePtr power();
  NodePtr unary();
  NodePtr primary();
  NodePtr atom();
  NodePtr number();
  NodePtr string();
  NodePtr call(NodePtr callee);
  NodePtr subscript(NodePtr of);
  NodePtr list(std::string_view closing);
  NodePtr dict();
  NodePtr comprehension(std::vector<NodePtr> elements);
  std::string comparison_word();
  NodePtr made(NodeKind kind, std::string text, std::vector<NodePtr> items) const;
  NodePtr finished(NodePtr node, std::size_t begin);
  bool ends_here() const;
  void skip_rest();

  const std::vector<Token>& tokens_;
  const LogicalLine& line_;
  std::size_t place_ = 0;
  int nesting_ = 0;
};

}  // namespace meshplan::planner::python
