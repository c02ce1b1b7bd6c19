#include "options/plan_options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <utility>

#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "models/adapters.hpp"
#include "options/inputs.hpp"
#include "options/what_if.hpp"
#include "process/files.hpp"
#include "program/checks/check.hpp"
#include "program/plan/frozen.hpp"
#include "program/plan/plan_names.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/schedule.hpp"
#include "program/trace/step_report.hpp"
#include "sim/clusters/what_if.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/software.hpp"

namespace meshplan::cli {
namespace {

using program::RecomputeKind;
using program::ScheduleKind;

template <class T>
const T& required(const std::optional<T>& value, const std::string& flag,
                  const std::string& example) {
  if (!value)
    throw ConfigError(fmt::format("{} is missing; for example {} {}", flag, flag, example));
  return *value;
}

std::int64_t at_least_one(std::int64_t value, const std::string& flag) {
  if (value < 1) throw ConfigError(fmt::format("{} {}: must be at least 1", flag, value));
  return value;
}

DType default_precision(const sim::Cluster& cluster) {
  const bool has_bf16 = cluster.device.peak_tflop_per_s.contains("bf16");
  return cluster.device.kind == sim::DeviceKind::Gpu && has_bf16 ? DType::BF16 : DType::F32;
}

void resolve_documents(const PlanOptions& options, program::Documents& documents) {
  documents.packed = options.packed;
  documents.end_of_document = options.end_of_document;
  if (options.pad_documents)
    documents.pad_multiple = at_least_one(*options.pad_documents, "--pad-documents");
  for (const int length : options.document_lengths)
    documents.expected_lengths.push_back(at_least_one(length, "--document-lengths"));
  if (options.packed && !options.end_of_document)
    throw ConfigError(
        "--packed needs --end-of-document: the token that ends each document in the data, for "
        "example --end-of-document 50256");
  if (!options.packed &&
      (options.end_of_document || options.pad_documents || !options.document_lengths.empty()))
    throw ConfigError(
        "--end-of-document, --pad-documents and --document-lengths speak of packed documents; add "
        "--packed");
}

program::Workload resolve_workload(const PlanOptions& options, const models::ModelSpec& model,
                                   const sim::Cluster& cluster,
                                   std::vector<std::string>& assumptions) {
  program::Workload workload;
  workload.global_batch_size =
      at_least_one(required(options.global_batch, "--global-batch", "512 (sequences of a step)"),
                   "--global-batch");
  if (options.seq_len) {
    workload.seq_len = at_least_one(*options.seq_len, "--seq-len");
    if (model.positions == models::Positions::Rope && workload.seq_len > model.max_positions)
      assumptions.push_back(
          fmt::format("rotary positions go on to --seq-len {}, beyond the model's max_positions {}",
                      workload.seq_len, model.max_positions));
  } else {
    workload.seq_len = required(
        model.max_positions > 0 ? std::optional(model.max_positions) : std::optional<int>(),
        "--seq-len", "4096");
    assumptions.push_back(
        fmt::format("--seq-len {} (the model's max_positions)", workload.seq_len));
  }
  resolve_documents(options, workload.documents);
  if (options.precision) {
    program::set_precision(workload, *options.precision);
  } else {
    workload.precision = default_precision(cluster);
    assumptions.push_back(fmt::format("--precision {}", name_of(workload.precision)));
  }
  sim::peak_flop_per_s(cluster, workload);  // a device without FP8 is refused here
  if (options.optimizer) workload.optimizer.kind = *options.optimizer;
  apply(options.optimizer_settings, workload.optimizer);
  return workload;
}

/// A setting that is not the cluster's would be a plan's.
[[noreturn]] void refuse_plan_setting(const std::string& setting, const sim::Cluster& cluster) {
  const std::vector<std::string> figures = sim::figure_names(cluster);
  throw ConfigError(fmt::format(
      "--set {}: no figure of cluster '{}' (did you mean '{}'? known: {}) nor a value of its file; "
      "a plan's file, which it may change, too, is not given: say the same with a flag",
      setting, cluster.name, nearest_choice(setting.substr(0, setting.find('=')), figures),
      fmt::join(figures, ", ")));
}

}  // namespace

void add_cluster_options(Command& command, PlanOptions& options) {
  command
      .option("-c,--cluster", options.cluster,
              "preset (see `meshplan clusters`) or cluster file; with nodes of several types "
              "dgx-h100:4+dgx-a100:4")
      .suggests(sim::cluster_names())
      .takes_file()
      .takes_json()
      .beside_plan();
  add_stack_options(command, options.stack);
  add_set_option(command, options.set);
  add_slow_rank_option(command, options.slow_ranks);
}

void add_workload_options(Command& command, PlanOptions& options) {
  command.group(kWorkloadGroup)
      .option("-m,--model", options.model,
              "preset (see `meshplan models`), model spec, or Hugging Face config.json")
      .suggests(models::preset_names())
      .takes_file()
      .takes_json();
  add_model_reading(command, options.reading);
  add_cluster_options(command, options);
  command
      .option("-n,--gpus,--ranks", options.ranks,
              "ranks to use; the cluster is resized to hold exactly these. Beside a plan's file: "
              "the plan is made again for as many")
      .beside_plan()
      .option("-b,--global-batch", options.global_batch, "sequences of one optimizer step")
      .in_plan("workload.global_batch_size")
      .option("-s,--seq-len", options.seq_len, "tokens of a sequence; default: the model's most")
      .in_plan("workload.seq_len")
      .flag("--packed", options.packed,
            "sequences hold whole documents, without attention from one to another")
      .in_plan("workload.documents.packed")
      .option("--end-of-document", options.end_of_document,
              "token that ends each document in the data; needed with --packed")
      .in_plan("workload.documents.end_of_document")
      .option("--pad-documents", options.pad_documents,
              "fill each packed document up to a multiple of so many tokens")
      .in_plan("workload.documents.pad_multiple")
      .option("--document-lengths", options.document_lengths,
              "a sample of their lengths, for example 512,8000,900; default: uniform")
      .in_plan("workload.documents.expected_lengths")
      .choice("--precision", options.precision,
              "of weights and activations; fp8: bf16 with the layers' products in FP8; default: "
              "bf16 on GPUs, fp32 on CPUs")
      .in_plan("workload.precision")
      .choice("--optimizer", options.optimizer, "default: adamw")
      .in_plan("workload.optimizer.kind")
      .option("--freeze", options.freeze, kFreezeHelp)
      .beside_plan();
  add_adapter_options(command, options.adapters);
  command
      .option("--expert-imbalance", options.expert_imbalance,
              "rows of the busiest ep rank's experts / mean; or skew=0.3, where the i-th busiest "
              "expert gets 1 / i^0.3 of the first one's; or the log of a run that says so; "
              "default: 1")
      .takes_file()
      .beside_plan();
  add_optimizer_options(command, options.optimizer_settings, OptimizerDefaults::Meshplan);
}

void refuse_beside_file(const Command& command, const std::string& file, bool is_foreign) {
  constexpr std::array kLeftOpen = {"--model",      "--gpus",      "--assume", "--no-mtp",
                                    "--no-dropout", "--text-only", "--images"};
  for (const char* group : {kWorkloadGroup, kOptimizerGroup, kParallelGroup})
    for (const GivenOption& option : command.given(group)) {
      if (option.beside_plan) continue;
      if (is_foreign && std::ranges::find(kLeftOpen, option.flag) != kLeftOpen.end()) continue;
      const std::string instead = option.plan_path.empty()
                                      ? ""
                                      : fmt::format(", or change what it says: --set {}={}",
                                                    option.plan_path, option.plan_value);
      throw ConfigError(fmt::format("{}{}{}: {} says that itself; leave out {}{}", option.flag,
                                    option.value.empty() ? "" : " ", option.value, file,
                                    option.flag, instead));
    }
}

void add_foreign_plan_options(Command& command, PlanOptions& options) {
  add_foreign_options(command, options.foreign);
  command
      .option("-m,--model", options.model, "the model, where a launch script does not describe it")
      .suggests(models::preset_names())
      .takes_file()
      .takes_json()
      .option("-n,--gpus", options.ranks, "GPUs, where a launch script does not say");
  add_model_reading(command, options.reading);
}

double memory_reserve(const std::optional<double>& percent) {
  if (!percent) return sim::kMemoryReserve;
  if (!(*percent >= 0 && *percent < 100))
    throw ConfigError(
        fmt::format("--memory-reserve {:g}: percent of a device's memory, at least 0 and below "
                    "100; nearest: {}",
                    *percent, *percent >= 100 ? 99 : 0));
  return *percent / 100;
}

program::ExpertImbalance expert_imbalance(const std::string& option,
                                          const models::ModelSpec& model) {
  if (!model.moe)
    throw ConfigError(
        fmt::format("--expert-imbalance {}: {} has no experts; leave it out", option, model.name));
  constexpr std::string_view kSkew = "skew=";
  constexpr double kMostSkewed = 4;
  if (option.starts_with(kSkew)) {
    const std::string given = option.substr(kSkew.size());
    const auto skew = parse_number(given, 0, kMostSkewed);
    if (!skew)
      throw ConfigError(fmt::format(
          "--expert-imbalance {}: '{}' is no skew; expected a number from 0, which is a balanced "
          "router, to {}: the i-th busiest expert gets 1 / i^skew of what the first one gets",
          option, given, kMostSkewed));
    return program::imbalance_of_skew(*skew, model.moe->num_experts);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), value);
  if (error != std::errc() || end != option.data() + option.size())
    return program::imbalance_of_log(read_file(option), option);
  if (!(value >= 1 && value <= static_cast<double>(limits::kRanks)))
    throw ConfigError(
        fmt::format("--expert-imbalance {}: the busiest rank over the mean is at "
                    "least 1, and at most {}; nearest: {}",
                    option, limits::kRanks, value > 1 ? limits::kRanks : 1));
  return value;
}

