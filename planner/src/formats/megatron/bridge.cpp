// A recipe of Megatron-Bridge out of a plan: the same core as Megatron-LM, configured in Python.
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/quoting.hpp"
#include "formats/megatron/bridge_fields.hpp"
#include "formats/megatron/inexpressible.hpp"
#include "formats/megatron/megatron.hpp"
#include "formats/megatron_bridge/adapters.hpp"
#include "formats/nodes.hpp"
#include "formats/readme.hpp"
#include "formats/text/refusals.hpp"

namespace meshplan::planner {
namespace {

constexpr const char* kBridgeCommit = "067f987d";

std::string line_of_field(std::string_view indent, const std::string& text, std::string_view why) {
  return why.empty() ? fmt::format("{}{}\n", indent, text)
                     : fmt::format("{}{}  # {}\n", indent, text, comment_text(why));
}

std::string import_lines(const program::Plan& plan) {
  std::string lines = "import os\n\n";
  const bool silu = plan.model.activation == models::ActivationKind::Silu;
  if (silu) lines += "import torch.nn.functional as F\n";
  if (plan.model.activation == models::ActivationKind::SquaredRelu)
    lines += "from megatron.core.activations import squared_relu\n";
  if (plan.model.activation == models::ActivationKind::ClampedSilu)
    lines += "from megatron.core.fusions.fused_bias_geglu import quick_gelu\n";
  lines += plan.model.mla ? "from megatron.bridge.models.mla_provider import MLAModelProvider\n"
                          : "from megatron.bridge.models.gpt_provider import GPTModelProvider\n";
  lines +=
      "from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config\n"
      "from megatron.bridge.training.comm_overlap import CommOverlapConfig\n"
      "from megatron.bridge.training.gpt_step import forward_step\n"
      "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig, bf16_mixed, "
      "fp16_mixed\n";
  return lines + (plan.model.adapters ? "from megatron.bridge.peft.lora import LoRA\n"
                                        "from megatron.bridge.training.finetune import finetune\n"
                                      : "from megatron.bridge.training.pretrain import pretrain\n");
}

/// Recipes of numbers are the same as Megatron-LM's flags of precision.
std::string precision_lines(const program::Plan& plan) {
  const program::Workload& workload = plan.workload;
  if (workload.precision == DType::F32)
    return "    cfg.mixed_precision = MixedPrecisionConfig(fp32=True)\n";
  if (workload.precision == DType::F16) return "    cfg.mixed_precision = fp16_mixed()\n";
  std::string lines =
      "    cfg.mixed_precision = bf16_mixed()\n"
      "    cfg.mixed_precision.grad_reduce_in_fp32 = False  # as predicted: gradients in bf16\n"
      "    cfg.ddp.grad_reduce_in_fp32 = False\n";
  if (workload.fp8 == program::Float8Recipe::None) return lines;
  if (megatron::is_fp4(plan))
    return lines +
           "    cfg.mixed_precision.fp4 = \"e2m1\"  # products in four bits\n"
           "    cfg.mixed_precision.fp4_recipe = \"nvfp4\"\n";
  lines +=
      "    cfg.mixed_precision.fp8 = \"hybrid\"  # values and weights E4M3, gradients E5M2\n"
      "    cfg.mixed_precision.fp8_recipe = \"tensorwise\"  # one scale a tensor\n";
  const bool gathers = plan.zero_stage == 1 && !plan.offload_optimizer;
  return lines +
         fmt::format("    cfg.mixed_precision.fp8_param_gather = {}\n", gathers ? "True" : "False");
}

std::string recipe_text(const ExportRequest& request) {
  const program::Plan& plan = request.plan;
  std::string model;
  std::string others;
  for (const megatron::BridgeField& field : megatron::bridge_fields(plan)) {
    if (field.object == "model")
      model +=
          line_of_field("        ", fmt::format("{}={},", field.name, field.literal), field.why);
    else
      others += line_of_field(
          "    ", fmt::format("cfg.{}.{} = {}", field.object, field.name, field.literal),
          field.why);
  }
  const std::optional<std::string> adapters = bridge::adapters_text(plan);
  const std::string peft =
      adapters ? fmt::format(
                     "    cfg.peft = {}\n    cfg.checkpoint.pretrained_checkpoint = "
                     "os.environ[\"PRETRAINED_CHECKPOINT\"]\n",
                     *adapters)
               : "";
  const bool overlaps_tp = plan.parallel.tp > 1 && plan.parallel.sp;
  const std::string overlap =
      overlaps_tp ? "    cfg.comm_overlap = CommOverlapConfig(tp_comm_overlap=True)\n" : "";
  return fmt::format(R"("""{title}

Written by meshplan export for Megatron-Bridge {commit}; README.md says why this plan.
"""

{imports}

def pretrain_config():
    """The plan as a configuration; everything else is as pretrain_gpt.py has it."""
    cfg = vanilla_gpt_pretrain_config()
    cfg.model = {provider}(
{model}    )
{others}{precision}{overlap}{peft}    cfg.train.train_iters = int(os.environ.get("TRAIN_ITERS", "1000"))
    cfg.logger.log_interval = 1
    cfg.validation.eval_iters = 0
    if os.environ.get("MOCK_DATA", "0") != "1":
        cfg.dataset.blend = ([os.environ["DATA_PATH"]], None)
        cfg.tokenizer.tokenizer_type = os.environ.get("TOKENIZER_TYPE", "HuggingFaceTokenizer")
        cfg.tokenizer.tokenizer_model = os.environ["TOKENIZER_MODEL"]
    return cfg


if __name__ == "__main__":
    {train}(pretrain_config(), forward_step)
)",
                     fmt::arg("peft", peft), fmt::arg("train", adapters ? "finetune" : "pretrain"),
                     fmt::arg("title", docstring_text(title_of(request))),
                     fmt::arg("commit", kBridgeCommit), fmt::arg("imports", import_lines(plan)),
                     fmt::arg("provider", plan.model.mla ? "MLAModelProvider" : "GPTModelProvider"),
                     fmt::arg("model", model), fmt::arg("others", others),
                     fmt::arg("precision", precision_lines(plan)), fmt::arg("overlap", overlap));
}

std::string bridge_run_text(const ExportRequest& request) {
  const Nodes nodes = nodes_of(request);
  return fmt::format(R"(#!/bin/bash
# {title}
# On every node: NODE_RANK=0 MASTER_ADDR=first-node DATA_PATH=... TOKENIZER_MODEL=... ./run.sh
set -euo pipefail

{connections}exec torchrun \
  --nproc_per_node {each} \
  --nnodes {nodes} \
  --node_rank "${{NODE_RANK:-0}}" \
  --master_addr "${{MASTER_ADDR:-localhost}}" \
  --master_port "${{MASTER_PORT:-29500}}" \
  "$(dirname "$0")/recipe.py" "$@"
)",
                     fmt::arg("title", comment_text(title_of(request))),
                     fmt::arg("connections", megatron_environment(request)),
                     fmt::arg("each", nodes.ranks_each), fmt::arg("nodes", nodes.count));
}

std::string bridge_starting(const ExportRequest& request) {
  return fmt::format(
      R"(## Starting it

`recipe.py` holds `pretrain_config()`, a recipe of Megatron-Bridge {commit}, and trains with it when it is run; `run.sh` starts it with `torchrun`, once on each node.
`MOCK_DATA=1 TRAIN_ITERS=10 ./run.sh` is a short run on made-up data, to compare with the prediction{ranks}. Else `DATA_PATH` is the prefix of
your `.bin` and `.idx` files and `TOKENIZER_MODEL` the tokenizer. To begin from weights of Hugging Face, replace `cfg.model` by
`AutoBridge.from_hf_pretrained(ID).to_megatron_provider()` and set the fields of the parallel axes on it.{adapters}
)",
      fmt::arg("adapters", request.plan.model.adapters
                               ? " Adapters stand over the weights in `PRETRAINED_CHECKPOINT`."
                               : ""),
      fmt::arg("commit", kBridgeCommit),
      fmt::arg("ranks", request.plan.prediction ? "" : " that `meshplan simulate` makes"));
}

}  // namespace

std::vector<ExportedFile> write_megatron_bridge(const ExportRequest& request) {
  program::Plan trained = request.plan;
  if (bridge::adapters_text(trained)) {  // a recipe says these two
    trained.model.adapters.reset();
    trained.frozen.clear();
  }
  Refusals refusals("Megatron-Bridge");
  refusals.add(trained.workload.optimizer.kind == program::OptimizerKind::Muon,
               "workload.optimizer.kind", "muon",
               "a recipe with it is not written by this version; nearest: adamw, or a script of "
               "Megatron-LM");
  refusals.throw_if_any();
  require_expressible_by_megatron(trained);
  return {{.name = "recipe.py", .text = recipe_text(request)},
          {.name = "run.sh", .text = bridge_run_text(request), .executable = true},
          {.name = "README.md", .text = bridge_starting(request)}};
}

}  // namespace meshplan::planner
