// meshplan checkpoint: what a checkpoint or a Hugging Face model holds, and the way from one to the
// other.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands/commands.hpp"
#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/units.hpp"
#include "output/output.hpp"
#include "process/exit_codes.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"

namespace meshplan::cli {
namespace {

struct CheckpointOptions {
  std::optional<std::string> action;
  std::optional<std::string> folder;
  std::optional<std::string> to;
  std::optional<std::string> out;
  std::optional<std::string> model_type;
  std::string assume;
  std::optional<std::string> dtype;
  double max_shard_gb = 5;
  bool json = false;
};

const std::vector<std::string> kCheckpointActions = {"inspect", "export"};

/// What `inspect` found, for both kinds of folders; absent fields are not printed.
using Facts = std::vector<std::pair<std::string, Json>>;

std::int64_t count_parameters(const models::ModelSpec& spec) {
  std::int64_t total = 0;
  for (const runtime::GlobalParameter& parameter : runtime::global_parameters(spec))
    total += runtime::whole_box(parameter.shape).elements();
  return total;
}

Facts facts_of(runtime::Checkpoint& checkpoint) {
  checkpoint.verify();
  const runtime::CheckpointIndex& index = checkpoint.index();
  const program::Plan plan = checkpoint.plan();
  std::set<std::string> states;
  for (const auto& tensor : index.manifest.tensors) states.insert(tensor.state);
  std::int64_t bytes = 0;
  for (const auto& file : index.manifest.files) bytes += file.bytes;
  Facts facts = {{"kind", "meshplan checkpoint"},
                 {"folder", checkpoint.folder()},
                 {"model", plan.model.name},
                 {"parameters", count_parameters(plan.model)},
                 {"step", index.run.step},
                 {"sequences", index.run.next_sequence},
                 {"seed", index.run.seed},
                 {"data", index.run.data.file},
                 {"plan", program::to_string(plan.parallel)},
                 {"plan_hash", index.plan_hash},
                 {"precision", program::precision_name(plan.workload)},
                 {"states", states},
                 {"files", index.manifest.files.size()},
                 {"bytes", bytes}};
  if (!index.run.losses.empty()) facts.emplace_back("last_loss", index.run.losses.back());
  std::vector<std::string> companions;
  for (const auto& file : index.companions) companions.push_back(file.name);
  if (!companions.empty()) facts.emplace_back("travels_along", companions);
  facts.emplace_back("intact", true);
  return facts;
}

Facts facts_of(const runtime::HuggingFaceModel& model) {
  Facts facts = {{"kind", "Hugging Face model"},     {"folder", model.folder()},
                 {"model_type", model.model_type()}, {"parameters", count_parameters(model.spec())},
                 {"tensors", model.num_tensors()},   {"dtype", model.dtype_names()},
                 {"files", model.num_files()}};
  std::vector<std::string> companions;
  for (const auto& [name, text] : model.companions()) companions.push_back(name);
  facts.emplace_back("travels_along", companions);
  if (!model.ignored().empty()) facts.emplace_back("not_needed", model.ignored());
  if (!model.config().assumptions.empty())
    facts.emplace_back("assumed", model.config().assumptions);
  return facts;
}

std::string text_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::vector<std::string> items;
  for (const Json& item : value) items.push_back(text_of(item));
  return fmt::format("{}", fmt::join(items, ", "));
}

int inspect(const CheckpointOptions& options) {
  Facts facts;
  if (runtime::is_hugging_face_folder(*options.folder)) {
    facts = facts_of(runtime::HuggingFaceModel(*options.folder, options.assume));
  } else {
    runtime::Checkpoint checkpoint(runtime::resolve_checkpoint(*options.folder));
    facts = facts_of(checkpoint);
  }
  if (options.json) {
    Json root{{"schema_version", 1}};
    for (const auto& [key, value] : facts) root[key] = value;
    output("{}\n", root.dump(2, ' ', false, Json::error_handler_t::replace));
    return kDone;
  }
  for (auto& [key, value] : facts) {
    std::string name = key;
    std::ranges::replace(name, '_', ' ');
    output("{:<14}{}\n", name, text_of(value));
  }
  return kDone;
}

int export_to(const CheckpointOptions& options) {
  if (!options.out)
    throw ConfigError("--out is missing; for example --out exported (a folder to be created)");
  if (!(options.max_shard_gb > 0 && options.max_shard_gb <= limits::kRate))
    throw ConfigError(fmt::format("--max-shard-gb {}: must be more than 0, at most {}",
                                  options.max_shard_gb, limits::kRate));
  runtime::Checkpoint checkpoint(runtime::resolve_checkpoint(*options.folder));
  const program::Plan plan = checkpoint.plan();
  const runtime::ExportedModel written = runtime::export_hugging_face(
      checkpoint, plan.model, checkpoint.companions(),
      {.folder = *options.out,
       .model_type = options.model_type.value_or(""),
       .dtype = options.dtype ? parse_dtype(*options.dtype) : plan.workload.precision,
       .max_shard_bytes = static_cast<std::int64_t>(options.max_shard_gb * 1e9)});
  output("{}: {} of step {}, {} tensors, {:.1f} MiB in {}\n", *options.out, written.model_type,
         checkpoint.index().run.step, written.tensors, static_cast<double>(written.bytes) / kMib,
         fmt::join(written.files, ", "));
  for (const std::string& line : written.left_out) output("left out  {}\n", line);
  return kDone;
}

int run(const CheckpointOptions& options) {
  if (!options.action ||
      std::ranges::find(kCheckpointActions, *options.action) == kCheckpointActions.end())
    throw ConfigError(options.action
                          ? unknown_name_message("action", *options.action, kCheckpointActions)
                          : "what to do? usage: meshplan checkpoint inspect DIR");
  if (!options.folder)
    throw ConfigError(
        fmt::format("which checkpoint? usage: meshplan checkpoint {} DIR", *options.action));
  return *options.action == "inspect" ? inspect(options) : export_to(options);
}

}  // namespace

void add_checkpoint_command(CommandLine& line) {
  const auto options = std::make_shared<CheckpointOptions>();
  Command command =
      line.add("checkpoint", "Inspect checkpoints; export them as Hugging Face models");
  command.positional("action", options->action, "inspect (verifies every hash) or export")
      .suggests({"inspect", "export"})
      .positional("folder", options->folder,
                  "a checkpoint, a folder of them (the newest), or a Hugging Face model")
      .is_path()
      .group("export")
      .choice("--to", options->to, {"hf"}, "format; default: hf")
      .option("--out", options->out, "folder to create")
      .is_path()
      .choice("--dtype", options->dtype, {"fp32", "bf16", "fp16"},
              "of the weights; default: the precision of the plan")
      .choice("--model-type", options->model_type, runtime::hugging_face_families(),
              "default: that of the model it was imported from, else the first that fits")
      .option("--max-shard-gb", options->max_shard_gb, "largest weight file, in GB (10^9 bytes)")
      .group("CheckpointOptions")
      .option("--assume", options->assume,
              "inspect: read the config.json of another model_type as if it were of this one")
      .flag("--json", options->json, "print the facts for programs")
      .examples(
          "  meshplan checkpoint inspect checkpoints\n"
          "  meshplan checkpoint export checkpoints/step-1000 --to hf --out exported --dtype bf16")
      .on_run([options] { return run(*options); });
}

}  // namespace meshplan::cli
