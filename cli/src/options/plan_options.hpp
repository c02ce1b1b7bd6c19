// The flags that describe a plan, shared by the subcommands that take one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "options/command_line.hpp"
#include "options/foreign.hpp"
#include "options/inputs.hpp"
#include "options/optimizer_options.hpp"
#include "options/stack_options.hpp"
#include "planner/search/search.hpp"

namespace meshplan::cli {

struct PlanOptions {
  std::optional<std::string> model;
  ModelReading reading;
  std::optional<std::string> cluster;
  StackOptions stack;
  std::optional<int> ranks;  // absent: the cluster's
  std::optional<std::int64_t> global_batch;
  std::optional<std::int64_t> seq_len;
  bool packed = false;
  std::optional<int> end_of_document;
  std::optional<std::int64_t> pad_documents;
  std::vector<int> document_lengths;
  std::optional<program::Precision> precision;
  std::optional<program::OptimizerKind> optimizer;
  OptimizerOptions optimizer_settings;
  std::optional<std::string> schedule_file;
  std::optional<program::CompressionKind> compression;
  std::optional<std::string> expert_imbalance;
  std::optional<std::string> freeze;
  AdapterOptions adapters;
  std::optional<std::string> recompute_modules;
  std::vector<std::string> set;         // --set: see what_if.hpp
  std::vector<std::string> slow_ranks;  // "3:1.5": likewise
  planner::Constraints constraints;     // most flags are parsed straight into it
  ForeignOptions foreign;
};

constexpr const char* kWorkloadGroup = "What to train, and on what";
constexpr const char* kParallelGroup = "How to parallelize it";

/// --cluster --software --stack --set --slow-rank: where a plan runs, and on what
void add_cluster_options(Command& command, PlanOptions& options);
/// --model --no-mtp --cluster --gpus --global-batch --seq-len --precision --optimizer, and
/// the settings of the optimizer
void add_workload_options(Command& command, PlanOptions& options);
/// --tp --sp --pp --dp --micro-batch --recompute --schedule ...
void add_parallel_options(Command& command, PlanOptions& options);

/// Beside a plan's file only what it leaves open may be given: --cluster, --freeze and
/// --expert-imbalance, and beside another stack's configuration --model and --gpus.
/// @throws ConfigError for another flag of the groups above, with the setting that says the
/// same
void refuse_beside_file(const Command& command, const std::string& file, bool is_foreign = false);

/// Of a command whose plan may be another stack's configuration, and that has no flags of a search:
/// how it is read, --model and --gpus.
void add_foreign_plan_options(Command& command, PlanOptions& options);

constexpr const char* kMemoryReserveHelp =
    "percent of each device's memory that a plan leaves free for what nobody plans; default: 4; "
    "of `plan` for other software 6.2, for models with experts 8";
/// --memory-reserve as a part of the device. @throws ConfigError
double memory_reserve(const std::optional<double>& percent);

/// --recompute-modules: "norms,mlp". @throws ConfigError
models::ModuleSet recompute_modules(const std::string& option);

/// --expert-imbalance: a number, skew=NUMBER, or what a run's log says. @throws ConfigError
program::ExpertImbalance expert_imbalance(const std::string& option,
                                          const models::ModelSpec& model);

/// Pins what the schedule file fixes: schedule, pp and vpp. Nothing to do without a file.
/// @throws ConfigError if it is no schedule, or contradicts a flag
void read_schedule_file(PlanOptions& options);

/// What was asked for, resolved, and what was filled in for it.
struct ResolvedRequest {
  planner::SearchRequest request;
  std::vector<std::string> assumptions;
  std::vector<std::string> changes;  // that --set made
};

/// Loads the model and the cluster, fills in defaults and parses names.
/// @throws ConfigError for a missing flag or a bad value
ResolvedRequest resolve(PlanOptions options);

/// The one plan that the flags describe: what they leave open is tp = pp = 1, sp off, dp = all the
/// ranks that are left, micro-batches of 1, no recompute, 1F1B.
/// @throws ConfigError if the plan breaks a rule
program::Plan single_plan(const ResolvedRequest& resolved);

}  // namespace meshplan::cli
