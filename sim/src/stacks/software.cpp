#include "sim/stacks/software.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/enum_names.hpp"
#include "program/checks/check.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/engine/step_parts.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/run_prediction.hpp"
#include "stacks/run_habits.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;
using program::Violation;

template <class T>
bool has(const std::vector<T>& values, T value) {
  return std::ranges::find(values, value) != values.end();
}

/// Without another rank that holds the same, ZeRO has nothing to divide, whatever its stage.
bool has_replicas(const Plan& plan) {
  return plan.parallel.dp * plan.parallel.cp > 1;
}

/// "1f1b or interleaved"; "nothing" of none.
template <class T, class Name>
std::string any_of(const std::vector<T>& values, Name name) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{}{}",
                        i == 0                   ? ""
                        : i + 1 == values.size() ? " or "
                                                 : ", ",
                        name(values[i]));
  return text.empty() ? "nothing" : text;
}

class Checker {
 public:
  Checker(const Plan& plan, const ExecutionProfile& software) : plan_(plan), software_(software) {}

  std::vector<Violation> run(bool what_is_not_priced) {
    const SoftwareFeatures& can = software_.can;
    const program::ParallelConfig& p = plan_.parallel;
    divides("tp", p.tp, can.tensor_parallel, "tensor parallelism");
    divides("pp", p.pp, !can.schedules.empty(), "pipeline");
    divides("cp", p.cp, !can.context_methods.empty(), "context parallelism");
    divides("ep", p.ep, can.expert_parallel, "expert parallelism");
    if (p.pp > 1 && !can.schedules.empty() && !has(can.schedules, plan_.schedule))
      fail("schedule", "schedule '{}': {} runs {}", meshplan::name_of(plan_.schedule),
           software_.name,
           any_of(can.schedules, [](auto kind) { return meshplan::name_of(kind); }));
    if (p.cp > 1 && !can.context_methods.empty() &&
        !has(can.context_methods, plan_.context_parallel))
      fail("context_parallel", "context_parallel '{}': {} exchanges keys and values by {}",
           meshplan::name_of(plan_.context_parallel), software_.name,
           any_of(can.context_methods, [](auto method) { return meshplan::name_of(method); }));
    if (!has(can.zero_stages, plan_.zero_stage) && has_replicas(plan_))
      fail("zero", "zero stage {}: {} has {}", plan_.zero_stage, software_.name,
           any_of(can.zero_stages, [](int stage) { return std::to_string(stage); }));
    else if (plan_.zero_stage >= 2 && p.pp > 1 && !can.shards_in_pipelines)
      fail("zero",
           "zero stage {} with pp({}): {} divides gradients and weights without a pipeline only",
           plan_.zero_stage, p.pp, software_.name);
    if (!plan_.layers_per_stage.empty() && !can.uneven_stages)
      fail("layers_per_stage",
           "layers_per_stage: {} divides layers over its stages itself; nearest: []",
           software_.name);
    recomputed_modules();
    recomputed_layers();
    optimizer();
    if (what_is_not_priced) not_told();
    return std::move(violations_);
  }

 private:
  template <class... Args>
  void fail(const char* rule, fmt::format_string<Args...> message, Args&&... args) {
    violations_.push_back(
        {fmt::format("software.{}", rule), fmt::format(message, std::forward<Args>(args)...)});
  }
  void divides(const char* degree, int value, bool can, const char* name) {
    if (value > 1 && !can)
      fail(degree, "{}({}): {} has no {}; nearest {}: 1", degree, value, software_.name, name,
           degree);
  }

  void recomputed_modules() {
    for (const models::Module module : plan_.recompute.modules.list())
      if (!has(software_.can.recompute_modules, module))
        fail("recompute", "recompute.modules '{}': {} recomputes {}", meshplan::name_of(module),
             software_.name,
             software_.can.recompute_modules.empty()
                 ? std::string("no modules by name; nearest: []")
                 : any_of(software_.can.recompute_modules,
                          [](auto known) { return meshplan::name_of(known); }));
  }

  void recomputed_layers() {
    const program::Recompute& recompute = plan_.recompute;
    if (recompute.kind == program::RecomputeKind::None || !recompute.num_layers ||
        software_.can.recomputes_some_layers || software_.can.recomputes_nth_layers)
      return;
    if (program::recomputed_layers_per_stage(plan_) != program::resolved_layers_per_stage(plan_))
      fail("recompute", "recompute.num_layers {}: {} recomputes all layers or none; nearest: null",
           *recompute.num_layers, software_.name);
  }

  void optimizer() {
    if (plan_.workload.optimizer.kind != program::OptimizerKind::Muon) return;
    if (!software_.can.muon)
      fail("optimizer", "workload.optimizer.kind 'muon': not known of {}; nearest: adamw",
           software_.name);
    else if (plan_.offload_optimizer)
      fail("optimizer", "offload_optimizer with muon: {} moves Adam's state only; nearest: false",
           software_.name);
  }

