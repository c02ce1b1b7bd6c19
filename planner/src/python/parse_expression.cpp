#include "python/parse_expression.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace meshplan::planner::python {
namespace {

constexpr std::array<std::string_view, 10> kTerminators = {",", "=", ":",  ";",  ")",
                                                           "]", "}", "+=", "-=", "*="};
constexpr std::array<std::string_view, 3> kClauseWords = {"for", "if", "else"};

std::vector<NodePtr> items_of(NodePtr first, NodePtr second = nullptr, NodePtr third = nullptr) {
  std::vector<NodePtr> items;
  items.push_back(std::move(first));
  if (second) items.push_back(std::move(second));
  if (third) items.push_back(std::move(third));
  return items;
}

}  // namespace

/// Bounds how deep the parser calls itself.
class Expressions::Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) {
    if (depth_ >= kDeepestNode) throw NotUnderstood();
    ++depth_;
  }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  Nesting(Nesting&&) = delete;
  Nesting& operator=(Nesting&&) = delete;

 private:
  int& depth_;
};

std::string dotted_text(const Node& node) {
  if (node.kind == NodeKind::Name) return node.text;
  if (node.kind != NodeKind::Attribute) return "";
  const std::string base = dotted_text(*node.items[0]);
  return base.empty() ? "" : base + "." + node.text;
}

bool Expressions::take(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  step();
  return true;
}

bool Expressions::ends_here() const {
  const Token& token = peek();
  if (token.kind == TokenKind::Name)
    return std::ranges::find(kClauseWords, token.text) != kClauseWords.end() || token.text == "in";
  return token.kind == TokenKind::End ||
         (token.kind == TokenKind::Symbol &&
          std::ranges::find(kTerminators, token.text) != kTerminators.end());
}

void Expressions::skip_rest() {
  int depth = 0;
  while (!at_end()) {
    const bool closes = at_symbol(")") || at_symbol("]") || at_symbol("}");
    if (depth == 0 &&
        (closes || at_symbol(",") || at_symbol("=") || at_symbol(":") || at_symbol(";")))
      return;
    if (at_symbol("(") || at_symbol("[") || at_symbol("{")) ++depth;
    if (closes) --depth;
    step();
  }
}

NodePtr Expressions::finished(NodePtr node, std::size_t begin) {
  const std::size_t first = tokens_[begin].begin;
  const std::size_t last = place_ > begin ? tokens_[place_ - 1].end : first;
  node->source = line_.text.substr(first, last - first);
  node->line = line_.line;
  return node;
}

/// @throws NotUnderstood where it nests too deep, as a long sum of sums does
NodePtr Expressions::made(NodeKind kind, std::string text, std::vector<NodePtr> items) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->text = std::move(text);
  node->line = line_.line;
  for (const NodePtr& item : items)
    if (item) node->depth = std::max(node->depth, item->depth + 1);
  node->items = std::move(items);
  if (node->depth > kDeepestNode) throw NotUnderstood();
  return node;
}

NodePtr Expressions::value() {
  const std::size_t begin = place_;
  try {
    const Nesting nesting(nesting_);
    NodePtr result = conditional();
    if (ends_here()) return finished(std::move(result), begin);
  } catch (const NotUnderstood&) {  // told by its text instead
  }
  place_ = begin;
  if (at_word("lambda")) {
    while (!at_end() && !at_symbol(":")) step();  // its parameters have commas of their own
    step();
  }
  skip_rest();
  return finished(std::make_unique<Node>(), begin);
}

NodePtr Expressions::values() {
  const std::size_t begin = place_;
  NodePtr first = value();
  if (!at_symbol(",")) return first;
  auto list = std::make_unique<Node>();
  list->kind = NodeKind::List;
  list->depth = first->depth + 1;
  list->items.push_back(std::move(first));
  while (take(",")) {
    if (ends_here()) break;
    list->items.push_back(value());
    list->depth = std::max(list->depth, list->items.back()->depth + 1);
  }
  return finished(std::move(list), begin);
}

NodePtr Expressions::loop_target() {
  try {
    return target();
  } catch (const NotUnderstood&) {
    return nullptr;
  }
}

