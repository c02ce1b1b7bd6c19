// A plan out of a ds_config.json.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "core/relaxed_json.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "formats/text/imported.hpp"

namespace meshplan::planner {
namespace deepspeed {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;
using program::RecomputeKind;

/// Defaults of transformers.TrainingArguments.
constexpr std::int64_t kTrainerBatch = 8;
constexpr std::int64_t kTrainerAccumulation = 1;

constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
constexpr std::array<std::string_view, 3> kOptimizers = {"AdamW", "Adam", "SGD"};

class DeepSpeedReader {
 public:
  DeepSpeedReader(Settings& in, const KnownRanks& ranks, const ScriptArguments& arguments,
                  ImportedPlan& imported)
      : in_(in), ranks_(ranks), arguments_(arguments), imported_(imported) {}

  void run() {
    refuse_other_computation();
    read_precision();
    read_zero();
    read_degrees();
    read_batch();
    read_optimizer();
    read_recompute();
    imported_.plan.stack.software = "deepspeed";
    for (const std::string& path : in_.left_open())
      if (settled_.insert(path).second)
        assume(fmt::format("{} = auto: taken as if it were not there", path));
  }

 private:
  Plan& plan() { return imported_.plan; }
  void assume(std::string line) { imported_.assumptions.push_back(std::move(line)); }

  /// Sections that change what a step computes, for which a plan has no words.
  void refuse_other_computation() {
    for (const auto& [path, what] :
         {std::pair{"data_efficiency.data_routing.random_ltd.enabled",
                    "layers pass over tokens (random-LTD)"},
          std::pair{"progressive_layer_drop.enabled", "layers are left out, more with time"},
          std::pair{"sparse_attention", "attention is sparse"},
          std::pair{"compression_training", "weights or activations are rounded or pruned"}}) {
      const Json* value = in_.value(path);
      if (value != nullptr && *value != Json(false))
        in_.fail(path, fmt::format("none of it: {}, which a plan cannot say", what));
    }
  }

  /// Is the key there, and left to the Trainer's arguments?
  bool is_auto(std::string_view path) {
    return in_.has(path) && in_.value(path) == nullptr &&
           std::ranges::find(in_.left_open(), path) != in_.left_open().end();
  }
  /// "auto" of this key means something here.
  void settle(std::string_view path) { settled_.emplace(path); }

  /// "auto": the Trainer's --bf16 or --fp16 says it; absent where nobody can know.
  std::optional<bool> enabled(const std::string& section) {
    const std::string path = section + ".enabled";
    if (const auto given = in_.flag(path)) return given;
    if (!is_auto(path)) return false;
    settle(path);
    if (const auto said = arguments_.flag(section)) return said;
    return arguments_.empty() ? std::nullopt : std::optional(false);
  }

  void read_precision() {
    std::optional<bool> bf16 = enabled("bf16");
    std::optional<bool> fp16 = enabled("fp16");
    if (bf16.value_or(false) && fp16.value_or(false))
      in_.fail("fp16.enabled", "false where bf16.enabled is true");
    if (const auto autocast = in_.flag("torch_autocast.enabled"); autocast.value_or(false)) {
      const auto dtype = in_.text("torch_autocast.dtype");
      const bool half = dtype && dtype->ends_with("float16") && !dtype->ends_with("bfloat16");
      (half ? fp16 : bf16) = true;
    }
    if (!bf16 && !fp16.value_or(false)) {
      bf16 = true;
      assume_precision("bf16");
    } else if (!fp16 && !bf16.value_or(false)) {
      fp16 = true;
      assume_precision("fp16");
    }
    const bool brain = bf16.value_or(false);
    plan().workload.precision = brain                  ? DType::BF16
                                : fp16.value_or(false) ? DType::F16
                                                       : DType::F32;
    if (plan().workload.precision == DType::F32)
      assume("workload.precision = fp32 (neither bf16 nor fp16 is enabled)");
  }

  void assume_precision(std::string_view name) {
    assume(
        fmt::format("workload.precision = {0} ({0}.enabled = auto leaves it to the Trainer's "
                    "--bf16 or --fp16, which nothing says; --args '--fp16 true' does)",
                    name));
  }

