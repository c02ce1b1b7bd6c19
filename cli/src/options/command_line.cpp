#include "options/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <concepts>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "core/line.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"

namespace meshplan::cli {
namespace {

constexpr const char* kFirstSteps =
    "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024";

// A target as text; empty: nothing that must be said.
std::vector<std::string> texts_of(const std::string& value) {
  return value.empty() ? std::vector<std::string>{} : std::vector{value};
}
std::vector<std::string> texts_of(int value) {
  return {fmt::format("{}", value)};
}
std::vector<std::string> texts_of(std::int64_t value) {
  return {fmt::format("{}", value)};
}
std::vector<std::string> texts_of(double value) {
  return {fmt::format("{}", value)};
}

template <class T>
constexpr ValueKind kind_of() {
  if constexpr (std::same_as<T, std::string>) return ValueKind::Text;
  if constexpr (std::integral<T>) return ValueKind::Integer;
  if constexpr (std::floating_point<T>) return ValueKind::Number;
}

std::string flag_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : "--" + option.get_lnames().front();
}

// The parsing library knows what it did not expect; we add what was probably meant.
std::string with_nearest_name(const CLI::App& app, const CLI::ParseError& error, int argc,
                              char** argv) {
  std::string message = error.what();
  std::vector<std::string> known;
  const CLI::App* command = &app;
  for (const CLI::App* chosen : app.get_subcommands()) command = chosen;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  if (command == &app) {
    known.clear();
    for (const CLI::App* candidate : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(candidate->get_name());
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr &&
      dynamic_cast<const CLI::RequiredError*>(&error) == nullptr)
    return message;
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i];
    const std::string name = given.substr(0, given.find('='));
    const bool is_candidate = command == &app ? name.front() != '-' : name.rfind("--", 0) == 0;
    if (is_candidate && std::ranges::find(known, name) == known.end())
      return fmt::format("unknown {} '{}'; did you mean '{}'?",
                         command == &app ? "command" : "option", name, nearest_choice(name, known));
  }
  return message;
}

/// A word names files, hosts and settings, which messages, logs and scripts name again on lines of
/// theirs; JSON and values of variables may have several lines.
/// @throws ConfigError for a line break elsewhere
void require_lines(int argc, char** argv) {
  bool is_variable = false;  // behind --env
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool joined = word.starts_with("--") && word.find('=') != std::string_view::npos;
    const std::string_view value = joined ? word.substr(word.find('=') + 1) : word;
    const std::size_t begin = value.find_first_not_of(" \t\r\n");
    const bool is_json = begin != std::string_view::npos && value[begin] == '{';
    const bool free = is_json || is_variable || word.starts_with("--env=");
    is_variable = word == "--env";
    if (!free && word.find('\n') != std::string_view::npos)
      throw ConfigError(fmt::format(
          "argument {}: '{}': holds a line break; expected one line (a file of such a name must be "
          "renamed)",
          i, short_line(word)));
  }
}

}  // namespace

/// What the declaration of an option says of it.
struct Command::Declaration {
  CLI::Option* option = nullptr;
  ValueKind kind = ValueKind::Nothing;
  Values values;
  std::vector<std::string> choices;
  std::vector<std::string> suggestions;
  std::string plan_path;
  std::string plan_value;  // of a flag
  std::optional<double> least;
  std::optional<double> most;
  bool is_path = false;
  bool takes_file = false;
  bool takes_json = false;
  bool negates = false;
  bool beside_plan = false;
  bool reaches_ranks = true;

  bool is_positional() const { return option->get_positional(); }
  bool takes_value() const { return kind != ValueKind::Nothing; }
  /// Words that are suggested beside paths are none.
  bool names_path(const std::string& value) const {
    return is_path && std::ranges::find(suggestions, value) == suggestions.end();
  }
};

struct Command::Declared {
  std::vector<Declaration> options;
  std::string examples;
};

