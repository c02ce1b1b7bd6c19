#include "options/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"

namespace meshplan::cli {
namespace {

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

}  // namespace

/// What the declaration of an option says of it.
struct Command::Declaration {
  CLI::Option* option = nullptr;
  Values values;
  std::vector<std::string> choices;
  std::string plan_path;
  std::string plan_value;  // of a flag
  std::optional<double> least;
  bool is_path = false;
  bool beside_plan = false;
  bool reaches_ranks = true;

  bool is_positional() const { return option->get_positional(); }
  bool takes_value() const { return option->get_items_expected_max() != 0; }
};

Command::Command(CLI::App& app)
    : app_(&app), declared_(std::make_shared<std::vector<Declaration>>()) {}

Command& Command::declare(CLI::Option* option, Values values) {
  if (!option->get_positional()) option->group(group_);
  last_ = declared_->size();
  declared_->push_back({.option = option, .values = std::move(values)});
  return *this;
}

template <class T>
Command& Command::add_value(const std::string& flags, T& target, const std::string& help) {
  return declare(app_->add_option(flags, target, help)->capture_default_str(),
                 [&target] { return texts_of(target); });
}

template <class T>
Command& Command::add_optional(const std::string& flags, std::optional<T>& target,
                               const std::string& help) {
  return declare(app_->add_option_function<T>(
                     flags, [&target](const T& value) { target = value; }, help),
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
  return declare(app_->add_option(flags, target, help)->delimiter(','),
                 [&target] { return texts_of(fmt::format("{}", fmt::join(target, ","))); });
}

Command& Command::option(const std::string& flags, std::vector<std::string>& target,
                         const std::string& help) {
  return declare(app_->add_option(flags, target, help)->allow_extra_args(false),
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
          std::move(values));
  declared_->back().choices = choices;
  return *this;
}

Command& Command::choice(const std::string& flags, std::optional<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& help) {
  return choice(
      flags, choices, [&target](const std::string& name) { target = name; },
      [&target] { return texts_of(target.value_or("")); }, help);
}

Command& Command::flag(const std::string& flags, bool& target, const std::string& help) {
  declare(app_->add_flag(flags, target, help),
          [&target] { return texts_of(target ? "true" : ""); });
  declared_->back().plan_value = "true";
  return *this;
}

Command& Command::on_off(const std::string& name, std::optional<bool>& target,
                         const std::string& help) {
  const std::size_t first = declared_->size();
  for (const bool on : {true, false}) {
    declare(app_->add_flag_callback((on ? "--" : "--no-") + name, [&target, on] { target = on; },
                                    on ? help : "not " + name),
            [&target, on] { return texts_of(target == on ? "true" : ""); });
    declared_->back().plan_value = on ? "true" : "false";
  }
  last_ = first;
  return *this;
}

Command& Command::positional(const std::string& name, std::optional<std::string>& target,
                             const std::string& help) {
  return add_optional(name, target, help);
}

Command& Command::rest(std::vector<std::string>& target, const std::string& help) {
  declare(app_->add_option("rest", target, help), [] { return std::vector<std::string>{}; });
  return of_launcher();
}

std::span<Command::Declaration> Command::last_declared() {
  return std::span(*declared_).subspan(last_);
}

Command& Command::is_path() {
  for (Declaration& declared : last_declared()) declared.is_path = true;
  return *this;
}
Command& Command::at_least(double least) {
  for (Declaration& declared : last_declared()) declared.least = least;
  return *this;
}
Command& Command::in_plan(const std::string& path) {
  for (Declaration& declared : last_declared()) declared.plan_path = path;
  return *this;
}
Command& Command::beside_plan() {
  for (Declaration& declared : last_declared()) declared.beside_plan = true;
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
  app_->footer("\nExamples:\n" + text);
  return *this;
}

void Command::check_bounds(const std::vector<Declaration>& declared) {
  for (const Declaration& declaration : declared) {
    if (!declaration.least) continue;
    for (const std::string& value : declaration.values())
      if (!(std::stod(value) >= *declaration.least))
        throw ConfigError(fmt::format("{} {}: must be at least {}", flag_of(*declaration.option),
                                      value, *declaration.least));
  }
}

Command& Command::on_run(std::function<int()> run) {
  // The exit code travels by exception: the library's callbacks return nothing.
  app_->final_callback([run = std::move(run), declared = declared_] {
    check_bounds(*declared);
    const int code = run();
    if (code != kDone) throw CLI::RuntimeError(code);
  });
  return *this;
}

std::vector<GivenOption> Command::given(const std::string& group) const {
  std::vector<GivenOption> given;
  for (const Declaration& declared : *declared_) {
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
  for (const Declaration& declared : *declared_)
    options.push_back({.flag = flag_of(*declared.option),
                       .is_positional = declared.is_positional(),
                       .takes_value = declared.takes_value(),
                       .choices = declared.choices,
                       .reaches_ranks = declared.reaches_ranks});
  return options;
}

std::vector<std::string> Command::arguments_of_ranks() const {
  std::vector<std::string> arguments = {app_->get_name()};
  for (const Declaration& declared : *declared_) {
    if (!declared.reaches_ranks) continue;
    for (const std::string& value : declared.values()) {
      if (!declared.is_positional()) arguments.push_back(flag_of(*declared.option));
      if (declared.takes_value())
        arguments.push_back(declared.is_path ? std::filesystem::absolute(value).string() : value);
    }
  }
  return arguments;
}

CommandLine::CommandLine(Terminal terminal)
    : terminal_(terminal),
      app_(std::make_unique<CLI::App>("Plans, predicts and runs parallel training of transformers.",
                                      "meshplan")) {
  app_->require_subcommand(0, 1);  // none shows the help
  app_->set_version_flag("--version", std::string("meshplan ") + MESHPLAN_VERSION);
  app_->footer(
      "\nStart with:\n"
      "  meshplan plan --model llama3-70b --cluster dgx-h100 --gpus 128 --global-batch 1024\n\n"
      "Exit codes: 0 done, 1 the run failed, 2 bad input, 3 nothing feasible, 130 interrupted.");
}

CommandLine::~CommandLine() = default;

Command CommandLine::add(const std::string& name, const std::string& summary) {
  CLI::App* app = app_->add_subcommand(name, summary);
  app->get_formatter()->column_width(34);
  return Command(*app);
}

int CommandLine::run(int argc, char** argv) {
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
