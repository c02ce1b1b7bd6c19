#include "formats/megatron_launch/launch.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/words.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "formats/megatron_launch/training_kind.hpp"

namespace meshplan::planner::megatron {
namespace {

using shell::Value;

/// A command with one of these trains.
constexpr std::array kSignatures = {"--num-layers", "--tensor-model-parallel-size",
                                    "--micro-batch-size", "--hidden-size",
                                    "--pipeline-model-parallel-size"};

bool is_signature(std::string_view word) {
  return std::ranges::any_of(kSignatures, [&](std::string_view flag) {
    return word == flag || (word.starts_with(flag) && word[flag.size()] == '=');
  });
}

/// Words of a string that holds flags, as "--flag value" in an item of a quoted array.
std::vector<Value> spread(const std::vector<Value>& words) {
  std::vector<Value> all;
  for (const Value& word : words) {
    const std::vector<std::string> parts = words_of(word.text);
    const bool holds_flags = parts.size() > 1 && std::ranges::any_of(parts, is_signature);
    if (!holds_flags) {
      all.push_back(word);
      continue;
    }
    for (const std::string& part : parts)
      if (part != "\\") all.push_back(part_of(word, part));
  }
  return all;
}

int count_signatures(const std::vector<Value>& words) {
  return static_cast<int>(
      std::ranges::count_if(words, [](const Value& word) { return is_signature(word.text); }));
}

const std::map<std::string_view, int>& operands_of_flags() {
  static const auto kOperands = [] {
    std::map<std::string_view, int> all;
    for (const Flag& flag : flags()) all.emplace(flag.name, flag.operands);
    return all;
  }();
  return kOperands;
}

/// What the launcher in front of the program says of ranks.
class RankCounter {
 public:
  RankCounter(const std::vector<Value>& launcher, const std::vector<std::string>& directives) {
    for (std::size_t i = 0; i < launcher.size(); ++i) {
      if (launcher[i].text.find("torchrun") != std::string::npos ||
          launcher[i].text.starts_with("torch.distributed"))
        is_torchrun_ = true;
      const Value* next = i + 1 < launcher.size() ? &launcher[i + 1] : nullptr;
      take(launcher[i], next);
    }
    for (std::size_t i = 0; i < directives.size(); ++i) {
      const Value next{i + 1 < directives.size() ? directives[i + 1] : "", {}};
      take_directive(Value{directives[i], {}}, &next);
    }
  }

  std::optional<std::int64_t> ranks() const {
    const std::optional<std::int64_t> nodes = nodes_ ? nodes_ : slurm_nodes_;
    const std::optional<std::int64_t> each = per_node_ ? per_node_ : slurm_per_node_;
    if (!unknown_.empty()) return std::nullopt;
    if (is_torchrun_) return nodes.value_or(1) * each.value_or(1);
    if (all_) return all_;
    if (nodes && each) return *nodes * *each;
    return std::nullopt;
  }
  const std::string& unknown() const { return unknown_; }

 private:
  /// "--nnodes=4" and "--nnodes 4", with '-' and '_' alike.
  static bool is_option(std::string_view word, std::initializer_list<std::string_view> names,
                        std::string_view& joined) {
    const auto equals = word.find('=');
    std::string name(word.substr(0, equals));
    std::ranges::replace(name, '_', '-');
    joined = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    return std::ranges::find(names, name) != names.end();
  }

  void set(std::optional<std::int64_t>& target, const Value& word, std::string_view joined,
           const Value* next) {
    const Value* value = joined.empty() ? next : &word;
    if (value == nullptr) return;
    if (!value->known()) {
      unknown_ = value->unknown.front().why;
      return;
    }
    // "8" of "gpu:8" and of "1:8"
    std::string text(joined.empty() ? next->text : std::string(joined));
    text = text.substr(text.find_last_of(':') + 1);
    if (const auto number = parse_integer(text, 1, static_cast<int>(limits::kRanks)))
      target = *number;
    else
      unknown_ = fmt::format("'{}' is no number of ranks", short_line(text));
  }

  void take(const Value& word, const Value* next) {
    std::string_view joined;
    if (is_option(word.text, {"--nproc-per-node", "--nproc-per-machine", "--ntasks-per-node"},
                  joined))
      set(per_node_, word, joined, next);
    else if (is_option(word.text, {"--nnodes", "--nodes", "-N"}, joined))
      set(nodes_, word, joined, next);
    else if (is_option(word.text, {"--ntasks", "-n", "-np"}, joined))
      set(all_, word, joined, next);
  }

  void take_directive(const Value& word, const Value* next) {
    std::string_view joined;
    if (is_option(word.text, {"--nodes", "-N"}, joined))
      set(slurm_nodes_, word, joined, next);
    else if (is_option(word.text, {"--gpus-per-node", "--gres"}, joined) ||
             (is_option(word.text, {"--ntasks-per-node"}, joined) && !slurm_per_node_))
      set(slurm_per_node_, word, joined, next);
  }