void add_parallel_options(Command& command, PlanOptions& options) {
  planner::Constraints& pins = options.constraints;
  command.group(kParallelGroup)
      .option("--tp", pins.tp, "tensor parallel size")
      .in_plan("parallel.tp")
      .on_off("sp", pins.sp, "sequence parallel: shard the tokens between tp regions")
      .in_plan("parallel.sp")
      .option("--cp", pins.cp, "context parallel size: ranks that share each sequence")
      .in_plan("parallel.cp")
      .choice("--context-parallel", pins.context_parallel,
              "how attention reaches the keys of other cp ranks")
      .in_plan("context_parallel")
      .option("--max-tokens-per-rank", pins.max_tokens_per_rank,
              "divide a packed document over no more cp ranks than leave each so many tokens")
      .in_plan("max_tokens_per_rank")
      .option("--pp", pins.pp, "pipeline stages")
      .in_plan("parallel.pp")
      .option("--vpp", pins.vpp, "virtual stages (chunks) of a rank")
      .in_plan("parallel.vpp")
      .option("--dp", pins.dp, "data parallel size")
      .in_plan("parallel.dp")
      .option("--ep", pins.ep, "expert parallel size: ranks that share the experts of a layer")
      .in_plan("parallel.ep")
      .option("--etp", pins.etp, "tensor parallel size of the experts")
      .in_plan("parallel.etp")
      .option("--expert-node-ranks", pins.expert_node_ranks,
              "tokens travel once to each node of so many ep ranks, and are forwarded inside; 0: "
              "every rank sends to every other")
      .in_plan("expert_node_ranks")
      .flag("--expert-dispatch-fp8", pins.expert_dispatch_fp8,
            "tokens travel to their experts in FP8, with a scale for each 128 numbers")
      .in_plan("expert_dispatch_fp8")
      .option("--zero", pins.zero_stage, "ZeRO stage, 0 to 3 (docs/data_parallel.md)")
      .in_plan("zero_stage")
      .option("--zero-shard-group", pins.zero_shard_group,
              "hybrid ZeRO: so many data-parallel ranks share one copy")
      .in_plan("zero_shard_group")
      .option("--micro-batch", pins.micro_batch_size, "sequences of a micro-batch")
      .in_plan("micro_batch_size")
      .flag(
          "--uneven-batch", pins.uneven_batch,
          "replicas may take unequal numbers of sequences; empty ones fill the last micro-batches")
      .in_plan("uneven_batch")
      .choice("--recompute", pins.recompute, "activations that the backward pass computes again")
      .in_plan("recompute.kind")
      .option("--recompute-modules", options.recompute_modules,
              "with selective: what is computed again, of " +
                  fmt::format("{}", fmt::join(all_names<models::Module>(), ", ")) +
                  "; default: norms,activations")
      .in_plan("recompute.modules")
      .suggests(all_names<models::Module>())
      .option("--recompute-layers", pins.recompute_layers,
              "with full: only the first layers of each stage")
      .in_plan("recompute.num_layers")
      .choice("--schedule", pins.schedule, "pipeline schedule", {ScheduleKind::Custom})
      .in_plan("schedule")
      .option("--schedule-file", options.schedule_file,
              "a schedule of your own: PyTorch's CSV, a line per stage (see `meshplan schedule`)")
      .is_path()
      .option("--layers-per-stage", pins.layers_per_stage,
              "of each virtual stage, for example 19,21,21,19; needs --pp")
      .in_plan("layers_per_stage")
      .flag("--count-ends-as-layers", pins.count_ends_as_layers,
            "embedding and head count as a layer each where layers are divided evenly")
      .in_plan("count_ends_as_layers")
      .option("--order", pins.rank_order, "axes from innermost to outermost")
      .in_plan("rank_order")
      .option("--bucket-bytes", pins.bucket_bytes,
              "of a data-parallel gradient bucket; default: 1 MiB for each rank that sums it, at "
              "least 25 MiB")
      .in_plan("bucket_bytes")
      .flag("--offload-optimizer", pins.offload_optimizer,
            "master weights and optimizer state lie in host memory")
      .in_plan("offload_optimizer")
      .flag("--offload-parameters", pins.offload_parameters,
            "with it and --zero 3: so do the weights that a rank owns")
      .in_plan("offload_parameters")
      .option("--offload-activations", pins.offload_activations,
              "so many of each virtual stage's layers keep their activations in host memory")
      .in_plan("offload_activations")
      .flag("--progress-thread", pins.progress_thread,
            "a thread of each CPU rank moves communications while it computes")
      .in_plan("progress_thread")
      .on_off(
          "deterministic", pins.deterministic,
          "a run repeats bit for bit (default); without, a GPU's attention may add gradients up "
          "in any order, in less time and memory")
      .in_plan("deterministic")
      .choice("--compress", options.compression,
              "gradients on their way between data-parallel ranks; default: none")
      .in_plan("compression.kind")
      .option("--compress-ratio", pins.compression.ratio,
              "with top-k: the part of the gradients that travels; default: 0.01")
      .in_plan("compression.ratio");
}

