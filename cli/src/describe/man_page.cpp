#include "describe/man_page.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>

#include "process/exit_codes.hpp"

namespace meshplan::cli {
namespace {

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

/// A line of text that roff shows as it is.
std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '\'')
      escaped += "\\(aq";
    else
      escaped += c;
  }
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}

/// Lines that keep their ends, as commands do.
std::string verbatim(const std::string& text) {
  std::string lines = ".nf\n";
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines += roff(line) + "\n";
  return lines + ".fi\n";
}

/// Text is neither stretched nor hyphenated: options would be, too.
std::string header(const ProgramInfo& program, const std::string& page,
                   const std::string& summary) {
  const std::string about = summary.substr(0, summary.find_last_not_of('.') + 1);
  return fmt::format(".TH {} 1 {} \"{} {}\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n",
                     roff(upper(page)), program.date, program.name, program.version, roff(page),
                     roff(about));
}

std::string exit_status() {
  std::string text = ".SH \"EXIT STATUS\"\n";
  for (const ExitCode& code : kExitCodes)
    text += fmt::format(".TP\n.B {}\n{}\n", code.value, roff(code.meaning));
  return text;
}

/// Too many for the line of the option's name, which cannot be broken: they follow its help.
bool has_many_choices(const OptionInfo& option) {
  constexpr std::size_t kMostInName = 50;
  return !option.choices.empty() && option.value_name.size() > kMostInName;
}

/// "-m, --model TEXT"
std::string head_of(const OptionInfo& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("\\fB" + roff(name) + "\\fR");
  if (names.empty()) names.push_back("\\fI" + roff(option.flag) + "\\fR");
  std::string head = fmt::format("{}", fmt::join(names, ", "));
  if (!option.names.empty() && option.takes_value())
    head += " \\fI" + roff(has_many_choices(option) ? "NAME" : option.value_name) + "\\fR";
  return head;
}

std::string entry_of(const OptionInfo& option) {
  std::string text = fmt::format(".TP\n{}\n{}", head_of(option), roff(option.help));
  if (!option.default_value.empty()) text += fmt::format(" [{}]", roff(option.default_value));
  if (has_many_choices(option))
    text += fmt::format("; one of: {}", roff(fmt::format("{}", fmt::join(option.choices, ", "))));
  return text + "\n";
}

/// Groups in the order in which they are declared; one that is declared twice is one.
std::string options_of(const CommandInfo& command) {
  std::vector<std::string> groups;
  for (const OptionInfo& option : command.options)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  std::string text =
      ".SH OPTIONS\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint the options and exit\n";
  for (const std::string& group : groups) {
    text += fmt::format(".SS \"{}\"\n", roff(group));
    for (const OptionInfo& option : command.options)
      if (option.group == group) text += entry_of(option);
  }
  return text;
}

std::string synopsis_of(const ProgramInfo& program, const CommandInfo& command) {
  std::string text = fmt::format(".SH SYNOPSIS\n\\fB{} {}\\fR [\\fIoption\\fR ...]", program.name,
                                 roff(command.name));
  for (const OptionInfo& option : command.options)
    if (option.is_positional)
      text += fmt::format(" [\\fI{}\\fR{}]", roff(option.flag),
                          option.value == ValueKind::Texts ? " ..." : "");
  return text + "\n";
}

ManPage page_of(const ProgramInfo& program, const CommandInfo& command) {
  ManPage page{.command = command.name, .name = program.name + "-" + command.name, .text = {}};
  page.text = header(program, page.name, command.summary) + synopsis_of(program, command) +
              ".SH DESCRIPTION\n" + roff(command.summary) + ".\n" + options_of(command);
  if (!command.examples.empty()) page.text += ".SH EXAMPLES\n" + verbatim(command.examples);
  page.text += exit_status();
  page.text += fmt::format(".SH \"SEE ALSO\"\n.BR {} (1)\n", program.name);
  return page;
}

ManPage first_page(const ProgramInfo& program) {
  ManPage page{.command = program.name, .name = program.name, .text = {}};
  page.text = header(program, page.name, program.summary);
  page.text += fmt::format(
      ".SH SYNOPSIS\n\\fB{0}\\fR \\fIcommand\\fR [\\fIoption\\fR ...]\n.br\n\\fB{0}\\fR "
      "\\fIcommand\\fR \\fB\\-\\-help\\fR\n.br\n\\fB{0} \\-\\-version\\fR\n.SH DESCRIPTION\n{1}\n",
      program.name, roff(program.summary));
  page.text += ".SH COMMANDS\n";
  for (const CommandInfo& command : program.commands)
    page.text += fmt::format(".TP\n.BR {}\\-{} (1)\n{}\n", program.name, roff(command.name),
                             roff(command.summary));
  page.text += ".SH EXAMPLES\n" + verbatim(program.first_steps) + exit_status();
  return page;
}

}  // namespace

std::vector<ManPage> man_pages(const ProgramInfo& program) {
  std::vector<ManPage> pages = {first_page(program)};
  for (const CommandInfo& command : program.commands) pages.push_back(page_of(program, command));
  return pages;
}

}  // namespace meshplan::cli