  void read_zero() {
    const std::string at = "zero_optimization.";
    if (in_.has("zero_optimization") && in_.keys("zero_optimization").empty()) {
      const Json* whole = in_.value("zero_optimization");  // an old form: true is stage 1
      if (whole != nullptr && !whole->is_object())
        plan().zero_stage = in_.flag("zero_optimization").value_or(false) ? 1 : 0;
      return;
    }
    plan().zero_stage = in_.small(at + "stage", between(0, 3)).value_or(0);
    // zero/config.py, overlap_comm_valid
    imported_.plan.stack.settings.overlap_dp =
        in_.flag(at + "overlap_comm").value_or(plan().zero_stage == 3);
    std::int64_t elements =
        in_.integer(at + "reduce_bucket_size", between(1, 1e15)).value_or(500'000'000);
    // transformers/integrations/deepspeed.py, trainer_config_finalize
    if (is_auto(at + "reduce_bucket_size")) {
      settle(at + "reduce_bucket_size");
      elements = std::int64_t{plan().model.hidden_size} * plan().model.hidden_size;
    }
    plan().bucket_bytes = elements * size_of(plan().workload.precision);
    imported_.plan.stack.settings.live_parameters =
        in_.integer(at + "stage3_max_live_parameters", between(0, 1e15));
    read_offload(at);
    const Bounds ranks = between(-1, limits::kRanks);
    plan().zero_shard_group = std::max(0, in_.small(at + "mics_shard_size", ranks).value_or(0));
    if (const int group = in_.small(at + "zero_hpz_partition_size", ranks).value_or(1); group > 1) {
      assume(
          fmt::format("zero_optimization.zero_hpz_partition_size = {}: the second copy of the "
                      "weights is not in the plan",
                      group));
    }
  }

  void read_offload(const std::string& at) {
    const auto device = in_.word(at + "offload_optimizer.device", kDevices);
    plan().offload_optimizer =
        (device && *device != "none") || in_.flag(at + "cpu_offload").value_or(false);
    if (device && *device == "nvme")
      assume("offload_optimizer: the optimizer lies in host memory; the file says nvme");
    const auto weights = in_.word(at + "offload_param.device", kDevices);
    if ((!weights || *weights == "none") && !in_.flag(at + "cpu_offload_param").value_or(false))
      return;
    plan().offload_parameters = plan().zero_stage == 3 && plan().offload_optimizer;
    if (weights && *weights == "nvme")
      assume("offload_param: weights lie in host memory; the file says nvme");
    if (!plan().offload_parameters)
      assume(
          "zero_optimization.offload_param: weights in host memory are in a plan with ZeRO-3 and "
          "the optimizer there only");
  }

  void read_degrees() {
    program::ParallelConfig& p = plan().parallel;
    const auto tp = in_.small("tensor_parallel.autotp_size", between(0, limits::kRanks));
    const auto nested = in_.small("tensor_parallel.tp.tp_size");
    p.tp = std::max(1, tp.value_or(nested.value_or(1)));
    if (tp || nested) imported_.facts["autotp"] = p.tp > 1;
    p.cp = in_.small("sequence_parallel_size").value_or(1);
    plan().context_parallel = program::ContextMethod::Ulysses;
    if (in_.flag("expert_parallel.enabled").value_or(false))
      p.ep = in_.small("expert_parallel.autoep_size").value_or(1);
    imported_.facts["autoep"] = p.ep > 1;
    const Json* stages = in_.value("pipeline.stages");
    if (stages != nullptr && stages->is_number()) {
      p.pp = in_.small("pipeline.stages").value_or(1);
      assume(
          fmt::format("parallel.pp = {} (pipeline.stages; the script must build a "
                      "PipelineModule of as many)",
                      p.pp));
    }
  }

  /// GPUs that share one micro-batch.
  std::int64_t ranks_of_replica() {
    const program::ParallelConfig& p = plan().parallel;
    return std::int64_t{p.tp} * p.cp * p.pp;
  }

  std::optional<int> dp_of_ranks() {
    if (!ranks_.number) return std::nullopt;
    const std::int64_t replica = ranks_of_replica();
    if (*ranks_.number % replica != 0)
      throw ConfigError(fmt::format(
          "{}: {} GPUs ({}) are not divisible by tp({}) * sequence_parallel_size({}) * pp({}) = {}",
          in_.file(), *ranks_.number, ranks_.source, plan().parallel.tp, plan().parallel.cp,
          plan().parallel.pp, replica));
    return static_cast<int>(*ranks_.number / replica);
  }

