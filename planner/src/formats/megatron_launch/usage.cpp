// Command lines of a script that somebody wrote down.
#include <algorithm>
#include <fmt/format.h>

#include "formats/megatron_launch/missing.hpp"

namespace meshplan::planner::megatron {
namespace {

/// A line and those that it is continued with, from `at` on; blanks may follow a backslash.
std::string continued_line(std::string_view text, std::size_t at, bool in_comment) {
  constexpr std::size_t kMost = 1 << 14;
  std::string joined;
  while (at < text.size() && joined.size() < kMost) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
      line.remove_suffix(1);
    const bool continues = line.ends_with('\\');
    if (continues) line.remove_suffix(1);
    if (in_comment && !joined.empty()) {
      const auto begin = line.find_first_not_of(" \t#");
      line.remove_prefix(std::min(begin, line.size()));
    }
    joined += line;
    joined += ' ';
    if (!continues) break;
    at = end + 1;
  }
  return joined;
}

/// Arguments behind the script's name; empty where there are none, or placeholders.
std::vector<std::string> arguments_in(std::string_view line) {
  // Inline code of a page ends there.
  line = line.substr(0, line.find_first_of("`|;"));
  std::vector<std::string> words;
  try {
    words = shell::shell_words(line);
  } catch (const ConfigError&) {
    return {};
  }
  const bool has_placeholder = std::ranges::any_of(words, [](const std::string& word) {
    return word.empty() || word.front() == '<' || word.front() == '[' || word.front() == '{';
  });
  return has_placeholder ? std::vector<std::string>{} : words;
}

/// "sh run.sh", "bash ./run.sh": is the name at `at` what a command starts?
bool is_started(std::string_view text, std::size_t at) {
  while (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\t' && text[at - 1] != '\n') --at;
  if (text.substr(at).starts_with("./")) return true;
  while (at > 0 && (text[at - 1] == ' ' || text[at - 1] == '\t')) --at;
  std::size_t begin = at;
  while (begin > 0 && text[begin - 1] != ' ' && text[begin - 1] != '\t' &&
         text[begin - 1] != '\n' && text[begin - 1] != '`')
    --begin;
  const std::string_view word = text.substr(begin, at - begin);
  return word == "sh" || word == "bash" || word == "sbatch";
}

std::optional<Usage> usage_in(const std::string& name, std::string_view text,
                              const std::string& script, std::size_t least, bool is_script) {
  for (auto at = text.find(script); at != std::string_view::npos; at = text.find(script, at + 1)) {
    const std::size_t behind = at + script.size();
    const auto line_begin = at == 0 ? 0 : text.find_last_of('\n', at - 1) + 1;
    const bool in_comment = is_script && text.substr(line_begin).starts_with('#');
    if ((is_script && !in_comment) || !is_started(text, at)) continue;
    if (behind < text.size() && text[behind] != ' ' && text[behind] != '\t' && text[behind] != '\\')
      continue;
    std::vector<std::string> arguments = arguments_in(continued_line(text, behind, in_comment));
    if (arguments.size() < least) continue;
    const auto line =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return Usage{std::move(arguments), fmt::format("{}:{}", name, line + 1)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Usage> documented_usage(const ImportRequest& request, std::size_t least) {
  const std::string script = request.main.substr(request.main.find_last_of('/') + 1);
  for (const auto& [name, text] : request.files) {
    const bool is_script = name == request.main;
    if (!is_script && !name.ends_with(".md")) continue;
    const std::string shown = name.substr(name.find_last_of('/') + 1);
    if (auto usage = usage_in(shown, text, script, least, is_script)) return usage;
  }
  return std::nullopt;
}

}  // namespace meshplan::planner::megatron
