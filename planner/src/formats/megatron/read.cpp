// A plan out of a launch script.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron/flag.hpp"
#include "formats/megatron/known_flags.hpp"
#include "formats/megatron/launch.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron/rule_facts.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::planner {
namespace {

constexpr std::size_t kLongestFlag = 80;
constexpr int kMostUnknownFlags = 32;

using megatron::Argument;
using megatron::Flag;
using megatron::Group;
using megatron::Reading;

bool describes_model(Group group) {
  return group == Group::Model || group == Group::Experts;
}

/// The preset with the same fields, or the script's own name.
std::string name_of_model(models::ModelSpec spec, const std::string& file) {
  for (const std::string& preset : models::preset_names()) {
    spec.name = preset;
    if (models::differences(spec, models::load_preset(preset)).empty()) return preset;
  }
  const std::string base = file.substr(file.find_last_of('/') + 1);
  return short_line(base.substr(0, base.find_last_of('.')));
}

void read_flags(Reading& reading, const std::optional<models::ModelSpec>& model) {
  if (!model) {
    for (const char* elsewhere : {"--yaml-cfg", "--use-checkpoint-args"})
      if (const Argument* given = reading.find(elsewhere); given && !reading.has("--num-layers"))
        Reading::fail(*given, "the model is described elsewhere; name it with --model");
  }
  if (model) reading.plan.model = *model;
  for (const Flag& flag : megatron::flags()) {
    if (model && describes_model(flag.group)) continue;
    flag.read(reading, reading.find(flag.name));
  }
}

/// What depends on the number of ranks.
void complete_ranks(Reading& reading, std::int64_t ranks, const std::string& file) {
  program::Plan& plan = reading.plan;
  program::ParallelConfig& p = plan.parallel;
  const std::int64_t replica = std::int64_t{p.tp} * p.pp * p.cp;
  if (replica > limits::kRanks || ranks % replica != 0)
    throw ConfigError(fmt::format(
        "{}: {} ranks are no multiple of tp({}) * pp({}) * cp({}) = {}; nearest: {}", file, ranks,
        p.tp, p.pp, p.cp, replica, std::max<std::int64_t>(1, ranks / replica) * replica));
  p.dp = static_cast<int>(ranks / replica);
  if (plan.workload.global_batch_size == 0) {
    plan.workload.global_batch_size = std::int64_t{plan.micro_batch_size} * p.dp;
    reading.assume(
        fmt::format("global_batch_size = micro_batch_size * dp = {} (Megatron-LM's "
                    "default)",
                    plan.workload.global_batch_size));
  }
  const int sharers = p.dp * p.cp;
  if (sharers == 1) plan.zero_stage = 0;
  if (const Argument* copies = reading.find("--num-distributed-optimizer-instances")) {
    const auto number = reading.integer(*copies, 1, limits::kRanks);
    if (sharers % number != 0)
      Reading::fail(*copies,
                    fmt::format("does not divide dp({}) * cp({}) = {}; nearest: {}", p.dp, p.cp,
                                sharers, nearest_divisor(sharers, static_cast<int>(number))));
    if (number > 1 && plan.zero_stage > 0)
      plan.zero_shard_group = sharers / static_cast<int>(number);
  }
}

/// The last batch of --step-batch-size-schedule "0:16 2.4B:320", where none stands beside it.
void take_last_batch(Reading& reading) {
  const Argument* schedule = reading.find("--step-batch-size-schedule");
  if (schedule == nullptr || reading.plan.workload.global_batch_size > 0) return;
  const std::vector<std::string> steps = reading.texts(*schedule);
  const std::string last = steps.empty() ? "" : steps.back().substr(steps.back().rfind(':') + 1);
  const auto batch = parse_integer(last, 1, 1 << 30);
  if (!batch) Reading::fail(*schedule, "expected steps such as '0:768 250B:1536'");
  reading.plan.workload.global_batch_size = *batch;
}

}  // namespace

ImportedPlan read_megatron(const ImportRequest& request) {
  const shell::Script script = shell::read_script(request.files, request.main, request.environment);
  megatron::Launch launch = megatron::launch_of(script, request.main);
  const auto ranks = request.ranks ? std::optional<std::int64_t>(*request.ranks) : launch.ranks;
  if (!ranks)
    throw ConfigError(
        fmt::format("{}: the number of GPUs is not known{}; give it with --gpus", request.main,
                    launch.why_no_ranks.empty() ? "" : fmt::format(" ({})", launch.why_no_ranks)));
  Reading reading(std::move(launch.arguments));
  reading.assumptions = script.assumptions;
  std::ranges::copy(launch.assumptions, std::back_inserter(reading.assumptions));
  try {
    read_flags(reading, request.model);
    take_last_batch(reading);
    complete_ranks(reading, *ranks, request.main);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    // Flags name their place; what is not given has none.
    const bool named = std::ranges::any_of(
        request.files, [&](const auto& file) { return message.starts_with(file.first + ":"); });
    throw ConfigError(named ? message : fmt::format("{}: {}", request.main, message));
  }
  models::ModelSpec& model = reading.plan.model;
  if (reading.has("--mtp-num-layers"))
    reading.assume("mtp_layers = 0 (multi-token prediction is not planned by this version)");
  if (!request.model) model.name = name_of_model(model, request.main);
  models::validate(model, request.main);
  const program::ParallelConfig parallel = reading.plan.parallel;
  ImportedPlan imported{.plan = std::move(reading.plan),
                        .software = "megatron-core",
                        .assumptions = std::move(reading.assumptions),
                        .facts = megatron::rule_facts(reading.arguments(), parallel),
                        .settings = reading.settings};
  int unknown = 0;
  for (const Argument& argument : reading.arguments()) {
    if (reading.was_read(argument.flag)) continue;
    imported.ignored.push_back(argument.written());
    // Looking for the nearest of all flags takes a while.
    const bool is_name = argument.flag.size() <= kLongestFlag;
    if (!megatron::is_known_flag(argument.flag) && is_name && ++unknown <= kMostUnknownFlags)
      imported.assumptions.push_back(
          fmt::format("{}: Megatron-LM d98e8a64 has no {}; nearest: {}", argument.place,
                      argument.flag, nearest_choice(argument.flag, megatron::known_flags())));
  }
  return imported;
}

bool recognizes_megatron(std::string_view name, std::string_view text) {
  if (name.ends_with(".json") || name.ends_with(".py") || name.ends_with(".yaml")) return false;
  const auto has = [&](std::string_view flag) { return text.find(flag) != std::string_view::npos; };
  return has("--tensor-model-parallel-size") || has("--pipeline-model-parallel-size") ||
         (has("--num-layers") && has("--hidden-size"));
}

}  // namespace meshplan::planner
