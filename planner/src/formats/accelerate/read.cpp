// A plan out of accelerate's YAML, with the launch script's arguments where one is beside it.
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "formats/accelerate/accelerate.hpp"
#include "formats/accelerate/read_plugin.hpp"
#include "formats/deepspeed/deepspeed.hpp"
#include "formats/text/documents.hpp"
#include "formats/text/imported.hpp"
#include "formats/text/script_arguments.hpp"
#include "planner/search/space.hpp"

namespace meshplan::planner {
namespace accelerate {
namespace {

using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;

constexpr std::array<std::string_view, 7> kTypes = {"FSDP", "MULTI_GPU",   "MULTI_XPU", "MULTI_NPU",
                                                    "NO",   "MEGATRON_LM", "DEEPSPEED"};
constexpr std::array<std::string_view, 4> kPrecisions = {"bf16", "fp16", "no", "fp8"};
constexpr std::array<std::string_view, 2> kStrategies = {"allgather", "alltoall"};
/// The first five as FSDP 1 numbers them, from 1.
constexpr std::array<std::string_view, 5> kShardings = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                        "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};

class AccelerateReader {
 public:
  AccelerateReader(const ImportRequest& request, Settings& in, const ScriptArguments& arguments,
                   ImportedPlan& result)
      : request_(request), in_(in), arguments_(arguments), result_(result) {}

  void run() {
    const auto type = in_.word("distributed_type", kTypes);
    if (!type) in_.fail("distributed_type", "FSDP, MULTI_GPU, MEGATRON_LM or DEEPSPEED");
    read_machines(*type == "NO");
    if (*type == "DEEPSPEED") {
      read_deepspeed_section();
    } else {
      read_precision();
      std::optional<int> accumulation;
      if (*type == "MEGATRON_LM")
        accumulation = read_megatron_plugin(in_, processes_, result_);
      else
        read_fsdp(*type == "FSDP");
      apply_trainer_arguments(arguments_, accumulation, request_.main, result_);
      plan().bucket_bytes = default_bucket_bytes(plan().parallel);
    }
    check_ranks(request_, plan(), "num_processes and its degrees");
  }

 private:
  Plan& plan() { return result_.plan; }
  void assume(std::string line) { result_.assumptions.push_back(std::move(line)); }

  void read_machines(bool single) {
    auto given = in_.small("num_processes");
    machines_ = in_.small("num_machines").value_or(1);
    if (!given && single) given = 1;
    if (request_.ranks && given && *given != *request_.ranks)
      assume(fmt::format("num_processes = {} (the GPUs given; the file says {})", *request_.ranks,
                         *given));
    if (request_.ranks) given = request_.ranks;
    if (!given)
      throw ConfigError(fmt::format(
          "{}: nothing says how many GPUs there are (num_processes of accelerate); give it with "
          "--gpus",
          in_.file()));
    processes_ = *given;
    if (machines_ > 1 && processes_ % machines_ != 0) {
      assume(fmt::format("num_machines = 1 (the file's {} do not divide {} GPUs)", machines_,
                         processes_));
      machines_ = 1;
    }
  }

  void read_precision() {
    auto name = in_.word("mixed_precision", kPrecisions);
    for (const char* const type : {"bf16", "fp16"})  // the program's own arguments
      if ((!name || *name == "no") && arguments_.flag(type).value_or(false)) name = type;
    if (!name) assume("workload.precision = fp32 (no mixed_precision)");
    program::set_precision(plan().workload, !name || *name == "no"
                                                ? program::Precision::F32
                                                : program::parse_precision(*name));
  }

  void read_fsdp(bool fsdp) {
    const int version = in_.small("fsdp_config.fsdp_version", between(1, 2)).value_or(1);
    read_mesh();
    plan().zero_stage = 0;
    if (fsdp) read_sharding(version);
    plan().offload_optimizer = fsdp && in_.flag("fsdp_config.fsdp_offload_params").value_or(false);
    const bool recomputes = in_.flag("fsdp_config.fsdp_activation_checkpointing").value_or(false) ||
                            arguments_.flag("gradient_checkpointing").value_or(false);
    plan().recompute.kind = recomputes ? RecomputeKind::Full : RecomputeKind::None;
    choose_software();
  }