  /// What the stack may do, and this version cannot tell the time of.
  void not_told() {
    const auto untold = [&](bool asked, const char* rule, const char* what) {
      if (asked) fail(rule, "{}: predicted for {} only", what, kOwnSoftware);
    };
    untold(!plan_.recompute.layers_per_stage.empty(), "recompute", "recompute stage by stage");
    untold(plan_.zero_shard_group > 0, "zero_shard_group", "a copy for each zero_shard_group");
    untold(plan_.compression.kind != program::CompressionKind::None, "compression",
           "compressed gradients");
    untold(plan_.offload_activations > 0, "offload_activations",
           "activations in host memory (offload_activations)");
    untold(plan_.workload.documents.packed, "documents", "packed documents");
    untold(plan_.workload.precision == DType::F32, "precision", "training in fp32");
    untold(plan_.workload.optimizer.kind == program::OptimizerKind::Sgd, "optimizer", "SGD");
  }

  const Plan& plan_;
  const ExecutionProfile& software_;
  std::vector<Violation> violations_;
};

RunPrecision run_precision(const Plan& plan) {
  using program::Fp8Scaling;
  const program::Workload& workload = plan.workload;
  if (workload.fp8 != program::Float8Recipe::None) {
    const auto scaling = plan.stack.settings.fp8_scaling;
    return scaling == Fp8Scaling::NvFp4       ? RunPrecision::NvFp4
           : scaling == Fp8Scaling::MxFp8     ? RunPrecision::MxFp8
           : scaling == Fp8Scaling::Blockwise ? RunPrecision::Fp8Block
                                              : RunPrecision::Fp8;
  }
  return workload.precision == DType::F16 ? RunPrecision::Fp16 : RunPrecision::Bf16;
}

RunRecompute recompute_of(const program::Recompute& recompute, const ExecutionProfile& software) {
  switch (recompute.kind) {
    case program::RecomputeKind::None:
      return RunRecompute::None;
    case program::RecomputeKind::Full:
      return RunRecompute::Full;
    case program::RecomputeKind::Selective:
      if (!recompute.modules.empty()) return RunRecompute::Modules;
      return software.can.recomputes_operations ? RunRecompute::PerOp : RunRecompute::CoreAttention;
  }
  throw InvariantError("unknown recompute");
}

/// Of a plan that says how many layers its stages have; else empty.
std::vector<program::LayoutStage> layout_of(const Plan& plan) {
  std::vector<program::LayoutStage> stages;
  for (const int layers : plan.layers_per_stage) stages.push_back({.layers = layers});
  if (stages.empty()) return stages;
  stages.front().embedding = true;
  stages.back().predictions = plan.model.mtp_layers;
  stages.back().loss = true;
  return stages;
}

}  // namespace

std::vector<Violation> software_violations(const Plan& plan) {
  if (plan.stack.is_own()) return {};
  return Checker(plan, load_execution_profile(plan.stack.software)).run(true);
}

std::vector<Violation> feature_violations(const Plan& plan) {
  if (plan.stack.is_own()) return {};
  return Checker(plan, load_execution_profile(plan.stack.software)).run(false);
}

bool recomputes_selectively(const program::Stack& stack, const models::ModelSpec& model) {
  if (stack.is_own()) return true;
  TrainingRun run;
  run.model = model;
  run.settings = stack.settings;
  run.profile = stack.software;
  const ExecutionProfile profile = profile_of(run);
  if (profile.can.recomputes_operations) return true;
  take_habits(profile, run);
  return run.attention == AttentionKernel::Unfused;
}

int default_zero_stage(const ExecutionProfile& software) {
  return software.shards_fully ? 3 : software.distributed_optimizer ? 1 : 0;
}