Command::Command(CLI::App& app) : app_(&app), declared_(std::make_shared<Declared>()) {}

Command& Command::declare(CLI::Option* option, ValueKind kind, Values values) {
  if (!option->get_positional()) option->group(group_);
  last_ = declared_->options.size();
  declared_->options.push_back({.option = option, .kind = kind, .values = std::move(values)});
  return *this;
}

template <class T>
Command& Command::add_value(const std::string& flags, T& target, const std::string& help) {
  return declare(app_->add_option(flags, target, help)->capture_default_str(), kind_of<T>(),
                 [&target] { return texts_of(target); });
}

template <class T>
Command& Command::add_optional(const std::string& flags, std::optional<T>& target,
                               const std::string& help) {
  return declare(app_->add_option_function<T>(
                     flags, [&target](const T& value) { target = value; }, help),
                 kind_of<T>(),
                 [&target] { return target ? texts_of(*target) : std::vector<std::string>{}; });
}

Command& Command::option(const std::string& flags, std::string& target, const std::string& help) {
  return add_value(flags, target, help);
}
Command& Command::option(const std::string& flags, int& target, const std::string& help) {
  return add_value(flags, target, help);
}
Command& Command::option(const std::string& flags, std::int64_t& target, const std::string& help) {
  return add_value(flags, target, help);
}
Command& Command::option(const std::string& flags, double& target, const std::string& help) {
  return add_value(flags, target, help);
}
Command& Command::option(const std::string& flags, std::optional<std::string>& target,
                         const std::string& help) {
  return add_optional(flags, target, help);
}
Command& Command::option(const std::string& flags, std::optional<int>& target,
                         const std::string& help) {
  return add_optional(flags, target, help);
}
Command& Command::option(const std::string& flags, std::optional<std::int64_t>& target,
                         const std::string& help) {
  return add_optional(flags, target, help);
}
Command& Command::option(const std::string& flags, std::optional<double>& target,
                         const std::string& help) {
  return add_optional(flags, target, help);
}
Command& Command::option(const std::string& flags, std::vector<int>& target,
                         const std::string& help) {
  return declare(app_->add_option(flags, target, help)->delimiter(','), ValueKind::Integers,
                 [&target] { return texts_of(fmt::format("{}", fmt::join(target, ","))); });
}

Command& Command::option(const std::string& flags, std::vector<std::string>& target,
                         const std::string& help) {
  return declare(app_->add_option(flags, target, help)->allow_extra_args(false), ValueKind::Texts,
                 [&target] { return target; });
}

Command& Command::choice(const std::string& flags, const std::vector<std::string>& choices,
                         const std::function<void(const std::string&)>& set, Values values,
                         const std::string& help) {
  const auto known = [choices](const std::string& given) -> std::string {
    if (std::ranges::find(choices, given) != choices.end()) return "";
    return unknown_name_message("value", given, choices);
  };
  declare(app_->add_option_function<std::string>(flags, set, help)
              ->check(known)
              ->type_name(fmt::format("{}", fmt::join(choices, "|"))),
          ValueKind::Text, std::move(values));
  declared_->options.back().choices = choices;
  return *this;
}

Command& Command::choice(const std::string& flags, std::optional<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& help) {
  return choice(
      flags, choices, [&target](const std::string& name) { target = name; },
      [&target] { return texts_of(target.value_or("")); }, help);
}

Command& Command::flag(const std::string& flags, bool& target, const std::string& help) {
  declare(app_->add_flag(flags, target, help), ValueKind::Nothing,
          [&target] { return texts_of(target ? "true" : ""); });
  declared_->options.back().plan_value = "true";
  return *this;
}

Command& Command::on_off(const std::string& name, std::optional<bool>& target,
                         const std::string& help) {
  const std::size_t first = declared_->options.size();
  for (const bool on : {true, false}) {
    declare(app_->add_flag_callback((on ? "--" : "--no-") + name, [&target, on] { target = on; },
                                    on ? help : "not " + name),
            ValueKind::Nothing, [&target, on] { return texts_of(target == on ? "true" : ""); });
    declared_->options.back().plan_value = on ? "true" : "false";
    declared_->options.back().negates = !on;
  }
  last_ = first;
  return *this;
}