  void read_mesh() {
    program::ParallelConfig& p = plan().parallel;
    const std::string at = "parallelism_config.parallelism_config_";
    const int replicate = in_.small(at + "dp_replicate_size").value_or(1);
    const int shard = in_.small(at + "dp_shard_size").value_or(1);
    p.tp = in_.small(at + "tp_size").value_or(1);
    p.cp = in_.small(at + "cp_size").value_or(1);
    const int sp = in_.small(at + "sp_size").value_or(1);
    if (sp > 1)
      in_.fail(at + "sp_size",
               "1, or distributed_type DEEPSPEED, whose sequence parallelism it is");
    const auto strategy = in_.word(at + "cp_comm_strategy", kStrategies);
    plan().context_parallel =
        strategy && *strategy == "alltoall" ? ContextMethod::Ring : ContextMethod::AllGather;
    const double total = static_cast<double>(replicate) * shard * p.tp * p.cp;
    if (total == 1) {  // nothing said: all processes are data parallel
      p.dp = processes_;
      return;
    }
    if (total != processes_)
      throw ConfigError(fmt::format(
          "{}: num_processes: {} is not dp_replicate_size({}) * dp_shard_size({}) * tp_size({}) * "
          "cp_size({}) = {:.0f}",
          in_.file(), processes_, replicate, shard, p.tp, p.cp, total));
    p.dp = replicate * shard;
    if (replicate > 1 && shard * p.cp > 1) plan().zero_shard_group = shard * p.cp;
  }

  void read_sharding(int version) {
    const std::string reshard = "fsdp_config.fsdp_reshard_after_forward";
    const Json* again = in_.value(reshard);
    if (version == 2) {
      plan().zero_stage = in_.flag(reshard).value_or(true) ? 3 : 2;
      if (again == nullptr) assume("zero_stage = 3 (fsdp_reshard_after_forward is true)");
      in_.value("fsdp_config.fsdp_sharding_strategy");
      return;
    }
    const std::string name = strategy_of_fsdp1(again != nullptr && again->is_string());
    if (name == "NO_SHARD") return;
    plan().zero_stage = name == "SHARD_GRAD_OP" || name == "HYBRID_SHARD_ZERO2" ? 2 : 3;
    if (name.starts_with("HYBRID") && machines_ > 1) {
      plan().zero_shard_group = processes_ / machines_;
      assume(
          fmt::format("zero_shard_group = {} (num_processes / num_machines; {} shares within a "
                      "node)",
                      plan().zero_shard_group, name));
    }
  }

  /// FSDP 1 takes it by name or number, and of late under the name of FSDP 2.
  std::string strategy_of_fsdp1(bool under_new_name) {
    const std::string path = under_new_name ? "fsdp_config.fsdp_reshard_after_forward"
                                            : "fsdp_config.fsdp_sharding_strategy";
    const Json* value = in_.value(path);
    if (value == nullptr) {
      assume("zero_stage = 3 (no fsdp_sharding_strategy: FULL_SHARD)");
      return "FULL_SHARD";
    }
    if (value->is_number()) {
      const auto number = in_.small(path, between(1, 5));
      return std::string(kShardings[static_cast<std::size_t>(*number - 1)]);
    }
    return *in_.word(path, kShardings);
  }

  void choose_software() {
    const bool gathered = plan().zero_stage == 2 && plan().parallel.tp * plan().parallel.cp == 1;
    result_.plan.stack.software = plan().zero_stage == 0 ? "nanotron"
                                  : gathered             ? "fms-fsdp-2024-eager"
                                                         : "torchtitan-eager";
    assume(fmt::format("priced as {}: no profile is fitted to transformers under accelerate",
                       result_.plan.stack.software));
  }