TrainingRun run_of(const Plan& plan, std::string cluster) {
  const ExecutionProfile& profile = load_execution_profile(plan.stack.software);
  TrainingRun run;
  run.model = plan.model;
  run.parallel = plan.parallel;
  // Without a pipeline no stack has a schedule; some kinds have two chunks a stage by themselves.
  if (plan.parallel.pp > 1) run.schedule = plan.schedule;
  run.seq_len = plan.workload.seq_len;
  run.global_batch_size = plan.workload.global_batch_size;
  run.micro_batch_size = plan.micro_batch_size;
  run.layout = layout_of(plan);
  run.precision = run_precision(plan);
  run.recompute = recompute_of(plan.recompute, profile);
  run.recompute_modules = plan.recompute.modules;
  run.recompute_layers = plan.recompute.num_layers;
  run.zero_stage = plan.zero_stage;
  if (!has_replicas(plan) && !has(profile.can.zero_stages, plan.zero_stage))
    run.zero_stage = default_zero_stage(profile);
  if (plan.workload.optimizer.kind == program::OptimizerKind::Muon)
    run.orthogonal_steps = plan.workload.optimizer.orthogonal_steps;
  run.bucket_elements = static_cast<double>(plan.bucket_bytes) /
                        static_cast<double>(size_of(plan.workload.precision));
  run.settings = plan.stack.settings;
  run.frozen = plan.frozen;
  run.expert_imbalance = plan.expected_expert_imbalance;
  if (plan.context_parallel == program::ContextMethod::Ulysses ||
      (plan.context_parallel == program::ContextMethod::Ring &&
       profile.context != ContextExchange::Ring))
    run.context_parallel = plan.context_parallel;
  run.count_ends_as_layers = plan.count_ends_as_layers;
  run.offload_optimizer = plan.offload_optimizer;
  run.offload_parameters = plan.offload_parameters;
  run.deterministic = plan.deterministic;
  run.cluster = std::move(cluster);
  run.profile = plan.stack.software;
  return run;
}

std::optional<program::ExpertDispatch> fused_dispatch_of(const program::Stack& stack,
                                                         const models::ModelSpec& model,
                                                         const Cluster& cluster) {
  const program::StackSettings& settings = stack.settings;
  if (settings.expert_dispatch) return settings.expert_dispatch;
  if (!model.moe || stack.is_own() || settings.token_drop.value_or(false) ||
      !load_execution_profile(stack.software).can.fused_dispatch)
    return std::nullopt;
  return has_racks(cluster) ? program::ExpertDispatch::HybridEp : program::ExpertDispatch::DeepEp;
}

StepPrediction step_of(const RunPrediction& run, const Plan& plan, const Cluster& cluster) {
  const RunBreakdown& s = run.seconds;
  StepPrediction step{.step_time_s = run.step_time_s,
                      .peak_memory_bytes = run.memory.need().bytes,
                      .largest_stage = run.memory.stage,
                      .capacity_bytes = run.memory.need().capacity_bytes,
                      .of_host = run.memory.need().of_host,
                      .at_least = run.at_least,
                      .relative_sigma = run.relative_sigma,
                      .busy = run.busy};
  step.state_bytes = step.of_host
                         ? step.peak_memory_bytes  // nothing follows from the rest
                         : run.memory.parameters + run.memory.gradients + run.memory.optimizer;
  if (run.at_least) return step;
  step.mfu = model_flops_utilization(plan, cluster, run.step_time_s);
  step.seconds[Category::Forward] = s.forward;
  step.seconds[Category::Backward] = s.compute - s.forward - s.recompute;
  step.seconds[Category::Recompute] = s.recompute;
  step.seconds[plan.parallel.sp ? Category::Sp : Category::Tp] = s.tensor - s.context - s.experts;
  step.seconds[Category::Cp] = s.context;
  step.seconds[Category::Ep] = s.experts;
  step.seconds[Category::Bubble] = s.pipeline;
  step.seconds[Category::Dp] = s.data_parallel;
  step.seconds[Category::Optimizer] = s.optimizer + s.offload;
  step.seconds[Category::Host] = s.host;
  step.seconds[Category::Other] = run.step_time_s - step.seconds.total();
  return step;
}

StepParts parts_of(const RunPrediction& run, double sends, const Plan& plan,
                   const Cluster& cluster) {
  const RunBreakdown& s = run.seconds;
  const double peak = peak_flop_per_s(cluster, plan.workload);
  const double products = s.products - s.recomputed_products;
  const double attention = s.attention - s.recomputed_attention;
  StepParts parts;
  parts[StepPart::Ideal] = ideal_seconds(plan, cluster);
  parts[StepPart::Beyond] = (s.product_flops + s.attention_flops) / peak - parts[StepPart::Ideal];
  parts[StepPart::Products] = products - s.product_flops / peak;
  parts[StepPart::Attention] = attention - s.attention_flops / peak;
  parts[StepPart::Streams] = s.compute - s.recompute - products - attention;
  parts[StepPart::Recompute] = s.recompute;
  parts[StepPart::Tensor] = s.tensor - s.context - s.experts;
  parts[StepPart::Context] = s.context;
  parts[StepPart::Experts] = s.experts;
  parts[StepPart::Sends] = sends;
  parts[StepPart::Bubble] = s.pipeline - sends;
  parts[StepPart::Data] = s.data_parallel;
  parts[StepPart::Optimizer] = s.optimizer;
  parts[StepPart::Offload] = s.offload;
  parts[StepPart::Host] = s.host;
  parts[StepPart::Overhead] = s.overhead;
  return parts;
}

}  // namespace meshplan::sim
