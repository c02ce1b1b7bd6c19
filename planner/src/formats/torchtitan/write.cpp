// A Python module with a torchtitan configuration out of a plan.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "core/error.hpp"
#include "core/quoting.hpp"
#include "formats/sharding.hpp"
#include "formats/text/launch_text.hpp"
#include "formats/text/quoting.hpp"
#include "formats/torchtitan/inexpressible.hpp"
#include "formats/torchtitan/models.hpp"
#include "formats/torchtitan/pipeline.hpp"
#include "formats/torchtitan/torchtitan.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace torchtitan {
namespace {

using program::LearningRateSchedule;
using program::OptimizerConfig;
using program::OptimizerKind;
using program::Plan;
using program::RecomputeKind;

constexpr const char* kModule = "torchtitan_plan";
constexpr const char* kFunction = "planned";
constexpr std::size_t kWidth = 100;

/// The text of a module: its imports are collected while its lines are written.
class Module {
 public:
  /// @return the name
  std::string import(const std::string& module, const std::string& name) {
    imports_[module].insert(name);
    return name;
  }
  void line(const std::string& text) { body_ += "    " + text + "\n"; }

  /// "target = callee(\n key=value, ...)": an argument a line.
  void call(const std::string& target, const std::string& callee,
            const std::vector<std::pair<std::string, std::string>>& arguments) {
    line(fmt::format("{} = {}(", target, callee));
    for (const auto& [key, value] : arguments) line(fmt::format("    {}={},", key, value));
    line(")");
  }

  std::string text(const std::string& title) const {
    std::string all = fmt::format("\"\"\"{}\"\"\"\n\n", docstring_text(title));
    if (needs_path) all += "from pathlib import Path\n\n";
    for (const auto& [module, names] : imports_) {
      const std::string line = fmt::format("from {} import {}\n", module, fmt::join(names, ", "));
      all += line.size() <= kWidth ? line
                                   : fmt::format("from {} import (\n    {},\n)\n", module,
                                                 fmt::join(names, ",\n    "));
    }
    return all + fmt::format("\n\ndef {}() -> Trainer.Config:\n", kFunction) + body_;
  }

  bool needs_path = false;

 private:
  std::map<std::string, std::set<std::string>> imports_;
  std::string body_;
};

/// A list of lists over as many lines as it takes, indented as an argument.
std::string modules_literal(const std::vector<std::vector<std::string>>& modules) {
  constexpr std::size_t kIndent = 12;
  std::string text = "[\n";
  for (const std::vector<std::string>& part : modules) {
    std::string line = std::string(kIndent, ' ') + "[";
    std::size_t width = line.size();
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::string item = python_text(part[i]) + (i + 1 < part.size() ? "," : "]");
      if (width + item.size() + 1 > kWidth) {
        line += "\n" + std::string(kIndent, ' ');
        width = kIndent;
      }
      line += (i == 0 ? "" : " ") + item;
      width += item.size() + 1;
    }
    text += line + ",\n";
  }
  return text + std::string(kIndent - 4, ' ') + "]";
}

void write_model(Module& module, const Plan& plan, const Flavor& flavor) {
  const std::string package = fmt::format("torchtitan.models.{}", flavor.family);
  module.line(fmt::format("config = {}()",
                          module.import(package + ".config_registry", std::string(flavor.config))));
  module.line(fmt::format("config.model_spec = {}({}{})", module.import(package, "model_registry"),
                          python_text(flavor.name),
                          plan.parallel.cp > 1 ? ", attn_backend=\"flex\"" : ""));
  const int all = models::load_preset(flavor.preset).num_layers;
  if (plan.model.num_layers < all)
    module.line(fmt::format("config.model_spec.model.layers = config.model_spec.model.layers[:{}]",
                            plan.model.num_layers));
}

using Arguments = std::vector<std::pair<std::string, std::string>>;

/// How the layers are divided: by a number with weights of embedding and head, or listed.
struct Division {
  bool listed = false;
  int layers_of_stage = 0;
  int ends = 0;  // layers that embedding and head count as
};

Division division_of(const Plan& plan) {
  const int stages = plan.parallel.pp * plan.parallel.vpp;
  const int ends = plan.count_ends_as_layers ? 1 : 0;
  const int effective = plan.model.num_layers + 2 * ends;
  const bool even =
      effective % stages == 0 && own_division(plan.model.num_layers, stages, ends, ends) ==
                                     program::resolved_layers_per_stage(plan);
  return {.listed = !even, .layers_of_stage = effective / stages, .ends = ends};
}