models::ModuleSet recompute_modules(const std::string& option) {
  try {
    return models::parse_modules(option, ',');
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--recompute-modules {}: {}", option, error.what()));
  }
}

void read_schedule_file(PlanOptions& options) {
  if (!options.schedule_file) return;
  const std::string file = *std::exchange(options.schedule_file, std::nullopt);
  if (options.constraints.schedule)
    throw ConfigError("--schedule and --schedule-file exclude each other; leave one out");
  const program::Schedule schedule = program::parse_schedule_csv(read_file(file), file);
  planner::Constraints& constraints = options.constraints;
  const auto fix = [&](std::string_view flag, std::optional<int>& pin, int value) {
    if (pin && *pin != value)
      throw ConfigError(fmt::format("{} {}: the schedule in {} has {} = {}; use {} {}", flag, *pin,
                                    file, flag.substr(2), value, flag, value));
    pin = value;
  };
  fix("--pp", constraints.pp, schedule.num_stages());
  fix("--vpp", constraints.vpp, schedule.num_chunks);
  constraints.schedule = ScheduleKind::Custom;
  std::istringstream lines(program::to_csv(schedule));
  for (std::string line; std::getline(lines, line);) constraints.custom_schedule.push_back(line);
}

ResolvedRequest resolve(PlanOptions options) {
  read_schedule_file(options);
  ResolvedRequest resolved;
  models::ImportedModel model = load_model(
      required(options.model, "--model", "llama3-8b (see `meshplan models`)"), options.reading);
  sim::Cluster cluster =
      load_cluster(required(options.cluster, "--cluster", "dgx-h100 (see `meshplan clusters`)"));
  resolved.assumptions = std::move(model.assumptions);
  if (options.ranks)
    cluster = sim::with_ranks(cluster, static_cast<int>(at_least_one(*options.ranks, "--gpus")));
  const WhatIf what_if = sorted(options.set, cluster);
  if (!what_if.plan.empty()) refuse_plan_setting(what_if.plan.front(), cluster);
  program::Stack stack;
  take_stack(options.stack, stack);
  cluster = changed_cluster(cluster, what_if.cluster, stack.software, resolved.changes);
  cluster = with_slow_ranks(cluster, options.slow_ranks, resolved.changes);
  planner::Constraints constraints = options.constraints;
  if (options.recompute_modules)
    constraints.recompute_modules = recompute_modules(*options.recompute_modules);
  if (options.compression) constraints.compression.kind = *options.compression;
  if (add_adapters(model.spec, options.adapters)) constraints.frozen = models::all_but_adapters();
  if (options.freeze) {
    constraints.frozen = frozen_patterns(*options.freeze);
    for (const std::string& error : program::frozen_errors(constraints.frozen, model.spec))
      throw ConfigError(fmt::format("--freeze {}: {}", *options.freeze, error));
  }
  if (options.expert_imbalance)
    constraints.expert_imbalance = expert_imbalance(*options.expert_imbalance, model.spec);
  program::Workload workload = resolve_workload(options, model.spec, cluster, resolved.assumptions);
  resolved.request = {.model = std::move(model.spec),
                      .cluster = std::move(cluster),
                      .stack = std::move(stack),
                      .workload = workload,
                      .constraints = std::move(constraints)};
  return resolved;
}