  void read_deepspeed_section() {
    const int sp = in_.small("parallelism_config.parallelism_config_sp_size").value_or(1);
    if (const auto file = in_.text("deepspeed_config.deepspeed_config_file")) {
      const std::optional<std::string> text = named_file(request_, *file);
      if (!text)
        in_.fail("deepspeed_config.deepspeed_config_file",
                 "a file that is beside this one, or at this path from a folder above it");
      Json config = deepspeed_json(*text, *file);
      if (sp > 1 && config.is_object()) config["sequence_parallel_size"] = sp;
      Settings json(std::move(config), *file, kDeepSpeedAuto);
      apply_deepspeed(json, {processes_, "num_processes"}, arguments_of_deepspeed(), result_);
      for (const std::string& line : json.unread())
        result_.ignored.push_back(fmt::format("{}: {}", *file, line));
    } else if (const Json* whole = in_.value("deepspeed_config.deepspeed_config")) {
      Json config = *whole;  // as TrainingArguments take one, too
      if (sp > 1 && config.is_object()) config["sequence_parallel_size"] = sp;
      Settings json(std::move(config), in_.file() + ": deepspeed", kDeepSpeedAuto);
      apply_deepspeed(json, {processes_, "num_processes"}, arguments_of_deepspeed(), result_);
    } else {
      read_inline_deepspeed(sp);
    }
    if (in_.word("mixed_precision", kPrecisions).value_or("") == "fp8")
      program::set_precision(plan().workload, program::Precision::Fp8);
    apply_sequence_argument(arguments_, result_);
  }

  /// accelerate fills "auto" of bf16 and fp16 in by its mixed_precision.
  ScriptArguments arguments_of_deepspeed() {
    ScriptArguments arguments = arguments_;
    if (const auto name = in_.word("mixed_precision", kPrecisions); name && *name != "no")
      arguments.add(*name == "fp8" ? "bf16" : *name, "true", in_.file() + ": mixed_precision");
    return arguments;
  }

  /// The section as a ds_config.json that it stands for.
  void read_inline_deepspeed(int sp) {
    const std::string at = "deepspeed_config.";
    Json config = Json::object();
    config["zero_optimization"]["stage"] = in_.small(at + "zero_stage", between(0, 3)).value_or(2);
    for (const std::string name : {"offload_optimizer", "offload_param"})
      if (const auto device = in_.text(at + name + "_device"))
        config["zero_optimization"][name]["device"] = *device;
    if (const auto steps = in_.integer(at + "gradient_accumulation_steps"))
      config["gradient_accumulation_steps"] = *steps;
    if (const auto clip = in_.number(at + "gradient_clipping")) config["gradient_clipping"] = *clip;
    for (const char* const type : {"bf16", "fp16"}) config[type]["enabled"] = "auto";
    if (const auto name = in_.word("mixed_precision", kPrecisions); name && *name == "no")
      for (const char* const type : {"bf16", "fp16"})
        if (!arguments_.has(type)) config[type]["enabled"] = false;
    if (sp > 1) config["sequence_parallel_size"] = sp;
    Settings json(std::move(config), in_.file() + ": deepspeed_config", kDeepSpeedAuto);
    apply_deepspeed(json, {processes_, "num_processes"}, arguments_of_deepspeed(), result_);
  }

  const ImportRequest& request_;
  Settings& in_;
  const ScriptArguments& arguments_;
  ImportedPlan& result_;
  int processes_ = 1;
  int machines_ = 1;
};

bool has_type(std::string_view name, std::string_view text, std::string_view type) {
  return has_ending(name, {".yaml", ".yml"}) &&
         text.find(fmt::format("distributed_type: {}", type)) != std::string_view::npos;
}

}  // namespace
}  // namespace accelerate

void apply_accelerate(const ImportRequest& request, Settings& in, const ScriptArguments& arguments,
                      ImportedPlan& imported) {
  accelerate::AccelerateReader(request, in, arguments, imported).run();
}

ImportedPlan read_accelerate(const ImportRequest& request) {
  ImportedPlan imported;
  imported.plan.model = given_model(request, "accelerate");
  Settings in(parse_yaml(main_text(request), request.main), request.main, kDeepSpeedAuto);
  apply_accelerate(request, in, ScriptArguments(request), imported);
  list_ignored(in, imported);
  return imported;
}

bool recognizes_accelerate_fsdp(std::string_view name, std::string_view text) {
  return accelerate::has_type(name, text, "") && !recognizes_accelerate_megatron(name, text) &&
         !recognizes_accelerate_deepspeed(name, text);
}

bool recognizes_accelerate_megatron(std::string_view name, std::string_view text) {
  return accelerate::has_type(name, text, "MEGATRON_LM");
}

bool recognizes_accelerate_deepspeed(std::string_view name, std::string_view text) {
  return accelerate::has_type(name, text, "DEEPSPEED");
}

}  // namespace meshplan::planner