/// Names and attributes, several with commas.
NodePtr Expressions::target() {
  const std::size_t begin = place_;
  NodePtr first = primary();
  if (!at_symbol(",")) return finished(std::move(first), begin);
  NodePtr list = made(NodeKind::List, "", items_of(std::move(first)));
  while (take(",")) {
    if (at_word("in")) break;
    list->items.push_back(primary());
  }
  return finished(std::move(list), begin);
}

NodePtr Expressions::conditional() {
  const std::size_t begin = place_;
  if (at_word("lambda") && peek(1).kind == TokenKind::Symbol && peek(1).text == ":") {
    step();
    step();
    const Nesting nesting(nesting_);
    return finished(made(NodeKind::Lambda, "", items_of(conditional())), begin);
  }
  NodePtr result = disjunction();
  if (!at_word("if")) return result;
  const std::size_t condition = place_;
  step();
  NodePtr test = disjunction();
  if (!at_word("else")) {  // the condition of a comprehension
    place_ = condition;
    return result;
  }
  step();
  const Nesting nesting(nesting_);
  NodePtr otherwise = conditional();
  return finished(made(NodeKind::Conditional, "",
                       items_of(std::move(result), std::move(test), std::move(otherwise))),
                  begin);
}

NodePtr Expressions::disjunction() {
  const std::size_t begin = place_;
  NodePtr left = conjunction();
  if (!at_word("or")) return left;
  NodePtr result = made(NodeKind::Or, "", items_of(std::move(left)));
  while (at_word("or")) {
    step();
    result->items.push_back(conjunction());
    result->depth = std::max(result->depth, result->items.back()->depth + 1);
  }
  return finished(std::move(result), begin);
}

NodePtr Expressions::conjunction() {
  const std::size_t begin = place_;
  NodePtr left = negation();
  if (!at_word("and")) return left;
  NodePtr result = made(NodeKind::And, "", items_of(std::move(left)));
  while (at_word("and")) {
    step();
    result->items.push_back(negation());
    result->depth = std::max(result->depth, result->items.back()->depth + 1);
  }
  return finished(std::move(result), begin);
}

NodePtr Expressions::negation() {
  const std::size_t begin = place_;
  bool negative = false;
  bool any = false;
  for (; at_word("not"); step()) {
    negative = !negative;
    any = true;
  }
  NodePtr result = comparison();
  if (!any) return result;
  if (!negative)  // not not x
    result = made(NodeKind::Not, "", items_of(std::move(result)));
  return finished(made(NodeKind::Not, "", items_of(std::move(result))), begin);
}

/// The word of a comparison, taken; "" if there is none.
std::string Expressions::comparison_word() {
  constexpr std::array<std::string_view, 6> kSymbols = {"==", "!=", "<=", ">=", "<", ">"};
  for (const std::string_view symbol : kSymbols)
    if (take(symbol)) return std::string(symbol);
  if (at_word("not") && peek(1).kind == TokenKind::Name && peek(1).text == "in") {
    step();
    step();
    return "not in";
  }
  if (at_word("in")) {
    step();
    return "in";
  }
  if (!at_word("is")) return "";
  step();
  if (!at_word("not")) return "is";
  step();
  return "is not";
}

NodePtr Expressions::comparison() {
  const std::size_t begin = place_;
  NodePtr left = sum();
  const std::string word = comparison_word();
  if (word.empty()) return left;
  NodePtr right = sum();
  const std::size_t end = place_;
  if (!comparison_word().empty()) throw NotUnderstood();  // a < b < c
  place_ = end;
  return finished(made(NodeKind::Compare, word, items_of(std::move(left), std::move(right))),
                  begin);
}

NodePtr Expressions::sum() {
  const std::size_t begin = place_;
  NodePtr left = product();
  while (at_symbol("+") || at_symbol("-") || at_symbol("|")) {
    std::string symbol = peek().text;
    step();
    left = finished(made(NodeKind::Binary, std::move(symbol), items_of(std::move(left), product())),
                    begin);
  }
  return left;
}

NodePtr Expressions::product() {
  const std::size_t begin = place_;
  NodePtr left = unary();
  while (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("%")) {
    std::string symbol = peek().text;
    step();
    left = finished(made(NodeKind::Binary, std::move(symbol), items_of(std::move(left), unary())),
                    begin);
  }
  return left;
}