  /// config.py, _set_batch_related_parameters: train batch = micro-batch * accumulation * dp.
  void read_batch() {
    const Bounds bounds = between(1, limits::kTokens);
    const auto train = in_.integer("train_batch_size", bounds);
    auto micro = in_.integer("train_micro_batch_size_per_gpu", bounds);
    auto accumulation = in_.integer("gradient_accumulation_steps", bounds);
    if (!micro) micro = arguments_.integer("per_device_train_batch_size", 1, limits::kTokens);
    if (!accumulation)
      accumulation = arguments_.integer("gradient_accumulation_steps", 1, limits::kTokens);
    if (!micro && !train) micro = trainer_default("train_micro_batch_size_per_gpu", kTrainerBatch);
    if (!accumulation && !train)
      accumulation = trainer_default("gradient_accumulation_steps", kTrainerAccumulation);
    for (const char* const path : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
      if (is_auto(path)) settle(path);
    std::optional<int> dp = dp_of_ranks();
    if (!dp && train && micro && *train % (*micro * accumulation.value_or(1)) == 0 &&
        *train / (*micro * accumulation.value_or(1)) <= limits::kRanks) {
      dp = static_cast<int>(*train / (*micro * accumulation.value_or(1)));
      if (!accumulation) assume("gradient_accumulation_steps = 1");
      assume(fmt::format("parallel.dp = {} (train_batch_size / micro-batches of a rank)", *dp));
    }
    if (!dp)
      throw ConfigError(
          fmt::format("{}: nothing says how many GPUs there are; give it with --gpus", in_.file()));
    plan().parallel.dp = *dp;
    divide_batch(train, micro, accumulation);
  }

  /// What "auto" takes from TrainingArguments that nobody set.
  std::optional<std::int64_t> trainer_default(std::string_view path, std::int64_t value) {
    if (!is_auto(path)) return std::nullopt;
    assume(fmt::format(
        "{} = {} (auto, and nothing says another value than the Trainer's default; --args does)",
        path, value));
    return value;
  }

  void divide_batch(std::optional<std::int64_t> train, std::optional<std::int64_t> micro,
                    std::optional<std::int64_t> accumulation) {
    const std::int64_t dp = plan().parallel.dp;
    if (!micro && train) micro = std::max<std::int64_t>(1, *train / dp / accumulation.value_or(1));
    if (!micro) {
      micro = 1;
      assume("micro_batch_size = 1 (nothing says it)");
    }
    if (!accumulation && train) accumulation = *train / (*micro * dp);
    if (!accumulation) assume("gradient_accumulation_steps = 1 (nothing says it)");
    const std::int64_t product = sequences_of_step(
        *micro, dp, std::max<std::int64_t>(1, accumulation.value_or(1)), in_.file());
    if (train && product != *train)
      throw ConfigError(
          fmt::format("{}: train_batch_size: {} is not train_micro_batch_size_per_gpu({}) * "
                      "gradient_accumulation_steps({}) * dp({}) = {}; nearest: {}",
                      in_.file(), *train, *micro, accumulation.value_or(1), dp, product, product));
    if (is_auto("train_batch_size")) {
      settle("train_batch_size");
      assume(fmt::format("train_batch_size = auto: {} of micro-batches, accumulation and dp",
                         product));
    }
    imported_.facts["gradient_accumulation"] = product / (*micro * dp);
    plan().micro_batch_size = static_cast<int>(*micro);
    plan().workload.global_batch_size = product;
  }

  /// @param argument  of the Trainer, which "auto" stands for
  void take(std::string_view path, std::string_view argument, double& value) {
    if (const auto given = in_.number(path)) value = *given;
    if (argument.empty() || !is_auto(path)) return;
    settle(path);
    if (const auto given = arguments_.number(argument)) value = *given;
  }

  void read_optimizer() {
    OptimizerConfig& optimizer = plan().workload.optimizer;
    if (!in_.has("optimizer")) apply_optimizer_arguments(arguments_, optimizer);
    take("gradient_clipping", "max_grad_norm", optimizer.clip_norm);
    const std::string at = "optimizer.params.";
    const Json* type = in_.value("optimizer.type");
    if (type != nullptr) {
      const bool decoupled = in_.flag(at + "adam_w_mode").value_or(true);
      const std::string kind = in_.word("optimizer.type", kOptimizers).value_or("AdamW");
      optimizer.kind = kind == "SGD"                  ? OptimizerKind::Sgd
                       : kind == "AdamW" || decoupled ? OptimizerKind::AdamW
                                                      : OptimizerKind::Adam;
    }
    take(at + "lr", "learning_rate", optimizer.learning_rate);
    take(at + "weight_decay", "weight_decay", optimizer.weight_decay);
    take(at + "eps", "adam_epsilon", optimizer.epsilon);
    take(at + "momentum", "", optimizer.momentum);
    if (const Json* betas = in_.value(at + "betas")) {
      if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() ||
          !(*betas)[1].is_number())
        in_.fail(at + "betas", "two numbers");
      optimizer.beta1 = (*betas)[0].get<double>();
      optimizer.beta2 = (*betas)[1].get<double>();
    }
    read_schedule(optimizer);
  }

