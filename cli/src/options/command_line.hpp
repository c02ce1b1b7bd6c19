// Flags, positionals and help of the subcommands, without the parsing library's templates: only
// command_line.cpp includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "output/terminal.hpp"

namespace CLI {
class App;
}

namespace meshplan::cli {

/// As it was given: "--tp" and "4"; the value of a flag is empty.
struct GivenOption {
  std::string flag;
  std::string value;
};

/// One subcommand. Targets must live until the command has run; their values are the defaults that
/// help shows.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

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
  Command& flag(const std::string& flags, bool& target, const std::string& help);
  /// "--sp" and "--no-sp" for the name "sp"; neither leaves `target` empty.
  Command& on_off(const std::string& name, std::optional<bool>& target, const std::string& help);
  /// May be left out.
  Command& positional(const std::string& name, std::optional<std::string>& target,
                      const std::string& help);
  /// Everything after "--".
  Command& rest(std::vector<std::string>& target, const std::string& help);

  /// The options that follow are listed under this title.
  Command& group(const std::string& title);
  /// Shown under the options.
  Command& examples(const std::string& text);
  /// @param run  returns the exit code
  Command& on_run(std::function<int()> run);

  /// The options of a group that the command line gave.
  std::vector<GivenOption> given(const std::string& group) const;

 private:
  CLI::App* app_;
  std::string group_ = "Options";
};

class CommandLine {
 public:
  explicit CommandLine(Terminal terminal);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command add(const std::string& name, const std::string& summary);
  const Terminal& terminal() const { return terminal_; }

  /// Parses and runs one subcommand. @returns its exit code; 0 for help, kBadInput for a wrong line
  int run(int argc, char** argv);

 private:
  Terminal terminal_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace meshplan::cli