/// What the module says beside the plan, by the names of planner/rules/torchtitan.json.
Facts settings_of(const Plan& plan, const ScheduleWords& schedule) {
  Facts facts = {{"cuda_graphs", 0}, {"flex_attention", 1}};
  if (schedule.csv) {
    for (const char* name :
         {"one_f_one_b", "gpipe", "interleaved", "overlapped_1f1b", "zb_h1", "zb_v", "dualpipe_v"})
      facts[name] = 0;
    facts["custom_schedule"] = 1;
  }
  const Division division = division_of(plan);
  facts["layout"] = division.listed;
  if (division.listed) {
    facts["layout_stages"] = std::int64_t{plan.parallel.pp} * plan.parallel.vpp;
    facts["layout_layers"] = plan.model.num_layers;
  } else {
    facts["layers_of_stage"] = division.layers_of_stage;
    facts["first_less"] = facts["last_less"] = division.ends;
  }
  return facts;
}

void add_pipeline(Module& module, const Plan& plan, const ScheduleWords& schedule,
                  Arguments& arguments) {
  const program::ParallelConfig& p = plan.parallel;
  arguments.emplace_back("pipeline_parallel_degree", std::to_string(p.pp));
  arguments.emplace_back("pipeline_parallel_schedule", python_text(schedule.name));
  if (schedule.csv) {
    module.needs_path = true;
    arguments.emplace_back("pipeline_parallel_schedule_csv",
                           "str(Path(__file__).with_name(\"schedule.csv\"))");
  }
  arguments.emplace_back("num_pp_microbatches", std::to_string(plan.num_microbatches()));
  const Division division = division_of(plan);
  if (division.listed) {
    arguments.emplace_back("module_fqns_per_model_part",
                           modules_literal(modules_of(program::resolved_layers_per_stage(plan))));
    return;
  }
  arguments.emplace_back("pipeline_parallel_layers_per_stage",
                         std::to_string(division.layers_of_stage));
  arguments.emplace_back("pipeline_parallel_first_stage_less_layers",
                         std::to_string(division.ends));
  arguments.emplace_back("pipeline_parallel_last_stage_less_layers", std::to_string(division.ends));
}

void write_parallelism(Module& module, const Plan& plan, const ScheduleWords& schedule) {
  const program::ParallelConfig& p = plan.parallel;
  const Sharding sharding = sharding_of(plan);
  Arguments arguments = {{"data_parallel_replicate_degree", std::to_string(sharding.replicate)},
                         {"data_parallel_shard_degree", std::to_string(sharding.shard)},
                         {"tensor_parallel_degree", std::to_string(p.tp)},
                         {"enable_sequence_parallel", p.tp == 1 || p.sp ? "True" : "False"},
                         {"context_parallel_degree", std::to_string(p.cp)},
                         {"expert_parallel_degree", std::to_string(p.ep)}};
  if (p.pp > 1) add_pipeline(module, plan, schedule, arguments);
  module.call("config.parallelism", module.import("torchtitan.config", "ParallelismConfig"),
              arguments);
}

void write_training(Module& module, const Plan& plan) {
  const program::Workload& workload = plan.workload;
  module.call(
      "config.training", module.import("torchtitan.config", "TrainingConfig"),
      {{"num_tokens_per_microbatch_per_dp_rank",
        fmt::format("{} * {}", plan.micro_batch_size, workload.seq_len)},
       {"num_tokens_per_train_step",
        fmt::format("{} * {}", workload.global_batch_size, workload.seq_len)},
       {"max_context_length", std::to_string(workload.seq_len)},
       {"max_norm", python_number(workload.optimizer.clip_norm)},
       {"mixed_precision_param", workload.precision == DType::F32 ? "\"float32\"" : "\"bfloat16\""},
       {"enable_cpu_offload", plan.offload_optimizer ? "True" : "False"},
       {"disable_cuda_graphs", "True"},
       {"steps", "config.training.steps"}});
  const std::string checkpoints = "torchtitan.distributed.activation_checkpoint";
  const RecomputeKind kind = plan.recompute.kind;
  module.line(fmt::format("config.activation_checkpoint = {}",
                          kind == RecomputeKind::None ? "None"
                          : kind == RecomputeKind::Full
                              ? module.import(checkpoints, "FullAC") + ".Config()"
                              : module.import(checkpoints, "SelectiveAC") + ".Config()"));
  module.line(fmt::format("config.compile = {}(enable=True, components=[\"model\", \"loss\"])",
                          module.import("torchtitan.config", "CompileConfig")));
}