program::Plan single_plan(const ResolvedRequest& resolved) {
  planner::SearchRequest request = resolved.request;
  planner::Constraints& pins = request.constraints;
  pins.tp = pins.tp.value_or(1);
  pins.cp = pins.cp.value_or(1);
  const sim::ExecutionProfile& software = sim::load_execution_profile(request.stack.software);
  const std::vector<program::ContextMethod>& methods = software.can.context_methods;
  pins.context_parallel = pins.context_parallel.value_or(
      methods.empty() ? program::ContextMethod::AllGather : methods.front());
  pins.pp = pins.pp.value_or(1);
  pins.ep = pins.ep.value_or(1);
  pins.etp = pins.etp.value_or(1);
  pins.zero_stage = pins.zero_stage.value_or(sim::default_zero_stage(software));
  const planner::Ranks ranks{.count = request.cluster.num_ranks()};  // no node: no group of its own
  pins.sp = pins.sp.value_or(software.sequence_parallel && *pins.tp > 1);
  pins.micro_batch_size = pins.micro_batch_size.value_or(1);
  if (!planner::recompute_is_pinned(pins)) pins.recompute = RecomputeKind::None;
  if (!pins.schedule)
    pins.schedule = pins.vpp.value_or(1) > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneFOneB;
  pins.vpp = pins.vpp.value_or(program::fewest_chunks(*pins.schedule));
  const std::vector<planner::Candidate> candidates =
      planner::enumerate(request.model, request.workload, ranks, pins);
  require_invariant(candidates.size() == 1, "all choices are fixed, so one plan is left");
  program::Plan plan = planner::make_plan(request, candidates.front());
  std::vector<program::Violation> violations = program::check(plan);
  if (violations.empty()) violations = sim::software_violations(plan);
  if (!violations.empty()) throw ConfigError(violations.front().message);
  return plan;
}

}  // namespace meshplan::cli