  bool is_torchrun_ = false;
  std::optional<std::int64_t> nodes_;
  std::optional<std::int64_t> per_node_;
  std::optional<std::int64_t> all_;
  std::optional<std::int64_t> slurm_nodes_;
  std::optional<std::int64_t> slurm_per_node_;
  std::string unknown_;
};

/// Scripts that define arguments for others, or start in ways that are not followed: the variables
/// that hold flags, in the order in which they were set.
std::vector<Value> words_of_variables(const shell::Script& script,
                                      std::vector<std::string>& names) {
  std::vector<Value> words;
  for (const std::string& name : script.order) {
    const auto found = script.variables.find(name);
    if (found == script.variables.end()) continue;
    const std::vector<Value> items = spread(found->second.items);
    const bool holds_flags =
        std::ranges::any_of(items, [](const Value& item) { return item.text.starts_with("--"); });
    if (!holds_flags) continue;
    names.push_back(name);
    words.insert(words.end(), items.begin(), items.end());
  }
  return words;
}

}  // namespace

void take_arguments(const std::vector<Value>& words, const std::string& place, Launch& launch) {
  std::vector<Argument>& arguments = launch.arguments;
  for (const Value& word : words) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const auto equals = word.text.find('=');
      Argument argument{word.text.substr(0, equals), {}, place};
      if (equals != std::string::npos)
        argument.values.push_back(part_of(word, word.text.substr(equals + 1)));
      arguments.push_back(std::move(argument));
      continue;
    }
    // What a branch may add stands alone, and is no operand.
    const bool may_hold_flags = word.unknown.size() == 1 &&
                                word.text == word.unknown.front().written &&
                                !word.unknown.front().flags.empty();
    if (may_hold_flags) {
      launch.undecided.push_back(word.unknown.front());
      continue;
    }
    const auto operands = arguments.empty() ? operands_of_flags().end()
                                            : operands_of_flags().find(arguments.back().flag);
    const bool is_full = operands != operands_of_flags().end() && operands->second >= 0 &&
                         static_cast<int>(arguments.back().values.size()) >= operands->second;
    if (arguments.empty() || is_full) {
      if (!word.known())
        launch.assumptions.push_back(
            fmt::format("{}: {}: taken as empty", place, word.unknown.front().why));
      else if (is_full)
        throw ConfigError(fmt::format(
            "{}: {} takes {}, and '{}' follows it", place, short_line(arguments.back().flag),
            operands->second == 0 ? "no value" : fmt::format("{} value(s)", operands->second),
            short_line(word.text)));
      continue;
    }
    arguments.back().values.push_back(word);
  }
}

namespace {

/// The program among a command's words: its file, or the module behind -m; its end where none is
/// named.
std::vector<Value>::const_iterator program_in(const std::vector<Value>& words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word->text.starts_with("--") && is_signature(word->text)) break;
    if (word->text.ends_with(".py")) return word;
    const auto next = word + 1;
    if (word->text == "-m" && next != words.end() && !next->text.starts_with("torch.") &&
        next->text != "deepspeed" && next->text.find("launch") != 0)
      return next;
  }
  return words.end();
}

/// What the script starts instead of a training: "evaluate.py, which evaluates".
std::string other_programs(const shell::Script& script) {
  for (const shell::ScriptCommand& command : script.commands) {
    const auto program = program_in(command.words);
    if (program == command.words.end()) continue;
    const std::string what = other_purpose(program->text);
    if (!what.empty()) return fmt::format("{}, which {}", short_line(program->text), what);
  }
  return {};
}

}  // namespace

Launch launch_of(const shell::Script& script, const std::string& file) {
  Launch launch;
  std::vector<Value> words;
  std::string place = file;
  int most = 0;
  int trainings = 0;
  for (const shell::ScriptCommand& command : script.commands) {
    std::vector<Value> candidate = spread(command.words);
    const int signatures = count_signatures(candidate);
    if (signatures > 0) ++trainings;
    if (signatures == 0 || signatures < most) continue;
    most = signatures;
    words = std::move(candidate);
    place = fmt::format("{}:{}", command.file, command.line);
  }
  if (trainings > 1)
    launch.assumptions.push_back(
        fmt::format("{} commands start a training: the one of {} is read", trainings, place));
  if (most == 0) {
    std::vector<std::string> names;
    words = words_of_variables(script, names);
    const std::string other = other_programs(script);
    if (!other.empty())
      throw ConfigError(fmt::format("{}: starts no training, but {}", file, other));
    if (count_signatures(words) == 0)
      throw ConfigError(
          fmt::format("{}: starts nothing with Megatron-LM's flags, such as --num-layers and "
                      "--tensor-model-parallel-size",
                      file));
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    launch.assumptions.push_back(
        fmt::format("no command of the script starts a training: flags are those of {}", all));
  }
  const auto program = program_in(words);
  const auto first = program == words.end() ? words.cbegin() : program;
  const std::string purpose = program == words.end() ? "" : other_purpose(program->text);
  if (!purpose.empty())
    throw ConfigError(fmt::format("{}: starts no training, but {}, which {}", place,
                                  short_line(program->text), purpose));
  const RankCounter counter({words.cbegin(), first}, script.directives);
  launch.ranks = counter.ranks();
  launch.why_no_ranks = counter.unknown();
  const auto begin = program == words.end() ? first : first + 1;
  if (program != words.end()) launch.program = program->text;
  take_arguments({begin, words.cend()}, place, launch);
  return launch;
}

}  // namespace meshplan::planner::megatron