void write_optimizer(Module& module, const OptimizerConfig& optimizer) {
  const std::string package = "torchtitan.components.optimizer";
  const std::pair<const char*, std::string> settings[] = {
      {"lr", python_number(optimizer.learning_rate)},
      {"betas",
       fmt::format("({}, {})", python_number(optimizer.beta1), python_number(optimizer.beta2))},
      {"eps", python_number(optimizer.epsilon)},
      {"weight_decay", python_number(optimizer.weight_decay)}};
  const std::string container = module.import(package, "OptimizersContainer");
  const std::string group = module.import(package, "ParamGroupConfig");
  module.line(fmt::format("config.optimizer = {}.Config(", container));
  module.line("    param_groups=[");
  module.line(fmt::format("        {}(", group));
  module.line("            pattern=r\".*\",");
  module.line(fmt::format("            optimizer_name=\"{}\",",
                          optimizer.kind == OptimizerKind::Adam ? "Adam" : "AdamW"));
  module.line("            optimizer_kwargs={");
  for (const auto& [key, value] : settings)
    module.line(fmt::format("                \"{}\": {},", key, value));
  module.line("            },");
  module.line("        )");
  module.line("    ]");
  module.line(")");
  const bool constant = optimizer.schedule == LearningRateSchedule::Constant;
  Arguments arguments = {{"warmup_steps", std::to_string(optimizer.warmup_steps)},
                         {"decay_type", "\"cosine\""},
                         {"min_lr_factor", python_number(optimizer.minimum_ratio)}};
  if (constant) arguments.emplace_back("decay_ratio", "0.0");
  if (optimizer.decay_steps > 0)
    arguments.emplace_back("total_steps", std::to_string(optimizer.decay_steps));
  module.call("config.lr_scheduler", module.import(package, "LRSchedulersContainer") + ".Config",
              arguments);
}

std::string module_text(const Plan& plan, const ScheduleWords& schedule) {
  const Flavor* flavor = flavor_of(plan.model);
  require_invariant(flavor != nullptr, "a model without flavor was not refused");
  Module module;
  module.import("torchtitan.trainer", "Trainer");
  write_model(module, plan, *flavor);
  write_parallelism(module, plan, schedule);
  write_training(module, plan);
  write_optimizer(module, plan.workload.optimizer);
  module.line("return config");
  return module.text(fmt::format("A plan of meshplan: {} on {} GPUs ({}). README.md says why.",
                                 flavor->name, plan.parallel.world_size(),
                                 program::to_string(plan.parallel)));
}

std::string python_path_text() {
  return "export PYTHONPATH=\"$here${PYTHONPATH:+:$PYTHONPATH}\"\n"
         "cd \"${TORCHTITAN_PATH:-.}\"  # where torchtitan lies\n";
}

std::string launch_text(const ExportRequest& request) {
  return script_head("Starts the training on this node; on every node with its own NODE_RANK.",
                     "TORCHTITAN_PATH=/path/to/torchtitan ./run.sh") +
         python_path_text() + "export PYTORCH_ALLOC_CONF=expandable_segments:True\n" +
         torchrun_text(request) +
         fmt::format("  -m torchtitan.train --module {} --config {} \"$@\"\n", kModule, kFunction);
}

/// torchtitan's own dry run (run_train.sh, COMM_MODE): one process and one GPU stand for all.
std::string validate_text(const Plan& plan) {
  return script_head(
             "Lets torchtitan build the model and one step of this configuration on one GPU.",
             "TORCHTITAN_PATH=/path/to/torchtitan ./validate.sh") +
         fmt::format("python3 -m py_compile \"$here/{}.py\"\n", kModule) + python_path_text() +
         fmt::format(
             "NGPU={} LOCAL_RANK=0 exec python3 -m torchtitan.train --module {} --config {} "
             "\\\n  --comm.mode=fake_backend --training.steps 1 \"$@\"\n",
             plan.parallel.world_size(), kModule, kFunction);
}

}  // namespace
}  // namespace torchtitan

std::vector<ExportedFile> write_torchtitan(const ExportRequest& request) {
  Refusals refusals("torchtitan");
  torchtitan::refuse_for_torchtitan(refusals, request.plan);
  refusals.throw_if_any();
  torchtitan::ScheduleWords schedule;
  if (request.plan.parallel.pp > 1) schedule = torchtitan::schedule_words(request.plan);
  require_rules_kept("torchtitan", request.plan, torchtitan::settings_of(request.plan, schedule));
  std::vector<ExportedFile> files = {
      {.name = fmt::format("{}.py", torchtitan::kModule),
       .text = torchtitan::module_text(request.plan, schedule)},
      {.name = "run.sh", .text = torchtitan::launch_text(request), .executable = true},
      {.name = "validate.sh", .text = torchtitan::validate_text(request.plan), .executable = true}};
  if (schedule.csv) files.push_back({.name = "schedule.csv", .text = *schedule.csv});
  const std::string notes = fmt::format(
      "`TORCHTITAN_PATH` is the repository; `validate.sh` is its dry run, which takes one GPU. "
      "Data, "
      "checkpoints and\nthe number of steps are those of torchtitan's own `{}`, which "
      "`{}.py` starts from. Weight decay is on\nall parameters there; the plan has it on matrices "
      "alone. Written against torchtitan at b5bcd76c.\n",
      torchtitan::flavor_of(request.plan.model)->config, torchtitan::kModule);
  files.push_back({.name = "README.md", .text = starting_text(request, "run.sh", notes)});
  return files;
}

}  // namespace meshplan::planner
