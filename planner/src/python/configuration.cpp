#include "python/configuration.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

#include "core/error.hpp"

namespace meshplan::planner::python {
namespace {

constexpr int kDeepestCalls = 16;
constexpr std::size_t kMostSteps = 1 << 16;  // values that names and calls stand for

using Path = std::vector<std::string>;
using Values = std::map<std::string, Json, std::less<>>;

constexpr std::array<std::string_view, 12> kBlocks = {"if",      "elif", "else",  "for",
                                                      "while",   "with", "try",   "except",
                                                      "finally", "def",  "class", "async"};
constexpr std::array<std::string_view, 6> kHarmless = {"import", "from",   "assert",
                                                       "pass",   "global", "del"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

struct Function {
  std::vector<LogicalLine> body;
  std::set<std::string> calls;  // names of the file's functions in its text
};

/// The place of a path in a tree; null where a part is missing or is no object.
const Json* place_of(const Json& tree, const Path& path, std::size_t from) {
  const Json* place = &tree;
  for (std::size_t i = from; i < path.size(); ++i) {
    if (!place->is_object() || !place->contains(path[i])) return nullptr;
    place = &place->at(path[i]);
  }
  return place;
}

class ModuleReader {
 public:
  ModuleReader(std::string_view text, const std::string& file) : file_(file) {
    const std::vector<LogicalLine> lines = logical_lines(text, file);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].indent > 0) continue;
      const std::vector<Token> tokens = tokens_of(lines[i], file);
      if (tokens[0].kind == TokenKind::Name && tokens[0].text == "def" &&
          tokens[1].kind == TokenKind::Name)
        add_function(tokens[1].text, lines, i + 1);
      else if (tokens[0].text == "from")
        read_import(tokens);
      else if (tokens[0].kind == TokenKind::Name && !is_among(kBlocks, tokens[0].text))
        read_constant(lines[i], tokens);
    }
    for (auto& [name, each] : functions_) find_calls(each);
  }

  Configuration run(const std::string& wanted) {
    const std::string name = wanted.empty() ? only_function() : wanted;
    if (!functions_.contains(name)) {
      std::vector<std::string> names;
      for (const auto& [each, body] : functions_) names.push_back(each);
      throw ConfigError(
          fmt::format("{}: {}", file_, unknown_name_message("function", name, std::move(names))));
    }
    Configuration result{.function = name, .tree = returned_by(name, 0)};
    if (!is_call(result.tree))
      throw ConfigError(fmt::format("{}: {}() returns nothing that is understood", file_, name));
    result.notes = std::move(notes_);
    result.imports = imports_;
    return result;
  }

 private:
  void add_function(const std::string& name, const std::vector<LogicalLine>& lines,
                    std::size_t first) {
    Function& function = functions_[name];
    function.body.clear();  // the last definition is Python's
    for (std::size_t i = first; i < lines.size() && lines[i].indent > 0; ++i)
      function.body.push_back(lines[i]);
  }

  void find_calls(Function& function) {
    for (const LogicalLine& line : function.body)
      for (const Token& token : tokens_of(line, file_))
        if (token.kind == TokenKind::Name && functions_.contains(token.text))
          function.calls.insert(token.text);
  }

  /// Of the functions that no other calls, the one that returns a call: a configuration.
  std::string only_function() {
    std::vector<std::string> roots;
    for (const auto& [name, function] : functions_) {
      const bool is_called = std::ranges::any_of(functions_, [&](const auto& other) {
        return other.first != name && other.second.calls.contains(name);
      });
      const bool returns = std::ranges::any_of(
          function.body, [](const LogicalLine& line) { return line.text.starts_with("return "); });
      if (!is_called && returns && is_call(returned_by(name, 0))) roots.push_back(name);
    }
    notes_.clear();
    if (roots.size() == 1) return roots[0];
    if (roots.empty())
      throw ConfigError(fmt::format("{}: no function returns a configuration", file_));
    throw ConfigError(fmt::format("{}: {} functions return configurations: {}; name one as {}:{}",
                                  file_, roots.size(), fmt::join(roots, ", "), file_, roots[0]));
  }

  /// from MODULE import (A, B as C)
  void read_import(const std::vector<Token>& tokens) {
    std::string module;
    std::size_t i = 1;
    for (; i < tokens.size() && tokens[i].text != "import"; ++i) module += tokens[i].text;
    for (; i < tokens.size(); ++i)
      if (tokens[i].kind == TokenKind::Name && tokens[i + 1].text != "as")
        imports_[tokens[i].text] = module;
  }

  void read_constant(const LogicalLine& line, const std::vector<Token>& tokens) {
    const Lookup lookup = [&](const Path& path) { return find(constants_, path); };
    Expressions in(tokens, line.text, lookup);
    const Path target = in.dotted_name();
    if (in.at_symbol(":")) {  // NAME: type = ...
      in.step();
      in.value();
    }
    if (target.size() != 1 || !in.at_symbol("=")) return;
    in.step();
    Json value = in.value();
    if (in.at_end() && !is_unknown(value))
      constants_[target[0]] = std::move(value);
    else
      constants_.erase(target[0]);
  }