Command& Command::positional(const std::string& name, std::optional<std::string>& target,
                             const std::string& help) {
  return add_optional(name, target, help);
}

Command& Command::rest(std::vector<std::string>& target, const std::string& help) {
  declare(app_->add_option("rest", target, help), ValueKind::Texts,
          [] { return std::vector<std::string>{}; });
  return of_launcher();
}

std::span<Command::Declaration> Command::last_declared() {
  return std::span(declared_->options).subspan(last_);
}

Command& Command::is_path() {
  for (Declaration& declared : last_declared()) declared.is_path = true;
  return takes_file();
}
Command& Command::takes_file() {
  for (Declaration& declared : last_declared()) declared.takes_file = true;
  return *this;
}
Command& Command::takes_json() {
  for (Declaration& declared : last_declared()) declared.takes_json = true;
  return *this;
}
Command& Command::suggests(std::vector<std::string> values) {
  last_declared().back().suggestions = std::move(values);
  return *this;
}
Command& Command::at_least(double least) {
  for (Declaration& declared : last_declared()) declared.least = least;
  return *this;
}
Command& Command::between(double least, double most) {
  for (Declaration& declared : last_declared()) declared.most = most;
  return at_least(least);
}
Command& Command::in_plan(const std::string& path) {
  for (Declaration& declared : last_declared()) declared.plan_path = path;
  return *this;
}
Command& Command::beside_plan() {
  for (Declaration& declared : last_declared()) declared.beside_plan = true;
  return *this;
}
Command& Command::value_is_optional() {
  for (Declaration& declared : last_declared()) declared.option->expected(0, 1);
  return *this;
}
Command& Command::of_launcher() {
  for (Declaration& declared : last_declared()) declared.reaches_ranks = false;
  return *this;
}

Command& Command::group(const std::string& title) {
  group_ = title;
  return *this;
}

Command& Command::examples(const std::string& text) {
  declared_->examples = text;
  app_->footer("\nExamples:\n" + text);
  return *this;
}

void Command::check_bounds(const std::vector<Declaration>& declared) {
  for (const Declaration& declaration : declared) {
    if (!declaration.least) continue;
    const double least = *declaration.least;
    const std::string flag = flag_of(*declaration.option);
    for (const std::string& value : declaration.values()) {
      const double number = std::stod(value);
      if (!declaration.most && !(number >= least))
        throw ConfigError(fmt::format("{} {}: must be at least {}", flag, value, least));
      if (declaration.most && !(number >= least && number <= *declaration.most))
        throw ConfigError(fmt::format("{} {}: must be from {} to {}; nearest: {}", flag, value,
                                      least, *declaration.most,
                                      number > least ? *declaration.most : least));
    }
  }
}

Command& Command::on_run(std::function<int()> run) {
  // The exit code travels by exception: the library's callbacks return nothing.
  app_->final_callback([run = std::move(run), declared = declared_] {
    check_bounds(declared->options);
    const int code = run();
    if (code != kDone) throw CLI::RuntimeError(code);
  });
  return *this;
}

std::vector<GivenOption> Command::given(const std::string& group) const {
  std::vector<GivenOption> given;
  for (const Declaration& declared : declared_->options) {
    const CLI::Option& option = *declared.option;
    if (option.get_group() != group || option.count() == 0) continue;
    const std::string value = fmt::format("{}", fmt::join(option.results(), ","));
    given.push_back({.flag = flag_of(option),
                     .value = declared.takes_value() ? value : "",
                     .plan_path = declared.plan_path,
                     .plan_value = declared.takes_value() ? value : declared.plan_value,
                     .beside_plan = declared.beside_plan});
  }
  return given;
}