NodePtr Expressions::unary() {
  const std::size_t begin = place_;
  bool negative = false;
  bool any = false;
  for (; at_symbol("-") || at_symbol("+"); step()) {
    negative = negative != at_symbol("-");
    any = true;
  }
  NodePtr result = power();
  if (!any) return result;
  if (!negative) result = made(NodeKind::Negate, "", items_of(std::move(result)));
  return finished(made(NodeKind::Negate, "", items_of(std::move(result))), begin);
}

NodePtr Expressions::power() {
  const std::size_t begin = place_;
  NodePtr base = primary();
  if (!take("**")) return base;
  const Nesting nesting(nesting_);
  return finished(made(NodeKind::Binary, "**", items_of(std::move(base), unary())), begin);
}

NodePtr Expressions::primary() {
  const std::size_t begin = place_;
  const Nesting nesting(nesting_);
  NodePtr result = finished(atom(), begin);
  while (true) {
    if (at_symbol(".") && peek(1).kind == TokenKind::Name) {
      step();
      result = made(NodeKind::Attribute, peek().text, items_of(std::move(result)));
      step();
    } else if (at_symbol("(")) {
      result = call(std::move(result));
    } else if (at_symbol("[")) {
      result = subscript(std::move(result));
    } else {
      return result;
    }
    result = finished(std::move(result), begin);
  }
}

NodePtr Expressions::atom() {
  constexpr std::array<std::string_view, 7> kReserved = {"lambda", "await", "yield", "if",
                                                         "else",   "for",   "in"};
  const Token& token = peek();
  if (token.kind == TokenKind::Number) return number();
  if (token.kind == TokenKind::String) return string();
  if (at_symbol("(")) return list(")");
  if (at_symbol("[")) return list("]");
  if (at_symbol("{")) return dict();
  if (token.kind != TokenKind::Name || std::ranges::find(kReserved, token.text) != kReserved.end())
    throw NotUnderstood();
  NodePtr result = made(NodeKind::Name, token.text, {});
  if (token.text == "True" || token.text == "False" || token.text == "None") {
    result->kind = NodeKind::Literal;
    result->literal = token.text == "None" ? none() : boolean(token.text == "True");
  }
  step();
  return result;
}

NodePtr Expressions::number() {
  NodePtr result = made(NodeKind::Literal, "", {});
  const std::string& digits = peek().text;
  const char* const begin = digits.data();
  const char* const end = begin + digits.size();
  std::int64_t integer = 0;
  double fraction = 0;
  if (const auto read = std::from_chars(begin, end, integer);
      read.ec == std::errc() && read.ptr == end) {
    result->literal = whole(integer);
  } else {
    const auto other = std::from_chars(begin, end, fraction);
    if (other.ec != std::errc() || other.ptr != end || !std::isfinite(fraction))
      throw NotUnderstood();
    result->literal = real(fraction);
  }
  step();
  return result;
}

NodePtr Expressions::string() {
  NodePtr result = made(NodeKind::Literal, "", {});
  std::string joined;
  bool is_literal = true;
  for (; peek().kind == TokenKind::String; step()) {
    is_literal = is_literal && peek().is_literal;
    joined += peek().text;
  }
  if (!is_literal) result->kind = NodeKind::Unknown;
  result->literal = python::text(std::move(joined));
  return result;
}

NodePtr Expressions::call(NodePtr callee) {
  NodePtr result = made(NodeKind::Call, "", items_of(std::move(callee)));
  step();
  while (!at_symbol(")")) {
    if (at_end()) throw NotUnderstood();
    Argument argument;
    if (at_symbol("**") || at_symbol("*")) {
      argument.name = peek().text;
      step();
    } else if (peek().kind == TokenKind::Name && peek(1).kind == TokenKind::Symbol &&
               peek(1).text == "=") {
      argument.name = peek().text;
      step();
      step();
    }
    argument.value = value();
    if (at_word("for")) {
      std::vector<NodePtr> element;
      element.push_back(std::move(argument.value));
      argument.value = comprehension(std::move(element));
    }
    result->depth = std::max(result->depth, argument.value->depth + 1);
    result->arguments.push_back(std::move(argument));
    if (!take(",") && !at_symbol(")")) throw NotUnderstood();
  }
  step();
  if (result->depth > kDeepestNode) throw NotUnderstood();
  return result;
}

