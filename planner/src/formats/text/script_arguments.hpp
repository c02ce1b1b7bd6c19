// What the launch script beside a configuration tells the program that it starts: batch, sequence
// and optimizer are often there alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/formats/formats.hpp"
#include "shell/script.hpp"

namespace meshplan::planner {

class ScriptArguments {
 public:
  ScriptArguments() = default;
  /// Reads the script (*.sh) among the files that names the configuration; of several the first, by
  /// name. One that cannot be read is listed and left out. Behind it, what the request gives as
  /// arguments (--args).
  explicit ScriptArguments(const ImportRequest& request);

  /// "--NAME VALUE" behind all others. @param place  where it was said: "train.yaml: optim"
  void add(std::string_view name, std::string value, std::string place);
  /// The words of a command, as "--NAME VALUE" and "--NAME=VALUE".
  void add(const shell::ScriptCommand& command);
  /// Those of --args, which say it last.
  void add_given(const ImportRequest& request);
  /// Is nothing known of how the program is started?
  bool empty() const { return arguments_.empty() && unknown_.empty(); }

  /// The last value of "--NAME VALUE" or "--NAME=VALUE", '-' and '_' being the same; absent where
  /// nobody can know it without running the script.
  std::optional<std::string> text(std::string_view name) const;
  /// Is "--NAME" there, with a value or without?
  bool has(std::string_view name) const;
  /// A switch: "--NAME" alone, or with a word of truth (HfArgumentParser's: yes, true, t, y, 1).
  /// @throws ConfigError naming file, line, argument and what was expected
  std::optional<bool> flag(std::string_view name) const;
  /// @throws ConfigError naming file, line, argument and what was expected
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low,
                                      std::int64_t high) const;
  std::optional<double> number(std::string_view name) const;

  /// What could not be read: arguments whose value the script leaves to whoever runs it,
  /// "FILE:LINE: ...", and scripts.
  const std::vector<std::string>& unknown() const { return unknown_; }

 private:
  struct Argument {
    std::string name;  // without dashes, '_' inside
    std::optional<std::string> value;
    std::string place;  // "run.sh:12"
  };
  const Argument* find(std::string_view name) const;

  std::vector<Argument> arguments_;
  std::vector<std::string> unknown_;
};

/// The plan's batch, sequence and optimizer as arguments that scripts on Hugging Face's Trainer
/// take, without quotes. @param steps  of the run
std::vector<std::string> trainer_arguments(const program::Plan& plan, int steps);

/// These arguments of the run as the end of a script's last command, with what the script is given.
std::string trainer_words(const program::Plan& plan);

/// Learning rate, moments, decay and clipping, where they are given.
void apply_optimizer_arguments(const ScriptArguments& arguments,
                               program::OptimizerConfig& optimizer);

/// @throws ConfigError naming the file if a step has more sequences than any plan may
std::int64_t sequences_of_step(std::int64_t micro_batch_size, std::int64_t dp,
                               std::int64_t accumulation, std::string_view file);

/// The length of sequences alone, where the configuration says the rest; lists also what the script
/// leaves open.
void apply_sequence_argument(const ScriptArguments& arguments, ImportedPlan& imported);

/// Reads them back: micro_batch_size, global_batch_size, seq_len, optimizer.
/// @param accumulation  micro-batches of a step, where the configuration itself says so
/// @param imported  its plan's model and degrees are set; gets what the script leaves open
void apply_trainer_arguments(const ScriptArguments& arguments, std::optional<int> accumulation,
                             std::string_view file, ImportedPlan& imported);

}  // namespace meshplan::planner
