#include "formats/megatron_launch/missing.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "core/quoting.hpp"

namespace meshplan::planner::megatron {
namespace {

constexpr int kMostArgument = 4096;
constexpr std::size_t kMostListed = 40;

std::optional<int> argument_number(const std::string& name) {
  return parse_integer(name, 1, kMostArgument);
}

/// A value that is accepted for the flags, or in sums of the script, where nothing is known of it.
std::string value_for(const std::set<std::string>& flags, const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kValues = {
      {{"--tensor-model-parallel-size", "1"},
       {"--pipeline-model-parallel-size", "1"},
       {"--context-parallel-size", "1"},
       {"--expert-model-parallel-size", "1"},
       {"--micro-batch-size", "1"},
       {"--global-batch-size", "256"},
       {"--seq-length", "4096"},
       {"--optimizer", "adam"},
       {"--lr", "1e-4"},
       {"--min-lr", "1e-5"}}};
  for (const auto& [flag, value] : kValues)
    if (flags.contains(std::string(flag))) return std::string(value);
  const auto names = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const bool warmup = names("WARMUP");
  if (names("TOKENS")) return warmup ? "10000000" : "1000000000";
  if (names("ITERS") || names("STEPS")) return warmup ? "10" : "1000";
  if (flags.empty() && (names("PATH") || names("DIR") || names("DATA"))) return "none";
  return "1";
}

}  // namespace

void Missing::take(const UnknownSetting& setting) {
  if (setting.needs.empty() && !first_) first_ = setting;
  for (const std::string& need : setting.needs) flags_of_[need].insert(setting.flag);
}

void Missing::take(const shell::Unknown& word, const std::set<std::string>& flags) {
  for (const std::string& need : word.needs) flags_of_[need].insert(flags.begin(), flags.end());
}

bool Missing::needs_arguments() const {
  return std::ranges::any_of(
      flags_of_, [](const auto& each) { return argument_number(each.first).has_value(); });
}

std::string Missing::listed(const shell::Script& script) const {
  constexpr std::size_t kMostChoices = 6;
  constexpr std::size_t kMostFlags = 3;
  // Arguments in their order, then variables.
  std::vector<std::string> needs;
  for (const auto& [need, flags] : flags_of_) needs.push_back(need);
  std::ranges::stable_sort(needs, {}, [](const std::string& need) {
    return argument_number(need).value_or(kMostArgument + 1);
  });
  std::vector<std::string> all;
  for (const std::string& need : needs) {
    std::string text = need;
    if (argument_number(need)) {
      const auto name = script.argument_names.find(need);
      text = name == script.argument_names.end() ? "$" + need
                                                 : fmt::format("{} (${})", name->second, need);
    }
    std::vector<std::string> notes;
    if (const auto found = script.choices.find(need); found != script.choices.end()) {
      std::vector<std::string> choices = found->second;
      if (choices.size() > kMostChoices) choices.resize(kMostChoices);
      notes.push_back(fmt::format("one of {}", fmt::join(choices, ", ")));
    }
    std::vector<std::string> flags(flags_of_.at(need).begin(), flags_of_.at(need).end());
    if (flags.size() > kMostFlags) {
      flags.resize(kMostFlags);
      flags.emplace_back("...");
    }
    notes.push_back(fmt::format("for {}", fmt::join(flags, " ")));
    all.push_back(fmt::format("{} {}", text, fmt::join(notes, ", ")));
    if (all.size() == kMostListed) break;
  }
  return fmt::format("{}", fmt::join(all, "; "));
}

std::string Missing::example(const shell::Script& script, const ImportRequest& request) const {
  const auto value_of = [&](const std::string& need) -> std::string {
    if (const auto found = script.choices.find(need); found != script.choices.end())
      return found->second.front();
    const auto flags = flags_of_.find(need);
    const auto name = script.argument_names.find(need);
    return value_for(flags == flags_of_.end() ? std::set<std::string>() : flags->second,
                     name == script.argument_names.end() ? need : name->second);
  };
  std::string line = fmt::format("meshplan import {}", shell_quoted(request.main));
  if (request.ranks) line += fmt::format(" --gpus {}", *request.ranks);
  if (needs_arguments()) {
    std::vector<std::string> arguments;
    for (int i = 1; i <= script.last_argument; ++i) {
      const auto given = request.environment.find(std::to_string(i));
      arguments.push_back(shell_quoted(
          given == request.environment.end() ? value_of(std::to_string(i)) : given->second));
    }
    line += fmt::format(" --args {}", shell_quoted(fmt::format("{}", fmt::join(arguments, " "))));
  }
  for (const auto& [need, flags] : flags_of_)
    if (!argument_number(need))
      line += " --env " + shell_quoted(fmt::format("{}={}", need, value_of(need)));
  return line;
}

void Missing::refuse(const shell::Script& script, const ImportRequest& request) const {
  if (flags_of_.empty()) throw UnknownSetting(*first_);
  MissingArguments error(
      printable_line(fmt::format("{}: settings depend on what is not given: {}; for example: {}",
                                 request.main, listed(script), example(script, request))));
  for (const auto& [need, flags] : flags_of_)
    error.last_needed = std::max(error.last_needed, argument_number(need).value_or(0));
  throw MissingArguments(error);
}

}  // namespace meshplan::planner::megatron
