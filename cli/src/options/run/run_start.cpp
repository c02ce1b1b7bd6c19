#include "options/run/run_start.hpp"

#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "output/output.hpp"
#include "runtime/node_store/recovery.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"

namespace meshplan::cli {
namespace {

/// The checkpoint to continue from; nothing if a new run starts.
std::optional<std::string> checkpoint_to_resume(const RunOptions& options,
                                                const std::string& folder) {
  if (!options.resume) return std::nullopt;
  // With --memory-every the newest state may be in memory, where only the ranks see it.
  const bool may_be_elsewhere = options.train.checkpoints.memory.every > 0;
  if (options.resume == kLatestIfAny || (options.resume == kLatest && may_be_elsewhere))
    return runtime::newest_checkpoint(folder);
  return runtime::resolve_checkpoint(options.resume == kLatest ? folder : *options.resume);
}

/// The words between commas.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream parts(list);
  for (std::string word; std::getline(parts, word, ',');) words.push_back(word);
  return words;
}

/// The seed and the steps that the resumed run had, where none are given.
void take_over_settings(RunOptions& options) {
  const std::optional<runtime::RunState>& resumed = options.resumed;
  if (options.seed)
    options.train.seed = static_cast<std::uint64_t>(*options.seed);
  else if (resumed)
    options.train.seed = resumed->seed;
  if (options.steps)
    options.train.num_steps = *options.steps;
  else if (resumed && resumed->settings)
    options.train.num_steps = resumed->settings->num_steps;
}

}  // namespace

bool resumes_newest(const RunOptions& options) {
  return options.resume == kLatest || options.resume == kLatestIfAny;
}

std::string folder_to_save_to(const RunOptions& options) {
  if (options.checkpoint_dir) return *options.checkpoint_dir;
  if (options.resume && !resumes_newest(options))
    return std::filesystem::absolute(runtime::resolve_checkpoint(*options.resume)).parent_path();
  const runtime::CheckpointOptions& asked = options.train.checkpoints;
  const bool saves =
      asked.every > 0 || asked.device_mtbf_s || asked.memory.every > 0 || options.elastic.range;
  return options.resume || saves ? "checkpoints" : "";
}

void resolve_start(RunOptions& options) {
  runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  if (options.change && !options.resume)
    throw ConfigError(
        fmt::format("--change {}: is of a run that is resumed; add --resume, or leave it out",
                    *options.change));
  const bool may_start_anew = options.resume == kLatestIfAny;
  checkpoints.folder = folder_to_save_to(options);
  const std::optional<std::string> resumed = checkpoint_to_resume(options, checkpoints.folder);
  if (options.resume && options.init_from && !may_start_anew)
    throw ConfigError(
        "give --resume to continue a run or --init-from to start a new one, not both");
  if (resumed && may_start_anew) {
    options.init_from.reset();  // of the first start
    checkpoints.assume.clear();
  }
  checkpoints.resume = resumed.value_or("");
  checkpoints.memory.is_resumed = resumes_newest(options);
  checkpoints.init_from = options.init_from.value_or("");
  if (!checkpoints.init_from.empty() && !runtime::is_hugging_face_folder(checkpoints.init_from))
    checkpoints.init_from = runtime::resolve_checkpoint(checkpoints.init_from);
  if (resumed) options.resumed = runtime::run_state_of(*resumed);
  take_over_settings(options);
  checkpoints.changes = split(options.change.value_or(""));
  // The ranks find what is found here; of the newest state they decide themselves.
  if (resumed && !resumes_newest(options)) options.resume = resumed;
  if (!checkpoints.folder.empty()) options.checkpoint_dir = checkpoints.folder;
  if (!checkpoints.init_from.empty()) options.init_from = checkpoints.init_from;
}

void take_newest_state(RunOptions& options, runtime::Communicator& world,
                       const runtime::JobLayout& layout) {
  runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  runtime::check_same_start(world, checkpoints.folder,
                            options.resumed ? std::optional(options.resumed->step) : std::nullopt);
  checkpoints.memory.nodes = layout.host_of_rank;
  checkpoints.recovered = runtime::recover_state(world, checkpoints.memory, checkpoints.folder,
                                                 options.resumed, [&](const std::string& line) {
                                                   if (!options.quiet)
                                                     output(stderr, "meshplan: {}\n", line);
                                                 });
  if (checkpoints.recovered) {
    options.resumed = checkpoints.recovered->index().run;
    take_over_settings(options);
  } else if (options.resume == kLatest && !options.resumed) {
    runtime::resolve_checkpoint(checkpoints.folder);  // says that there is none
  }
}

bool continues(const RunOptions& options) {
  return options.resumed.has_value();
}

bool is_done(const RunOptions& options) {
  return options.resumed && !options.train.checkpoints.recovered &&
         options.resumed->step >= options.train.num_steps;
}

void say_done(const RunOptions& options) {
  if (options.quiet) return;
  const std::string& checkpoint = options.train.checkpoints.resume;
  if (options.json)
    output("{}\n", Json{{"schema_version", 1},
                        {"all_steps_done", options.train.num_steps},
                        {"checkpoint", checkpoint},
                        {"losses", Json::array()},
                        {"gradient_norms", Json::array()}}
                       .dump(2));
  else
    output("all {} steps are done: {}\n", options.train.num_steps, checkpoint);
  std::fflush(stdout);
}

}  // namespace meshplan::cli
