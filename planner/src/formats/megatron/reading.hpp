// The command line of a Megatron-LM job on its way to a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "program/plan/plan.hpp"
#include "shell/value.hpp"

namespace meshplan::planner::megatron {

/// A flag with its operands.
struct Argument {
  std::string flag;  // "--num-layers"
  std::vector<shell::Value> values;
  std::string place;  // "run.sh:23"

  /// As it would stand on a command line.
  std::string written() const;
};

/// A setting's value depends on what the script's caller has not said.
struct UnknownSetting : ConfigError {
  UnknownSetting(const Argument& argument, const shell::Value& value);
  std::string flag;
  std::set<std::string> needs;  // as shell::Unknown has them; empty: it is a command's output
};

/// What has been read, and helpers to read it. Refusals name place, flag and value.
class Reading {
 public:
  explicit Reading(std::vector<Argument> arguments) : arguments_(std::move(arguments)) {}

  program::Plan plan;
  std::vector<std::string> assumptions;

  const std::vector<Argument>& arguments() const { return arguments_; }
  /// The last one of this name, as argparse reads them; null if there is none.
  const Argument* find(std::string_view flag) const;
  /// Has it been asked for?
  bool was_read(const std::string& flag) const { return asked_.contains(flag); }
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  void assume(std::string what) { assumptions.push_back(std::move(what)); }

  /// The only operand. @throws ConfigError where it is missing, UnknownSetting where not known
  const std::string& text(const Argument& argument) const;
  std::vector<std::string> texts(const Argument& argument) const;
  // Numbers and choices that are not known are noted, and the lowest or first is read on with: a
  // script is refused with all of them at once.
  std::int64_t integer(const Argument& argument, std::int64_t low, std::int64_t high) const;
  double number(const Argument& argument, double low, double high) const;
  /// One of the choices. @returns its index
  std::size_t choice(const Argument& argument, std::span<const std::string> choices) const;

  const std::vector<UnknownSetting>& unknown_settings() const { return unknown_; }

  [[noreturn]] static void fail(const Argument& argument, std::string_view why);

 private:
  std::vector<Argument> arguments_;
  /// Is it known? If not, that is noted.
  bool note(const Argument& argument) const;

  mutable std::set<std::string, std::less<>> asked_;
  mutable std::vector<UnknownSetting> unknown_;
};

}  // namespace meshplan::planner::megatron
