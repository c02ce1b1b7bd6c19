#include <fmt/format.h>
#include <fmt/ranges.h>

#include "describe/completion.hpp"

namespace meshplan::cli {
namespace {

// {0}: the program's name, {1}: lines "name:summary", {2}: a case for each command.
constexpr const char* kZshScript = R"zsh(#compdef {0}
# Completion of {0} for zsh; `{0} completion zsh` writes it.

# One of the words, or a file.
_meshplan_word_or_file() {{
  local -a given=("$@")
  _alternative 'words: :compadd -a given' 'files:file:_files'
}}

_{0}() {{
  local curcontext=$curcontext state line
  local -A opt_args
  _arguments -C \
    '(- *)'{{-h,--help}}'[print the commands and exit]' \
    '(- *)--version[print the version and exit]' \
    '1:command:->command' \
    '*:: :->arguments'
  case $state in
    command)
      local -a commands=(
{1}      )
      _describe command commands
      ;;
    arguments)
      case $line[1] in
{2}      esac
      ;;
  esac
}}

_{0} "$@"
)zsh";

/// Inside single quotes, in a specification of _arguments or _describe.
std::string zsh_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\'')
      escaped += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      escaped += fmt::format("\\{}", c);
    else
      escaped += c;
  }
  return escaped;
}

/// What stands for the value in a specification: ":INT:", ":TEXT:(a b)", ": : _files".
std::string zsh_value(const OptionInfo& option) {
  if (!option.takes_value()) return "";
  const std::vector<std::string>& words =
      option.choices.empty() ? option.suggestions : option.choices;
  const std::string name = option.is_positional ? option.flag : "value";
  if (words.empty()) return fmt::format(":{}:{}", name, option.takes_file ? "_files" : "");
  if (option.takes_file)
    return fmt::format(":{}: _meshplan_word_or_file {}", name, fmt::join(words, " "));
  return fmt::format(":{}:({})", name, fmt::join(words, " "));
}

/// "'*--set[...]:value:'"; a line for each name, which exclude each other.
std::string zsh_specification(const OptionInfo& option, int place) {
  const std::string value = zsh_value(option);
  if (option.is_positional) {
    const bool all = option.value == ValueKind::Texts;
    return fmt::format("          '{}{}' \\\n", all ? "*" : fmt::format("{}", place), value);
  }
  std::string lines;
  const std::string before =
      option.value == ValueKind::Texts ? "*" : fmt::format("({})", fmt::join(option.names, " "));
  for (const std::string& name : option.names)
    lines += fmt::format("          '{}{}[{}]{}' \\\n", before, name, zsh_text(option.help), value);
  return lines;
}

std::string zsh_case(const CommandInfo& command) {
  std::string text = fmt::format("        {})\n          _arguments \\\n", command.name);
  int place = 0;
  for (const OptionInfo& option : command.options)
    text += zsh_specification(option, option.is_positional ? ++place : 0);
  return text + "          '(- *)'{-h,--help}'[print the options and exit]'\n          ;;\n";
}

}  // namespace

std::string zsh_completion(const ProgramInfo& program) {
  std::string commands;
  std::string cases;
  for (const CommandInfo& command : program.commands) {
    commands += fmt::format("        '{}:{}'\n", command.name, zsh_text(command.summary));
    cases += zsh_case(command);
  }
  return fmt::format(kZshScript, program.name, commands, cases);
}

}  // namespace meshplan::cli
