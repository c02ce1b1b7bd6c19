#include <algorithm>
#include <array>

#include "python/parse_expression.hpp"
#include "python/syntax.hpp"
#include "python/tokens.hpp"

namespace meshplan::planner::python {
namespace {

constexpr std::array<std::string_view, 7> kIgnored = {"pass", "assert",    "global", "nonlocal",
                                                      "del",  "__slots__", "..."};
constexpr std::array<std::string_view, 6> kOtherBlocks = {"while", "with",    "try",
                                                          "async", "finally", "except"};
constexpr std::array<std::string_view, 3> kBranches = {"else", "elif", "except"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

class BlockParser {
 public:
  BlockParser(std::string_view text, const std::string& file)
      : file_(file), lines_(logical_lines(text, file)) {}

  Block run() { return block(-1, 0); }

 private:
  /// Statements that are indented deeper than `outer`, at the indent of the first of them.
  Block block(int outer, int depth) {
    Block result;
    if (next_ >= lines_.size() || lines_[next_].indent <= outer) return result;
    const int indent = lines_[next_].indent;
    bool decorated = false;
    while (next_ < lines_.size() && lines_[next_].indent > outer) {
      const LogicalLine& line = lines_[next_++];
      if (depth > kDeepestBlock || line.indent != indent) {  // no Python, or too deep to follow
        Statement statement{.kind = StatementKind::Unknown, .source = line.text, .line = line.line};
        result.push_back(std::move(statement));
        continue;
      }
      const std::vector<Token> tokens = tokens_of(line, file_);
      if (tokens[0].kind == TokenKind::Symbol && tokens[0].text == "@") {
        decorated = tokens[1].text != "dataclass" && tokens[1].text != "dataclasses";
        continue;
      }
      Statement next = statement(line, tokens, depth);
      next.is_plain = next.is_plain && !decorated;
      decorated = false;
      if (is_among(kBranches, tokens[0].text))
        join_branch(result, std::move(next), tokens[0].text == "except");
      else
        result.push_back(std::move(next));
    }
    return result;
  }

  /// elif, else and except belong to the if or try before them.
  static void join_branch(Block& before, Statement branch, bool handles) {
    Statement* open = before.empty() ? nullptr : &before.back();
    if (open != nullptr && open->kind == StatementKind::Try) {
      if (!handles) {
        std::ranges::move(branch.body, std::back_inserter(open->body));
      } else if (open->text.empty()) {  // of several handlers the first is followed
        open->text = "except";
        open->otherwise = std::move(branch.body);
      }
      return;
    }
    if (open == nullptr ||
        (open->kind != StatementKind::If && open->kind != StatementKind::Unknown)) {
      branch.kind = StatementKind::Unknown;  // the else of a loop
      before.push_back(std::move(branch));
      return;
    }
    int depth = 0;
    while (open->kind == StatementKind::If && open->otherwise.size() == 1 &&
           open->otherwise[0].kind == StatementKind::If && open->otherwise[0].text == "elif" &&
           ++depth < kDeepestNode)
      open = open->otherwise.data();
    if (open->kind == StatementKind::Unknown) {
      std::ranges::move(branch.body, std::back_inserter(open->body));
    } else if (branch.kind == StatementKind::If) {
      open->otherwise.clear();
      open->otherwise.push_back(std::move(branch));
    } else {
      open->otherwise = std::move(branch.body);
    }
  }

  Statement statement(const LogicalLine& line, const std::vector<Token>& tokens, int depth) {
    Statement result{.source = first_row(line.text), .line = line.line};
    Expressions in(tokens, line);
    const std::string& word = tokens[0].text;
    if (tokens[0].kind == TokenKind::String && tokens[1].kind == TokenKind::End) return result;
    if (tokens[0].kind == TokenKind::Symbol && word == "...") return result;
    if (tokens[0].kind == TokenKind::Name) {
      if (word == "def" || word == "class" || word == "if" || word == "elif" || word == "else" ||
          word == "for" || is_among(kOtherBlocks, word) || opens_block(tokens)) {
        header(result, in, line, depth);
        return result;
      }
      if (is_among(kIgnored, word)) return result;
      if (word == "from" || word == "import") {
        result.kind = StatementKind::Import;
        imports(result, tokens);
        return result;
      }
    }
    simple(result, in);
    return result;
  }

  static bool opens_block(const std::vector<Token>& tokens) {
    const Token& last = tokens[tokens.size() - 2];
    return last.kind == TokenKind::Symbol && last.text == ":";
  }

  static std::string_view first_row(std::string_view text) {
    return text.substr(0, text.find('\n'));
  }

  void header(Statement& result, Expressions& in, const LogicalLine& line, int depth) {
    const std::string word = in.peek().text;
    in.step();
    bool understood = true;
    if (word == "def") {
      understood = definition(result, in);
    } else if (word == "class") {
      understood = class_header(result, in);
    } else if (word == "if" || word == "elif") {
      result.kind = StatementKind::If;
      result.text = word;
      result.value = in.value();
      understood = in.take(":");
    } else if (word == "for") {
      understood = loop_header(result, in);
    } else if (word == "else") {
      understood = in.take(":");
    } else if (word == "try" || word == "finally") {
      result.kind = word == "try" ? StatementKind::Try : StatementKind::Finally;
      understood = in.take(":");
    } else if (word == "except") {
      while (!in.at_end() && !in.at_symbol(":")) in.step();
      understood = in.take(":");
    } else {
      result.kind = StatementKind::Unknown;
      while (!in.at_end()) in.step();
    }
    if (!understood) {
      result.kind = StatementKind::Unknown;
      while (!in.at_end()) in.step();
    }
    if (!in.at_end()) {  // if x: return y
      Statement inside{.source = first_row(line.text), .line = line.line};
      simple(inside, in);
      result.body.push_back(std::move(inside));
    } else {
      const std::size_t begin = next_;
      result.body = block(line.indent, depth + 1);
      if (word == "def") result.is_plain = !yields(begin);
    }
  }

  bool yields(std::size_t begin) const {
    for (std::size_t i = begin; i < next_; ++i)
      if (lines_[i].text.find("yield") != std::string_view::npos) return true;
    return false;
  }

  static bool loop_header(Statement& result, Expressions& in) {
    result.kind = StatementKind::For;
    NodePtr target = in.loop_target();
    if (!target || !in.at_word("in")) return false;
    result.targets.push_back(std::move(target));
    in.step();
    result.value = in.values();
    return in.take(":");
  }

  static bool class_header(Statement& result, Expressions& in) {
    result.kind = StatementKind::Class;
    result.text = in.peek().text;
    in.step();
    if (in.take("(")) {
      while (!in.at_end() && !in.at_symbol(")")) {
        if (in.peek(1).text == "=" && in.peek().kind == TokenKind::Name) {  // slots=True
          in.step();
          in.step();
          in.value();
        } else {
          result.targets.push_back(in.value());
        }
        if (!in.take(",")) break;
      }
      if (!in.take(")")) return false;
    }
    return in.take(":");
  }

  static bool definition(Statement& result, Expressions& in) {
    result.kind = StatementKind::Definition;
    result.text = in.peek().text;
    in.step();
    if (!in.take("(")) return false;
    bool keyword_only = false;
    while (!in.at_end() && !in.at_symbol(")")) {
      Parameter parameter;
      if (in.take("**"))
        parameter.kind = '2';
      else if (in.take("*"))
        parameter.kind = '*';
      if (parameter.kind == '*' && (in.at_symbol(",") || in.at_symbol(")"))) {
        keyword_only = true;  // a bare star
      } else if (in.take("/")) {
        // before it only by position, which makes no difference here
      } else {
        parameter.name = in.peek().text;
        parameter.keyword_only = keyword_only;
        keyword_only = keyword_only || parameter.kind == '*';
        in.step();
        if (in.take(":")) in.value();
        if (in.take("=")) parameter.initial = in.value();
        result.parameters.push_back(std::move(parameter));
      }
      if (!in.take(",")) break;
    }
    if (!in.take(")")) return false;
    if (in.take("->")) in.value();
    return in.take(":");
  }

  static void simple(Statement& result, Expressions& in) {
    constexpr std::array<std::string_view, 7> kAugmented = {
        "+=", "-=", "*=", "/=", "|=", "//=", "%="};
    const std::string word = in.peek().kind == TokenKind::Name ? in.peek().text : "";
    if (word == "return" || word == "raise") {
      result.kind = word == "return" ? StatementKind::Return : StatementKind::Raise;
      in.step();
      if (!in.at_end()) result.value = in.values();
      if (!in.at_end() && result.kind == StatementKind::Return)
        result.kind = StatementKind::Unknown;
      return;
    }
    if (word == "break" || word == "continue") {
      result.kind = word == "break" ? StatementKind::Break : StatementKind::Continue;
      return;
    }
    if (is_among(kIgnored, word)) return;
    result.kind = StatementKind::Expression;
    result.value = in.values();
    if (in.take(":")) {  // NAME: type
      in.value();
      if (in.at_end()) result.kind = StatementKind::Ignored;
    }
    for (const std::string_view symbol : kAugmented)
      if (in.take(symbol)) {
        result.text = symbol;
        result.kind = StatementKind::Assign;
        result.targets.push_back(std::move(result.value));
        result.value = in.values();
      }
    while (in.take("=")) {
      result.kind = StatementKind::Assign;
      result.targets.push_back(std::move(result.value));
      result.value = in.values();
    }
    if (!in.at_end()) result.kind = StatementKind::Unknown;
  }

  /// from MODULE import (A, B as C); import MODULE as A
  static void imports(Statement& result, const std::vector<Token>& tokens) {
    const bool from = tokens[0].text == "from";
    std::string module;
    std::size_t i = 1;
    for (; from && i < tokens.size() && tokens[i].text != "import"; ++i) module += tokens[i].text;
    if (from) ++i;
    for (; i < tokens.size() && tokens[i].kind != TokenKind::End; ++i) {
      if (tokens[i].kind != TokenKind::Name) continue;
      ImportedName imported{.module = module, .name = tokens[i].text, .bound = tokens[i].text};
      while (!from && tokens[i + 1].text == "." && tokens[i + 2].kind == TokenKind::Name) {
        imported.name += "." + tokens[i + 2].text;
        i += 2;
      }
      if (!from) {
        imported.module = imported.name;
        imported.name.clear();
      }
      if (tokens[i + 1].text == "as" && tokens[i + 2].kind == TokenKind::Name) {
        imported.bound = tokens[i + 2].text;
        i += 2;
      } else if (!from && imported.module.find('.') != std::string::npos) {
        // import a.b binds a
        imported.module = imported.module.substr(0, imported.module.find('.'));
      }
      result.imports.push_back(std::move(imported));
    }
  }

  const std::string& file_;
  std::vector<LogicalLine> lines_;
  std::size_t next_ = 0;
};

}  // namespace

Block parse_python(std::string_view text, const std::string& file) {
  return BlockParser(text, file).run();
}

}  // namespace meshplan::planner::python