  static std::size_t size_of_tree(const Json& value) {
    std::size_t size = 1;
    if (value.is_string()) size += value.get_ref<const std::string&>().size() / 64;
    if (value.is_structured())
      for (const Json& child : value) size += size_of_tree(child);
    return size;
  }

  /// Lists of lists of lists must not grow without bound.
  void count(const Json& value) {
    steps_ += size_of_tree(value);
    if (steps_ > kMostSteps)
      throw ConfigError(
          fmt::format("{}: its names stand for more than {} values", file_, kMostSteps));
  }

  std::optional<Json> find(const Values& values, const Path& path) {
    const auto found = values.find(path[0]);
    if (found == values.end()) return std::nullopt;
    const Json* place = place_of(found->second, path, 1);
    if (place == nullptr || is_unknown(*place)) return std::nullopt;
    count(*place);
    return *place;
  }

  void note(const LogicalLine& line) {
    constexpr std::size_t kLongest = 60;
    std::string text(line.text.substr(0, std::min(line.text.find('\n'), kLongest)));
    if (text.size() < line.text.size()) text += " ...";
    notes_.push_back(fmt::format("{}:{}: '{}' is not understood", file_, line.line, text));
  }

  /// What a function of the file returns; a call that stays a call where that is not known.
  Json returned_by(const std::string& name, int depth) {
    if (depth > kDeepestCalls)
      throw ConfigError(fmt::format("{}: {}(): functions call each other more than {} deep", file_,
                                    name, kDeepestCalls));
    const std::vector<LogicalLine>& lines = functions_.at(name).body;
    steps_ += lines.size();
    Body body{.depth = depth};
    if (lines.empty()) return nullptr;
    for (const LogicalLine& line : lines) {
      if (line.indent > lines.front().indent) continue;  // inside a block that was noted
      statement(line, body);
      if (body.returned) break;
    }
    return body.returned.value_or(Json());
  }

  struct Body {
    Values values;
    std::map<std::string, Path, std::less<>> aliases;  // of parts of other values
    std::optional<Json> returned;
    int depth = 0;
  };

  void statement(const LogicalLine& line, Body& body) {
    const std::vector<Token> tokens = tokens_of(line, file_);
    if (tokens[0].kind == TokenKind::String) return;  // a docstring
    const std::string& word = tokens[0].text;
    if (tokens[0].kind == TokenKind::Name && is_among(kHarmless, word)) return;
    if (tokens[0].kind != TokenKind::Name || is_among(kBlocks, word)) return note(line);
    const Lookup lookup = [&](const Path& path) { return resolved(body, path); };
    Expressions in(tokens, line.text, lookup);
    if (word == "return") {
      in.step();
      body.returned = called(in.value(), body.depth);
      return;
    }
    const Path target = in.dotted_name();
    if (in.at_symbol(":") && target.size() == 1) {
      in.step();
      in.value();
    }
    if (!in.at_symbol("=")) return note(line);
    in.step();
    assign(line, in, target, body);
  }

  void assign(const LogicalLine& line, Expressions& in, const Path& target, Body& body) {
    Expressions ahead = in;
    const Path source = ahead.dotted_name();
    Json value = called(in.value(), body.depth);
    if (!in.at_end()) return note(line);
    if (target.size() == 1) {
      body.aliases.erase(target[0]);
      if (source.size() > 1 && ahead.at_end() && body.values.contains(source[0]))
        body.aliases[target[0]] = source;
      body.values[target[0]] = std::move(value);
      return;
    }
    Path path = target;
    if (const auto alias = body.aliases.find(path[0]); alias != body.aliases.end()) {
      path = alias->second;
      path.insert(path.end(), target.begin() + 1, target.end());
    }
    Json* place = &body.values[path[0]];
    for (std::size_t i = 1; i < path.size(); ++i) {
      if (!place->is_object() || is_unknown(*place)) *place = Json::object();
      place = &(*place)[path[i]];
    }
    *place = std::move(value);
  }

  std::optional<Json> resolved(const Body& body, const Path& path) {
    if (body.values.contains(path[0])) return find(body.values, path);
    return find(constants_, path);
  }

  /// Calls of the file's own functions become what these return, if they take no arguments.
  Json called(Json value, int depth) {
    if (value.is_structured())
      for (Json& child : value)
        if (child.is_structured()) child = called(std::move(child), depth);
    const std::string name = call_name(value);
    if (!functions_.contains(name) || value.size() > 1) return value;
    Json result = returned_by(name, depth + 1);
    count(result);
    return result.is_null() ? value : result;
  }

  const std::string& file_;
  std::map<std::string, Function, std::less<>> functions_;
  Values constants_;
  std::map<std::string, std::string> imports_;
  std::vector<std::string> notes_;
  std::size_t steps_ = 0;
};

}  // namespace

Configuration read_configuration(std::string_view text, const std::string& file,
                                 const std::string& function) {
  return ModuleReader(text, file).run(function);
}

}  // namespace meshplan::planner::python
