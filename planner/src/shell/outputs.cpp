#include "shell/outputs.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "shell/arithmetic.hpp"
#include "shell/conditions.hpp"
#include "shell/tokens.hpp"

namespace meshplan::planner::shell {
namespace {

using Words = std::vector<Value>;

std::string joined(const Words& words, std::size_t first) {
  std::string all;
  for (std::size_t i = first; i < words.size(); ++i) all += (i > first ? " " : "") + words[i].text;
  return all;
}

std::string folder_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string base_of(std::string path, std::string_view suffix) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  path = path.substr(path.find_last_of('/') + 1);
  if (!suffix.empty() && path.size() > suffix.size() && path.ends_with(suffix))
    path.resize(path.size() - suffix.size());
  return path;
}

std::optional<std::string> sequence(const Words& words) {
  constexpr int kMost = 4096;
  if (words.size() < 2 || words.size() > 3) return std::nullopt;
  const auto first =
      words.size() == 3 ? parse_integer(words[1].text, -kMost, 1 << 20) : std::optional(1);
  const auto last = parse_integer(words.back().text, -kMost, 1 << 20);
  if (!first || !last || *last - *first > kMost) return std::nullopt;
  std::string all;
  for (auto i = *first; i <= *last; ++i) all += (i > *first ? "\n" : "") + std::to_string(i);
  return all;
}

std::optional<std::string> computed(const std::string& expression, Expander& expander) {
  // bc has fractions and names of its own.
  if (expression.find_first_not_of("0123456789+-*/%() \t") != std::string::npos)
    return std::nullopt;
  try {
    return std::to_string(expander.arithmetic(expression));
  } catch (const UnknownOperand&) {
    return std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// What one command prints, without its last newline.
std::optional<std::string> printed(const Words& words, Expander& expander) {
  if (words.empty()) return std::nullopt;
  const std::string name = base_of(words.front().text, "");
  const bool has_options = words.size() > 1 && words[1].text.starts_with('-');
  if (name == "echo" && !has_options) return joined(words, 1);
  if (name == "printf" && words.size() == 2 &&
      words[1].text.find_first_of("%\\") == std::string::npos)
    return words[1].text;
  if (name == "dirname" && words.size() == 2) return folder_of(words[1].text);
  if (name == "basename" && !has_options && words.size() > 1 && words.size() < 4)
    return base_of(words[1].text, words.size() == 3 ? words[2].text : "");
  if ((name == "realpath" && words.size() == 2) ||
      (name == "readlink" && words.size() == 3 && words[1].text == "-f"))
    return words.back().text;
  if (name == "seq") return sequence(words);
  if (name == "expr") return computed(joined(words, 1), expander);
  return std::nullopt;
}

/// The words of commands between operators; empty for what is more than simple commands.
std::vector<Words> commands_of(std::string_view inner, std::vector<std::string>& operators,
                               Expander& expander) {
  std::vector<Words> commands(1);
  const Tokens tokens = tokens_of(inner);
  for (const Token& token : tokens.all) {
    if (token.kind == Token::Kind::End) break;
    if (token.kind == Token::Kind::Redirect) {
      if (token.text != "2" && !token.text.starts_with("2>") && !token.text.starts_with(">"))
        return {};
      continue;  // the word behind it is harmless here: it is the name of a file
    }
    if (token.kind == Token::Kind::Word) {
      for (Value& value : expander.fields(token.text)) commands.back().push_back(std::move(value));
      continue;
    }
    if (token.text == "\n" && commands.back().empty()) continue;
    operators.push_back(token.text);
    commands.emplace_back();
  }
  while (!commands.empty() && commands.back().empty()) {
    commands.pop_back();
    if (!operators.empty()) operators.pop_back();
  }
  return commands;
}

std::optional<std::string> output(const std::vector<Words>& commands,
                                  const std::vector<std::string>& operators, Expander& expander) {
  if (commands.size() == 1) return printed(commands[0], expander);
  if (commands.size() != 2 || operators.empty()) return std::nullopt;
  const Words& first = commands[0];
  const Words& second = commands[1];
  const bool is_pipe = operators.front() == "|";
  if (is_pipe && second.size() == 1 && second.front().text == "bc") {
    const auto text = printed(first, expander);
    return text ? computed(*text, expander) : std::nullopt;
  }
  // cd DIR && pwd
  if (!is_pipe && first.size() >= 2 && first.front().text == "cd" && second.front().text == "pwd")
    return first.size() == 2 || first[1].text == "--" ? std::optional(first.back().text)
                                                      : std::nullopt;
  return std::nullopt;
}

}  // namespace

Value command_output(std::string_view inner, std::string_view written, Expander& expander) {
  Unknown unknown{std::string(written), {}, {}, {}};
  unknown.why = printable_line(fmt::format("{} is a command's output", written));
  try {
    std::vector<std::string> operators;
    const std::vector<Words> commands = commands_of(inner, operators, expander);
    bool known = true;
    for (const Words& words : commands) {
      for (const Value& word : words) {
        known = known && word.known();
        for (const Unknown& each : word.unknown) add_needs(unknown.needs, each.needs);
      }
    }
    if (known)
      if (const auto text = output(commands, operators, expander)) return {*text, {}};
  } catch (const ConfigError&) {
    // A command that is not read: nobody runs it.
  }
  return {std::string(written), {std::move(unknown)}};
}

namespace {

/// The text without its shortest or longest beginning or end that matches.
std::string trimmed(const std::string& text, const std::string& pattern, bool at_end,
                    bool longest) {
  std::optional<std::size_t> best;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const std::string_view piece = at_end ? std::string_view(text).substr(text.size() - size)
                                          : std::string_view(text).substr(0, size);
    if (!matches_pattern(piece, pattern)) continue;
    best = size;
    if (!longest) break;
  }
  if (!best) return text;
  return at_end ? text.substr(0, text.size() - *best) : text.substr(*best);
}

std::optional<std::string> replaced(const std::string& text, std::string_view edit,
                                    Expander& expander) {
  const bool all = edit.starts_with("//");
  edit.remove_prefix(all ? 2 : 1);
  std::size_t slash = 0;
  while (slash < edit.size() && edit[slash] != '/') slash = end_of_opened(edit, slash);
  const Value from = expander.text(edit.substr(0, slash));
  const Value to = slash < edit.size() ? expander.text(edit.substr(slash + 1)) : Value{};
  if (!from.known() || !to.known() || from.text.empty() ||
      from.text.find_first_of("*?[#%") != std::string::npos)
    return std::nullopt;
  constexpr std::size_t kMostText = 4096;
  if (text.size() > kMostText || to.text.size() > kMostText) return std::nullopt;
  std::string result;
  std::size_t at = 0;
  for (auto found = text.find(from.text); found != std::string::npos;
       found = text.find(from.text, at)) {
    result += text.substr(at, found - at) + to.text;
    at = found + from.text.size();
    if (!all || result.size() > kMostText) break;
  }
  return result + text.substr(at);
}

std::optional<std::string> slice(const std::string& text, std::string_view edit,
                                 Expander& expander) {
  const auto colon = edit.find(':');
  try {
    std::int64_t begin = expander.arithmetic(edit.substr(0, colon));
    const auto size = static_cast<std::int64_t>(text.size());
    if (begin < 0) begin += size;
    if (begin < 0 || begin > size) return "";
    std::int64_t count = size - begin;
    if (colon != std::string_view::npos) {
      count = expander.arithmetic(edit.substr(colon + 1));
      if (count < 0) count = std::max<std::int64_t>(0, size + count - begin);
    }
    return text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  } catch (const UnknownOperand&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> edited_text(const std::string& text, std::string_view edit,
                                       Expander& expander) {
  const char kind = edit.empty() ? '\0' : edit.front();
  if (kind == '%' || kind == '#') {
    const bool longest = edit.size() > 1 && edit[1] == kind;
    const Value pattern = expander.text(edit.substr(longest ? 2 : 1));
    // A pattern is tried at every length.
    constexpr std::size_t kMostText = 512;
    if (!pattern.known() || pattern.text.find('[') != std::string::npos ||
        text.size() > kMostText || pattern.text.size() > kMostText)
      return std::nullopt;
    return trimmed(text, pattern.text, kind == '%', longest);
  }
  if (kind == '/') return replaced(text, edit, expander);
  if (kind == ':') return slice(text, edit.substr(1), expander);
  if (edit == "^^" || edit == ",,") {
    std::string changed = text;
    std::ranges::transform(changed, changed.begin(), [&](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return static_cast<char>(edit == "^^" ? std::toupper(byte) : std::tolower(byte));
    });
    return changed;
  }
  return std::nullopt;
}

}  // namespace meshplan::planner::shell
