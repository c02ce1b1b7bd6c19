#include "options/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"

namespace meshplan::cli {
namespace {

template <class T>
CLI::Option* add_optional(CLI::App& app, const std::string& flags, std::optional<T>& target,
                          const std::string& help) {
  return app.add_option_function<T>(
      flags, [&target](const T& value) { target = value; }, help);
}

template <class T>
CLI::Option* add_with_default(CLI::App& app, const std::string& flags, T& target,
                              const std::string& help) {
  return app.add_option(flags, target, help)->capture_default_str();
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

Command& Command::option(const std::string& flags, std::string& target, const std::string& help) {
  add_with_default(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, int& target, const std::string& help) {
  add_with_default(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::int64_t& target, const std::string& help) {
  add_with_default(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, double& target, const std::string& help) {
  add_with_default(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::optional<std::string>& target,
                         const std::string& help) {
  add_optional(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::optional<int>& target,
                         const std::string& help) {
  add_optional(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::optional<std::int64_t>& target,
                         const std::string& help) {
  add_optional(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::optional<double>& target,
                         const std::string& help) {
  add_optional(*app_, flags, target, help)->group(group_);
  return *this;
}
Command& Command::option(const std::string& flags, std::vector<int>& target,
                         const std::string& help) {
  app_->add_option(flags, target, help)->delimiter(',')->group(group_);
  return *this;
}

Command& Command::option(const std::string& flags, std::vector<std::string>& target,
                         const std::string& help) {
  app_->add_option(flags, target, help)->allow_extra_args(false)->group(group_);
  return *this;
}

Command& Command::choice(const std::string& flags, std::optional<std::string>& target,
                         const std::vector<std::string>& choices, const std::string& help) {
  const auto known = [choices](const std::string& given) -> std::string {
    if (std::ranges::find(choices, given) != choices.end()) return "";
    return unknown_name_message("value", given, choices);
  };
  std::string names;
  for (const std::string& name : choices) names += (names.empty() ? "" : "|") + name;
  add_optional(*app_, flags, target, help)->check(known)->type_name(names)->group(group_);
  return *this;
}

Command& Command::flag(const std::string& flags, bool& target, const std::string& help) {
  app_->add_flag(flags, target, help)->group(group_);
  return *this;
}

Command& Command::on_off(const std::string& name, std::optional<bool>& target,
                         const std::string& help) {
  app_->add_flag_callback(
          "--" + name, [&target] { target = true; }, help)
      ->group(group_);
  app_->add_flag_callback(
          "--no-" + name, [&target] { target = false; }, "not " + name)
      ->group(group_);
  return *this;
}

Command& Command::positional(const std::string& name, std::optional<std::string>& target,
                             const std::string& help) {
  add_optional(*app_, name, target, help);
  return *this;
}

Command& Command::rest(std::vector<std::string>& target, const std::string& help) {
  app_->add_option("rest", target, help);
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

Command& Command::on_run(std::function<int()> run) {
  // The exit code travels by exception: the library's callbacks return nothing.
  app_->final_callback([run = std::move(run)] {
    const int code = run();
    if (code != kDone) throw CLI::RuntimeError(code);
  });
  return *this;
}

std::vector<GivenOption> Command::given(const std::string& group) const {
  std::vector<GivenOption> given;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group() != group || option->count() == 0) continue;
    const bool is_flag = option->get_items_expected_max() == 0;
    given.push_back(
        {option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames().front(),
         is_flag ? "" : fmt::format("{}", fmt::join(option->results(), ","))});
  }
  return given;
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
