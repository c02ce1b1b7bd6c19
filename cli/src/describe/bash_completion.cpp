#include <fmt/format.h>
#include <fmt/ranges.h>

#include "describe/completion.hpp"

namespace meshplan::cli {
namespace {

// {0}: the program's name, {1}: its commands, {2}: cases of bash_options, {3}: of bash_values.
constexpr const char* kBashScript =
    R"bash(# Completion of {0} for bash; `{0} completion bash` writes it.

# Options of command $1.
_{0}_options() {{
  case $1 in
{2}    *) echo '--help --version' ;;
  esac
}}

# Values of $2, an option or the number of an argument, of command $1: $words, and whether $files are
# some. False if the option takes none.
_{0}_values() {{
  words='' files=''
  case $1:$2 in
{3}    *) return 1 ;;
  esac
}}

_{0}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command='' option='' skip='' words files word i
  local -i place=0
  COMPREPLY=()
  # Readline makes three words of --tp=4.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${{COMP_WORDS[i]}} option=''
    if [[ $word == '=' ]]; then
      skip=1 option=${{COMP_WORDS[i - 1]}}
    elif [[ -n $skip ]]; then
      skip=''
    elif [[ -z $command ]]; then
      case $word in {1}) command=$word ;; esac
    elif [[ $word == -* ]]; then
      _{0}_values "$command" "$word" && skip=1 option=$word
    else
      place+=1
    fi
  done
  if [[ $current == '=' ]]; then
    option=${{COMP_WORDS[COMP_CWORD - 1]}} current=''
  fi
  if [[ -n $option ]]; then
    _{0}_values "$command" "$option"
  elif [[ $current == -* ]]; then
    words=$(_{0}_options "$command") files=''
  elif [[ -z $command ]]; then
    words='{4}' files=''
  else
    _{0}_values "$command" $((place + 1))
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O ${{#COMPREPLY[@]}} COMPREPLY < <(compgen -f -- "$current")
  fi
}}

complete -F _{0} {0}
)bash";

std::string offers(const OptionInfo& option) {
  const std::vector<std::string>& words =
      option.choices.empty() ? option.suggestions : option.choices;
  std::string text;
  if (!words.empty()) text += fmt::format(" words='{}'", fmt::join(words, " "));
  if (option.takes_file) text += " files=1";
  return text.empty() ? " :" : text;  // a number: nothing to offer
}

/// "plan:-m | plan:--model) words='...' files=1 ;;"
std::string bash_values(const CommandInfo& command) {
  std::string cases;
  int place = 0;
  for (const OptionInfo& option : command.options) {
    if (!option.takes_value()) continue;
    std::vector<std::string> names;
    for (const std::string& name : option.names) names.push_back(command.name + ":" + name);
    if (option.is_positional)
      names.push_back(option.value == ValueKind::Texts
                          ? command.name + ":[0-9]*"
                          : fmt::format("{}:{}", command.name, ++place));
    cases += fmt::format("    {}){} ;;\n", fmt::join(names, " | "), offers(option));
  }
  return cases;
}

std::string bash_options(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return fmt::format("    {}) echo '{} -h --help' ;;\n", command.name, fmt::join(names, " "));
}

}  // namespace

std::string bash_completion(const ProgramInfo& program) {
  std::vector<std::string> names;
  std::string options;
  std::string values;
  for (const CommandInfo& command : program.commands) {
    names.push_back(command.name);
    options += bash_options(command);
    values += bash_values(command);
  }
  return fmt::format(kBashScript, program.name, fmt::join(names, " | "), options, values,
                     fmt::join(names, " "));
}

}  // namespace meshplan::cli