NodePtr Expressions::subscript(NodePtr of) {
  step();
  const std::size_t begin = place_;
  NodePtr index;
  if (!at_symbol(":")) index = values();
  if (at_symbol(":")) {
    NodePtr slice = made(NodeKind::Slice, "", {});
    slice->items.push_back(std::move(index));
    while (take(":")) {
      const bool empty = at_symbol(":") || at_symbol("]");
      slice->items.push_back(empty ? nullptr : value());
    }
    if (slice->items.size() > 3) throw NotUnderstood();
    for (const NodePtr& item : slice->items)
      if (item) slice->depth = std::max(slice->depth, item->depth + 1);
    index = finished(std::move(slice), begin);
  }
  if (!take("]")) throw NotUnderstood();
  return made(NodeKind::Subscript, "", items_of(std::move(of), std::move(index)));
}

NodePtr Expressions::list(std::string_view closing) {
  step();
  NodePtr result = made(NodeKind::List, "", {});
  bool comma = closing == "]";
  while (!at_symbol(closing)) {
    if (at_end()) throw NotUnderstood();
    Argument star;
    if (take("*")) star.name = "*";
    NodePtr item = value();
    if (at_word("for") && result->items.empty()) {
      std::vector<NodePtr> element;
      element.push_back(std::move(item));
      NodePtr made_list = comprehension(std::move(element));
      if (!take(closing)) throw NotUnderstood();
      return made_list;
    }
    if (!star.name.empty()) item = made(NodeKind::List, "*", items_of(std::move(item)));
    result->depth = std::max(result->depth, item->depth + 1);
    result->items.push_back(std::move(item));
    if (at_symbol(",")) {
      comma = true;
      step();
    } else if (!at_symbol(closing)) {
      throw NotUnderstood();
    }
  }
  step();
  if (result->depth > kDeepestNode) throw NotUnderstood();
  // (1) is a number, (1,) and () are lists.
  if (comma || result->items.empty()) return result;
  return std::move(result->items[0]);
}

NodePtr Expressions::dict() {
  step();
  NodePtr result = made(NodeKind::Dict, "", {});
  while (!at_symbol("}")) {
    if (at_end()) throw NotUnderstood();
    if (take("**")) {
      result->items.push_back(nullptr);
    } else {
      result->items.push_back(value());
      if (!take(":")) throw NotUnderstood();  // a set
    }
    result->arguments.push_back({.name = "", .value = value()});
    if (at_word("for") && result->items.size() == 1 && result->items[0]) {
      std::vector<NodePtr> pair;
      pair.push_back(std::move(result->items[0]));
      pair.push_back(std::move(result->arguments[0].value));
      NodePtr made_dict = comprehension(std::move(pair));
      if (!take("}")) throw NotUnderstood();
      return made_dict;
    }
    for (const NodePtr* part : {&result->items.back(), &result->arguments.back().value})
      if (*part) result->depth = std::max(result->depth, (*part)->depth + 1);
    if (!take(",") && !at_symbol("}")) throw NotUnderstood();
  }
  step();
  if (result->depth > kDeepestNode) throw NotUnderstood();
  return result;
}

NodePtr Expressions::comprehension(std::vector<NodePtr> elements) {
  NodePtr result = made(NodeKind::Comprehension, "", std::move(elements));
  while (at_word("for")) {
    step();
    Clause clause;
    clause.target = target();
    if (!at_word("in")) throw NotUnderstood();
    step();
    const std::size_t begin = place_;
    clause.iterable = finished(disjunction(), begin);
    while (at_word("if")) {
      step();
      const std::size_t condition = place_;
      clause.conditions.push_back(finished(disjunction(), condition));
    }
    for (const NodePtr* part : {&clause.target, &clause.iterable})
      result->depth = std::max(result->depth, (*part)->depth + 1);
    for (const NodePtr& part : clause.conditions)
      result->depth = std::max(result->depth, part->depth + 1);
    result->clauses.push_back(std::move(clause));
  }
  if (result->clauses.size() > 3 || result->depth > kDeepestNode) throw NotUnderstood();
  return result;
}

}  // namespace meshplan::planner::python
