#include <fmt/format.h>
#include <fmt/ranges.h>

#include "describe/completion.hpp"

namespace meshplan::cli {
namespace {

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

/// " -s m -l model"
std::string fish_names(const OptionInfo& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return text;
}

/// " -x -a 'a b'", " -r" (files are offered), " -r -f" (nothing is)
std::string fish_value(const OptionInfo& option) {
  const std::vector<std::string>& words =
      option.choices.empty() ? option.suggestions : option.choices;
  std::string text = option.is_positional ? "" : " -r";
  text += option.takes_file ? " -F" : " -f";
  if (!words.empty()) text += fmt::format(" -a '{}'", fmt::join(words, " "));
  return text;
}

std::string fish_lines(const ProgramInfo& program, const CommandInfo& command) {
  const std::string start =
      fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}'", program.name, command.name);
  std::string lines = start + " -s h -l help -d 'print the options and exit'\n";
  for (const OptionInfo& option : command.options) {
    lines += start + fish_names(option);
    if (option.takes_value()) lines += fish_value(option);
    if (!option.is_positional) lines += " -d " + fish_quoted(option.help);
    lines += '\n';
  }
  return lines;
}

}  // namespace

std::string fish_completion(const ProgramInfo& program) {
  std::string text = fmt::format(
      "# Completion of {0} for fish; `{0} completion fish` writes it.\n"
      "complete -c {0} -f\n"
      "complete -c {0} -n __fish_use_subcommand -s h -l help -d 'print the commands and exit'\n"
      "complete -c {0} -n __fish_use_subcommand -l version -d 'print the version and exit'\n",
      program.name);
  for (const CommandInfo& command : program.commands)
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", program.name,
                        command.name, fish_quoted(command.summary));
  for (const CommandInfo& command : program.commands) text += fish_lines(program, command);
  return text;
}

}  // namespace meshplan::cli
