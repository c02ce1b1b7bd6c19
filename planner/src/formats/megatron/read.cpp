// A plan out of a launch script.
#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"
#include "core/quoting.hpp"
#include "formats/megatron/known_flags.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron/rule_facts.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "formats/megatron_launch/launch.hpp"
#include "formats/megatron_launch/missing.hpp"
#include "formats/megatron_launch/older_flags.hpp"
#include "formats/megatron_launch/test_case.hpp"
#include "formats/megatron_launch/training_kind.hpp"
#include "models/spec_difference.hpp"

namespace meshplan::planner {
namespace {

constexpr std::size_t kLongestFlag = 80;
constexpr int kMostUnknownFlags = 32;

using megatron::Argument;
using megatron::Flag;
using megatron::Missing;
using megatron::MissingArguments;
using megatron::Reading;
using megatron::UnknownSetting;

/// The preset with the same fields, whatever modules it predicts with, or the script's own name.
std::string name_of_model(models::ModelSpec spec, const std::string& file) {
  for (const std::string& name : models::preset_names()) {
    models::ModelSpec preset = models::load_preset(name);
    spec.name = name;
    preset.mtp_layers = spec.mtp_layers;
    preset.mtp_loss_coefficient = spec.mtp_loss_coefficient;
    if (models::differences(spec, preset).empty()) return name;
  }
  const std::string base = file.substr(file.find_last_of('/') + 1);
  return short_line(base.substr(0, base.find_last_of('.')));
}

/// Settings that depend on what is not known go to `missing`, and what follows from them is read
/// on.
void read_flags(Reading& reading, const std::optional<models::ModelSpec>& model,
                const std::set<std::string>& file_needs, Missing& missing) {
  if (!model) {
    for (const char* elsewhere : {"--yaml-cfg", "--use-checkpoint-args"})
      if (const Argument* given = reading.find(elsewhere); given && !reading.has("--num-layers"))
        Reading::fail(*given, "the model is described elsewhere; name it with --model");
  }
  if (model) reading.plan.model = *model;
  std::optional<ConfigError> first;
  for (const Flag& flag : megatron::flags()) {
    if (model && megatron::describes_model(flag.name)) continue;
    const Argument* given = reading.find(flag.name);
    try {
      if (!first)
        flag.read(reading, given);
      else if (given != nullptr)
        reading.texts(*given);
    } catch (const UnknownSetting& setting) {
      missing.take(setting);
    } catch (const ConfigError& error) {
      if (!first) first = error;
    }
  }
  for (const UnknownSetting& setting : reading.unknown_settings()) missing.take(setting);
  // What the sourced file would have set.
  if (first && !file_needs.empty() && !reading.has("--num-layers"))
    missing.take(shell::Unknown{{}, {}, file_needs, {}}, {"--num-layers"});
  // It may follow from what is missing.
  if (first && missing.empty()) throw ConfigError(*first);
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

namespace {

/// How many GPUs there are says how a cluster starts them: 8 a node.
std::map<std::string, std::string> environment_of(const ImportRequest& request) {
  std::map<std::string, std::string> environment = request.environment;
  if (!request.ranks) return environment;
  constexpr int kNode = 8;
  const std::string each = std::to_string(std::min(*request.ranks, kNode));
  const std::string nodes = std::to_string(std::max(1, *request.ranks / kNode));
  for (const char* name : {"GPUS_PER_NODE", "NPROC_PER_NODE", "NUM_GPUS_PER_NODE", "GPUS",
                           "NUM_GPUS", "N_GPUS", "KUBERNETES_CONTAINER_RESOURCE_GPU",
                           "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_NTASKS_PER_NODE"})
    environment.emplace(name, each);
  for (const char* name :
       {"NNODES", "NUM_NODES", "NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PET_NNODES"})
    environment.emplace(name, nodes);
  for (const char* name : {"NODE_RANK", "RANK", "SLURM_NODEID", "SLURM_PROCID", "PET_NODE_RANK"})
    environment.emplace(name, "0");
  environment.emplace("SLURM_NTASKS", std::to_string(*request.ranks));
  return environment;
}

/// What branches may add, once it is known which flags are read.
void take_undecided(const std::vector<shell::Unknown>& undecided, const Reading& reading,
                    Missing& missing, std::vector<std::string>& assumptions) {
  for (const shell::Unknown& word : undecided) {
    std::set<std::string> read;
    for (const std::string& flag : word.flags)
      if (flag == "--" || reading.was_read(flag)) read.insert(flag);
    if (!read.empty() && !word.needs.empty())
      missing.take(word, read);
    else if (!read.empty())
      assumptions.push_back(fmt::format("{}: taken as empty", word.why));
  }
}

ImportedPlan imported_plan(const ImportRequest& request, Reading& reading) {
  models::ModelSpec& model = reading.plan.model;
  if (reading.has("--perform-rl-step"))
    reading.assume("a step is one of training (rollouts of --perform-rl-step are not planned)");
  if (!request.model) model.name = name_of_model(model, request.main);
  models::validate(model, request.main);
  const program::ParallelConfig parallel = reading.plan.parallel;
  ImportedPlan imported{.plan = std::move(reading.plan),
                        .assumptions = std::move(reading.assumptions),
                        .facts = megatron::rule_facts(reading.arguments(), parallel)};
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

}  // namespace

ImportedPlan read_megatron_launch(const ImportRequest& request, const shell::Script& script,
                                  megatron::Launch launch) {
  const auto ranks = request.ranks ? std::optional<std::int64_t>(*request.ranks) : launch.ranks;
  megatron::replace_older_flags(launch.arguments);
  Reading reading(std::move(launch.arguments));
  reading.plan.stack.software = "megatron-core";
  reading.plan.stack.settings.recipes = false;  // flags that are not given are off
  reading.assumptions = script.assumptions;
  std::ranges::copy(launch.assumptions, std::back_inserter(reading.assumptions));
  try {
    megatron::require_decoder(reading, launch.program, request.main);
    Missing missing;
    read_flags(reading, request.model, script.file_needs, missing);
    take_undecided(launch.undecided, reading, missing, reading.assumptions);
    // From their number the variables of a cluster follow that settings may depend on.
    if (!missing.empty() && (ranks || missing.needs_arguments())) missing.refuse(script, request);
    if (!ranks)
      throw ConfigError(fmt::format(
          "{}: the number of GPUs is not known{}; give it with --gpus", request.main,
          launch.why_no_ranks.empty() ? "" : fmt::format(" ({})", launch.why_no_ranks)));
    take_last_batch(reading);
    complete_ranks(reading, *ranks, request.main);
  } catch (const MissingArguments&) {
    throw;
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    // Flags name their place; what is not given has none.
    const bool named = std::ranges::any_of(
        request.files, [&](const auto& file) { return message.starts_with(file.first + ":"); });
    throw ConfigError(named ? message : fmt::format("{}: {}", request.main, message));
  }
  return imported_plan(request, reading);
}

namespace {

ImportedPlan read_with_arguments(const ImportRequest& request) {
  const shell::Script script =
      shell::read_script(request.files, request.main, environment_of(request), request.open);
  return read_megatron_launch(request, script, megatron::launch_of(script, request.main));
}

}  // namespace

ImportedPlan read_megatron(const ImportRequest& request) {
  if (megatron::is_test_case(request.main, request.files.at(request.main)))
    return read_megatron_launch(request, {}, megatron::launch_of_test_case(request));
  ImportRequest given = request;
  if (request.arguments) {
    int number = 0;
    for (std::string& word : shell::shell_words(*request.arguments))
      given.environment.insert_or_assign(std::to_string(++number), std::move(word));
  }
  try {
    return read_with_arguments(given);
  } catch (const MissingArguments& missing) {
    // Somebody may have written down how it is started.
    const bool has_arguments = given.environment.contains("1");
    if (has_arguments || missing.last_needed == 0) throw;
    const auto usage =
        megatron::documented_usage(given, static_cast<std::size_t>(missing.last_needed));
    if (!usage) throw;
    std::string line;
    for (std::size_t i = 0; i < usage->arguments.size(); ++i) {
      given.environment.insert_or_assign(std::to_string(i + 1), usage->arguments[i]);
      line += (i > 0 ? " " : "") + shell_quoted(usage->arguments[i]);
    }
    const std::string given_as =
        fmt::format("{} (as {} has it)", printable_line(line), usage->place);
    try {
      ImportedPlan imported = read_with_arguments(given);
      imported.assumptions.insert(imported.assumptions.begin(),
                                  fmt::format("arguments: {}; others with --args", given_as));
      return imported;
    } catch (const ConfigError& error) {
      const std::string first = missing.what();
      const auto example = first.find("; for example: ");
      throw ConfigError(fmt::format("{}; with arguments {}{}", error.what(), given_as,
                                    example == std::string::npos ? "" : first.substr(example)));
    }
  }
}

bool recognizes_megatron(std::string_view name, std::string_view text) {
  if (megatron::is_test_case(name, text)) return true;
  if (name.ends_with(".json") || name.ends_with(".py") || name.ends_with(".yaml")) return false;
  const auto has = [&](std::string_view flag) { return text.find(flag) != std::string_view::npos; };
  return has("--tensor-model-parallel-size") || has("--pipeline-model-parallel-size") ||
         (has("--num-layers") && has("--hidden-size"));
}

}  // namespace meshplan::planner