std::vector<OptionInfo> Command::options() const {
  std::vector<OptionInfo> options;
  for (const Declaration& declared : declared_->options) {
    const CLI::Option& option = *declared.option;
    OptionInfo info{.flag = flag_of(option),
                    .names = {},
                    .help = option.get_description(),
                    .group = declared.is_positional() ? "Arguments" : option.get_group(),
                    .value = declared.kind,
                    .value_name = declared.takes_value() ? option.get_type_name() : "",
                    .default_value = option.get_default_str(),
                    .is_positional = declared.is_positional(),
                    .choices = declared.choices,
                    .most = declared.most,
                    .suggestions = declared.suggestions,
                    .takes_file = declared.takes_file,
                    .takes_json = declared.takes_json,
                    .negates = declared.negates,
                    .reaches_ranks = declared.reaches_ranks};
    for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
    options.push_back(std::move(info));
  }
  return options;
}

CommandInfo Command::info() const {
  return {.name = app_->get_name(),
          .summary = app_->get_description(),
          .options = options(),
          .examples = declared_->examples};
}

std::vector<std::string> Command::arguments_of_ranks() const {
  std::vector<std::string> arguments = {app_->get_name()};
  for (const Declaration& declared : declared_->options) {
    if (!declared.reaches_ranks) continue;
    for (const std::string& value : declared.values()) {
      if (!declared.is_positional()) arguments.push_back(flag_of(*declared.option));
      if (declared.takes_value())
        arguments.push_back(declared.names_path(value) ? std::filesystem::absolute(value).string()
                                                       : value);
    }
  }
  return arguments;
}

std::string program_version() {
  return MESHPLAN_VERSION;
}

CommandLine::CommandLine(Terminal terminal)
    : terminal_(terminal),
      app_(std::make_unique<CLI::App>("Plans, predicts and runs parallel training of transformers.",
                                      "meshplan")) {
  app_->require_subcommand(0, 1);  // none shows the help
  app_->set_version_flag("--version", "meshplan " + program_version());
  std::vector<std::string> codes;
  for (const ExitCode& code : kExitCodes)
    codes.push_back(fmt::format("{} {}", code.value, code.meaning));
  app_->footer(
      fmt::format("\nStart with:\n{}\n\nExit codes: {}.", kFirstSteps, fmt::join(codes, ", ")));
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& summary) {
  CLI::App* app = app_->add_subcommand(name, summary);
  app->get_formatter()->column_width(34);
  return commands_.emplace_back(*app);
}

ProgramInfo CommandLine::info() const {
  ProgramInfo info{.name = app_->get_name(),
                   .version = program_version(),
                   .date = MESHPLAN_DATE,
                   .summary = app_->get_description(),
                   .first_steps = kFirstSteps,
                   .commands = {}};
  for (const Command& command : commands_) info.commands.push_back(command.info());
  return info;
}

void CommandLine::call(const std::vector<std::string>& words) {
  std::vector<std::string> line = {app_->get_name()};
  line.insert(line.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : line) pointers.push_back(word.data());
  const int argc = static_cast<int>(pointers.size());
  try {
    app_->parse(argc, pointers.data());
  } catch (const CLI::ParseError& error) {
    throw ConfigError(with_nearest_name(*app_, error, argc, pointers.data()));
  }
}

int CommandLine::run(int argc, char** argv) {
  require_lines(argc, argv);
  try {
    app_->parse(argc, argv);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success))
      return app_->exit(error);  // help and version
    output(stderr, "meshplan: {}\n", with_nearest_name(*app_, error, argc, argv));
    std::string help = "meshplan --help";
    for (const CLI::App* chosen : app_->get_subcommands())
      help = fmt::format("meshplan {} --help", chosen->get_name());
    output(stderr, "see {}\n", help);
    return kBadInput;
  }
  if (app_->get_subcommands().empty()) output("{}", app_->help());
  return kDone;
}

}  // namespace meshplan::cli
