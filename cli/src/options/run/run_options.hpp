// The flags of `run`, each declared once: those that its ranks need reach them by that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options/command_line.hpp"
#include "options/device_options.hpp"
#include "options/host_options.hpp"
#include "options/inputs.hpp"
#include "options/optimizer_options.hpp"
#include "options/run/elastic_options.hpp"
#include "options/whole_run/saving_options.hpp"
#include "runtime/train/train.hpp"
#include "runtime/weights/checkpoint.hpp"

namespace meshplan::cli {

struct RunOptions {
  std::optional<std::string> file;
  runtime::TrainOptions train;
  std::optional<int> ranks;  // to plan again for, if the plan has another number
  std::optional<int> steps;
  std::optional<std::int64_t> seed;
  std::optional<std::string> checkpoint_dir;
  SavingOptions saving;
  std::optional<std::string> mtbf;  // of a device
  std::optional<std::string> resume;
  std::optional<runtime::RunState> resumed;  // of that run; filled in by resolve_start
  std::optional<std::string> change;
  std::optional<std::string> init_from;
  std::optional<std::string> freeze;
  AdapterOptions adapters;
  OptimizerOptions optimizer_settings;
  std::optional<int> traced_steps;
  std::optional<std::string> trace;
  std::optional<std::string> chrome;
  std::optional<std::string> kineto;
  std::optional<std::string> log;
  std::optional<int> time_every;
  DeviceOptions device;
  bool progress_thread = false;
  bool any_placement = false;
  bool no_verify_start = false;
  bool json = false;
  bool quiet = false;
  HostOptions hosts;
  ElasticOptions elastic;
};

void add_run_options(Command& command, RunOptions& options);

/// Fills in when checkpoints are saved, of options that check() has passed.
void apply_interval(RunOptions& options);

/// What the bounds in the declarations cannot say. @throws ConfigError
void check(const RunOptions& options);

}  // namespace meshplan::cli
