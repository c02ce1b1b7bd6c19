#include "options/run_start.hpp"

#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "output/output.hpp"
#include "runtime/weights/checkpoint.hpp"
#include "runtime/weights/hugging_face_weights.hpp"

namespace meshplan::cli {
namespace {

bool resumes_newest(const RunOptions& options) {
  return options.resume == kLatest || options.resume == kLatestIfAny;
}

/// Where checkpoints are saved; "" = nowhere.
std::string folder_to_save_to(const RunOptions& options) {
  if (options.checkpoint_dir) return *options.checkpoint_dir;
  if (options.resume && !resumes_newest(options))
    return std::filesystem::absolute(runtime::resolve_checkpoint(*options.resume)).parent_path();
  return options.resume || options.train.checkpoints.every > 0 ? "checkpoints" : "";
}

/// The checkpoint to continue from; nothing if a new run starts.
std::optional<std::string> checkpoint_to_resume(const RunOptions& options,
                                                const std::string& folder) {
  if (!options.resume) return std::nullopt;
  if (options.resume == kLatestIfAny) return runtime::newest_checkpoint(folder);
  return runtime::resolve_checkpoint(options.resume == kLatest ? folder : *options.resume);
}

/// The words between commas.
std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream parts(list);
  for (std::string word; std::getline(parts, word, ',');) words.push_back(word);
  return words;
}

}  // namespace

void resolve_start(RunOptions& options) {
  runtime::CheckpointOptions& checkpoints = options.train.checkpoints;
  if (options.change && !options.resume)
    throw ConfigError(
        fmt::format("--change {}: is of a run that is resumed; add --resume, or leave it out",
                    *options.change));
  const bool may_start_anew = options.resume == kLatestIfAny;
  checkpoints.folder = folder_to_save_to(options);
  options.resume = checkpoint_to_resume(options, checkpoints.folder);
  if (options.resume && options.init_from && !may_start_anew)
    throw ConfigError(
        "give --resume to continue a run or --init-from to start a new one, not both");
  if (options.resume && may_start_anew) {
    options.init_from.reset();  // of the first start
    checkpoints.assume.clear();
  }
  if (!options.resume) options.change.reset();
  checkpoints.resume = options.resume.value_or("");
  checkpoints.init_from = options.init_from.value_or("");
  if (!checkpoints.init_from.empty() && !runtime::is_hugging_face_folder(checkpoints.init_from))
    checkpoints.init_from = runtime::resolve_checkpoint(checkpoints.init_from);
  if (options.resume) options.resumed = runtime::run_state_of(*options.resume);
  if (!options.seed && options.resumed)
    options.seed = static_cast<std::int64_t>(options.resumed->seed);
  if (options.seed) options.train.seed = static_cast<std::uint64_t>(*options.seed);
  if (!options.steps && options.resumed && options.resumed->settings)
    options.steps = options.resumed->settings->num_steps;
  options.train.num_steps = options.steps.value_or(options.train.num_steps);
  checkpoints.changes = split(options.change.value_or(""));
  // The ranks find what is found here, whatever is saved until they begin.
  if (!checkpoints.folder.empty()) options.checkpoint_dir = checkpoints.folder;
  if (!checkpoints.init_from.empty()) options.init_from = checkpoints.init_from;
}

bool is_done(const RunOptions& options) {
  return options.resumed && options.resumed->step >= options.train.num_steps;
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