  void read_schedule(OptimizerConfig& optimizer) {
    const std::string at = "scheduler.params.";
    const auto type = in_.text("scheduler.type");
    if (!type) return;
    if (*type == "WarmupLR") optimizer.schedule = LearningRateSchedule::Constant;
    const Bounds steps = between(0, limits::kTokens);
    optimizer.warmup_steps = in_.small(at + "warmup_num_steps", steps).value_or(0);
    optimizer.decay_steps = in_.small(at + "total_num_steps", steps).value_or(0);
    if (const auto ratio = in_.number(at + "cos_min_ratio", between(0, 1)))
      optimizer.minimum_ratio = *ratio;
    if (*type != "WarmupLR" && *type != "WarmupCosineLR")
      imported_.ignored.push_back(fmt::format("scheduler.type = {} (taken as a cosine)",
                                              quoted(*in_.value("scheduler.type"))));
  }

  void read_recompute() {
    const bool configured = in_.has("activation_checkpointing");
    const bool asked = arguments_.flag("gradient_checkpointing").value_or(false);
    in_.integer("activation_checkpointing.number_checkpoints", between(0, limits::kLayers));
    plan().recompute.kind = configured || asked ? RecomputeKind::Full : RecomputeKind::None;
    if (configured && !asked)
      assume(
          "recompute.kind = full (the file configures activation_checkpointing; whether the "
          "script uses it is in the script)");
  }

  Settings& in_;
  const KnownRanks& ranks_;
  const ScriptArguments& arguments_;
  ImportedPlan& imported_;
  std::set<std::string, std::less<>> settled_;  // keys whose "auto" was understood
};

/// From the launcher's arguments: deepspeed's or torchrun's.
KnownRanks known_ranks(const ImportRequest& request, const ScriptArguments& arguments) {
  if (request.ranks) return {*request.ranks, "given"};
  for (const auto& [each, nodes] :
       {std::pair{"num_gpus", "num_nodes"}, std::pair{"nproc_per_node", "nnodes"}})
    if (const auto gpus = arguments.integer(each, 1, limits::kRanks)) {
      const std::int64_t number = *gpus * arguments.integer(nodes, 1, limits::kRanks).value_or(1);
      if (number <= limits::kRanks)
        return {static_cast<int>(number), fmt::format("--{} and --{}", each, nodes)};
    }
  return {};
}

}  // namespace
}  // namespace deepspeed

void apply_deepspeed(Settings& in, const KnownRanks& ranks, const ScriptArguments& arguments,
                     ImportedPlan& imported) {
  deepspeed::DeepSpeedReader(in, ranks, arguments, imported).run();
}

Json deepspeed_json(std::string_view text, const std::string& file) {
  return parse_json(without_json_comments(text), file);
}

ImportedPlan read_deepspeed(const ImportRequest& request) {
  ImportedPlan imported;
  imported.plan.model = given_model(request, "DeepSpeed");
  Settings in(deepspeed_json(main_text(request), request.main), request.main, kDeepSpeedAuto);
  const ScriptArguments arguments(request);
  apply_deepspeed(in, deepspeed::known_ranks(request, arguments), arguments, imported);
  check_ranks(request, imported.plan, "degrees");
  apply_sequence_argument(arguments, imported);
  list_ignored(in, imported);
  return imported;
}

bool recognizes_deepspeed(std::string_view name, std::string_view text) {
  return has_ending(name, {".json"}) &&
         (text.find("\"zero_optimization\"") != std::string_view::npos ||
          text.find("\"train_micro_batch_size_per_gpu\"") != std::string_view::npos ||
          text.find("\"train_batch_size\"") != std::string_view::npos);
}

}  // namespace meshplan::planner
