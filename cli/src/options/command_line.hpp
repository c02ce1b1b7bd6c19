// Flags, positionals and help of the subcommands, without the parsing library's templates: only
// command_line.cpp includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/enum_names.hpp"
#include "options/description.hpp"
#include "output/terminal.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace meshplan::cli {

/// An option that the command line gave.
struct GivenOption {
  std::string flag;        // "--tp"
  std::string value;       // "4"; empty for a flag
  std::string plan_path;   // where a plan's file says the same: "parallel.tp"; empty = nowhere
  std::string plan_value;  // and how: "4", "true"
  bool beside_plan = false;
};

/// One subcommand. Targets must live until the command has run; their values are the defaults that
/// help shows. An option is declared once: its name, target and help, and behind it what else is to
/// be said of it (is_path(), at_least(), in_plan() ...).
class Command {
 public:
  explicit Command(CLI::App& app);

  Command& option(const std::string& flags, std::string& target, const std::string& help);
  Command& option(const std::string& flags, int& target, const std::string& help);
  Command& option(const std::string& flags, std::int64_t& target, const std::string& help);
  Command& option(const std::string& flags, double& target, const std::string& help);
  Command& option(const std::string& flags, std::optional<std::string>& target,
                  const std::string& help);
  Command& option(const std::string& flags, std::optional<int>& target, const std::string& help);
  Command& option(const std::string& flags, std::optional<std::int64_t>& target,
                  const std::string& help);
  Command& option(const std::string& flags, std::optional<double>& target, const std::string& help);
  /// "1,2,3"
  Command& option(const std::string& flags, std::vector<int>& target, const std::string& help);
  /// May be given several times, each time with one value.
  Command& option(const std::string& flags, std::vector<std::string>& target,
                  const std::string& help);
  /// One of `choices`; anything else is bad input that names the nearest of them.
  Command& choice(const std::string& flags, std::optional<std::string>& target,
                  const std::vector<std::string>& choices, const std::string& help);
  /// One of the names in E's table, but for those of `without`.
  template <NamedEnum E>
  Command& choice(const std::string& flags, std::optional<E>& target, const std::string& help,
                  std::initializer_list<E> without = {}) {
    std::vector<std::string> names = all_names<E>();
    for (const E value : without) std::erase(names, name_of(value));
    return choice(
        flags, names, [&target](const std::string& name) { target = from_name<E>(name); },
        [&target] {
          return target ? std::vector{std::string(name_of(*target))} : std::vector<std::string>{};
        },
        help);
  }
  Command& flag(const std::string& flags, bool& target, const std::string& help);
  /// "--sp" and "--no-sp" for the name "sp"; neither leaves `target` empty.
  Command& on_off(const std::string& name, std::optional<bool>& target, const std::string& help);
  /// May be left out.
  Command& positional(const std::string& name, std::optional<std::string>& target,
                      const std::string& help);
  /// Everything after "--". Ranks do not get it.
  Command& rest(std::vector<std::string>& target, const std::string& help);

  /// The option before names a file or folder: ranks, which may start elsewhere, get it absolute.
  Command& is_path();
  /// A file or folder is a value of the option before, too; for completion.
  Command& takes_file();
  /// The JSON of such a file is a value as well.
  Command& takes_json();
  /// Values that completion offers for the option before; others are values as well.
  Command& suggests(std::vector<std::string> values);
  /// The number of the option before is not less; else the command ends with bad input.
  Command& at_least(double least);
  /// The number of the option before is within these bounds; else the command ends with bad input
  /// that names the nearest of them.
  Command& between(double least, double most);
  /// The option before says what a plan's file says at this path.
  Command& in_plan(const std::string& path);
  /// The option before may be given beside a plan's file.
  Command& beside_plan();
  /// The option before, a text, may be given without a value: it is empty then.
  Command& value_is_optional();
  /// The option before is of the process that starts the ranks; all others reach them.
  Command& of_launcher();

  /// The options that follow are listed under this title.
  Command& group(const std::string& title);
  /// Shown under the options.
  Command& examples(const std::string& text);
  /// @param run  returns the exit code
  Command& on_run(std::function<int()> run);

  /// The options of a group that the command line gave.
  std::vector<GivenOption> given(const std::string& group) const;
  /// All options but --help.
  std::vector<OptionInfo> options() const;
  CommandInfo info() const;
  /// The command line that gives ranks what the targets hold now.
  std::vector<std::string> arguments_of_ranks() const;

 private:
  /// What a target holds, as text; empty: nothing that must be said.
  using Values = std::function<std::vector<std::string>()>;
  struct Declaration;
  struct Declared;

  /// What is to be said of the declarations that the last call made.
  std::span<Declaration> last_declared();
  /// @throws ConfigError
  static void check_bounds(const std::vector<Declaration>& declared);
  Command& declare(CLI::Option* option, ValueKind kind, Values values);
  template <class T>
  Command& add_value(const std::string& flags, T& target, const std::string& help);
  template <class T>
  Command& add_optional(const std::string& flags, std::optional<T>& target,
                        const std::string& help);
  Command& choice(const std::string& flags, const std::vector<std::string>& choices,
                  const std::function<void(const std::string&)>& set, Values values,
                  const std::string& help);

  CLI::App* app_;
  std::string group_ = "Options";
  std::shared_ptr<Declared> declared_;  // by the copies of a command together
  std::size_t last_ = 0;                // the first declaration that the last call made
};

/// "0.1.0"
std::string program_version();

class CommandLine {
 public:
  explicit CommandLine(Terminal terminal);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command add(const std::string& name, const std::string& summary);
  const Terminal& terminal() const { return terminal_; }
  ProgramInfo info() const;

  /// Parses and runs one subcommand for a caller that is no shell.
  /// @param words  without the program's name. @throws ConfigError for a wrong line
  void call(const std::vector<std::string>& words);
  /// Parses and runs one subcommand. @returns its exit code; 0 for help, kBadInput for a wrong line
  int run(int argc, char** argv);

 private:
  Terminal terminal_;
  std::unique_ptr<CLI::App> app_;
  std::vector<Command> commands_;
};

}  // namespace meshplan::cli
