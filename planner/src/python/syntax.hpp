// Python's text as statements and expressions, as far as configurations use it. Nothing is run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "python/value.hpp"

namespace meshplan::planner::python {

/// Deepest nesting of expressions and of blocks that is read; what nests deeper is not understood.
constexpr int kDeepestNode = 200;
constexpr int kDeepestBlock = 24;

enum class NodeKind {
  Literal,
  Name,           // text
  Attribute,      // items[0] . text
  Subscript,      // items[0] [ items[1] ]
  Slice,          // items: begin, end, step; null where left out
  Call,           // items[0] ( arguments )
  Negate,         // - items[0]
  Not,            // not items[0]
  Binary,         // items[0] text items[1]
  Compare,        // items[0] text items[1]
  And,            // of all items
  Or,             // of all items
  Conditional,    // items[0] if items[1] else items[2]
  List,           // also tuples; of "*" items are unpacked
  Dict,           // items: keys, null for "**"; arguments: values
  Lambda,         // without parameters: items[0]
  Comprehension,  // items[0], of a dict with items[1], for each of the clauses
  Unknown,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;

struct Argument {
  std::string name;  // of a keyword; "*" and "**" unpack; else ""
  NodePtr value;
};

/// for TARGET in ITERABLE if CONDITION ...
struct Clause {
  NodePtr target;
  NodePtr iterable;
  std::vector<NodePtr> conditions;
};

struct Node {
  NodeKind kind = NodeKind::Unknown;
  std::string text;
  Value literal;
  std::vector<NodePtr> items;
  std::vector<Argument> arguments;
  std::vector<Clause> clauses;
  std::string_view source;
  int line = 0;
  int depth = 1;  // of the nodes below it
};

/// "a.b.c" of names and attributes alone; "" of anything else.
std::string dotted_text(const Node& node);

enum class StatementKind {
  Expression,
  Assign,  // targets = value, or += and the like (text)
  Return,
  If,          // value; body, otherwise
  For,         // targets[0] in value; body
  Definition,  // text: name
  Class,       // text: name; targets: bases
  Import,
  Raise,
  Break,
  Continue,
  Ignored,  // pass, assert, docstrings, ...
  Try,      // body; what follows "except" in otherwise, text "except" if there is one
  Finally,  // body
  Unknown,  // while, with and what is not understood; body
};

struct Parameter {
  std::string name;
  NodePtr initial;  // null: none
  char kind = ' ';  // '*': the other positional ones, '2': the other keyword ones
  bool keyword_only = false;
};

/// from MODULE import NAME as BOUND; without a name: import MODULE as BOUND
struct ImportedName {
  std::string module;  // with its leading dots
  std::string name;
  std::string bound;
};

struct Statement {
  StatementKind kind = StatementKind::Ignored;
  std::string_view source;  // of its first line
  int line = 0;
  std::string text;
  std::vector<NodePtr> targets;
  NodePtr value;
  std::vector<Statement> body;
  std::vector<Statement> otherwise;
  std::vector<Parameter> parameters;
  std::vector<ImportedName> imports;
  bool is_plain = true;  // of a Definition: no decorator, no generator
};
using Block = std::vector<Statement>;

/// @param text  outlives the result, which has views of it
/// @throws ConfigError "FILE:LINE: ..." for what is no Python
Block parse_python(std::string_view text, const std::string& file);

}  // namespace meshplan::planner::python
