#include "formats/accelerate/write_common.hpp"

#include <fmt/format.h>

#include "core/quoting.hpp"
#include "formats/nodes.hpp"
#include "formats/text/launch_text.hpp"
#include "formats/text/quoting.hpp"
#include "formats/text/script_arguments.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner::accelerate {

Json machine_section(const ExportRequest& request, std::string_view distributed_type) {
  const DType precision = request.plan.workload.precision;
  return {{"compute_environment", "LOCAL_MACHINE"},
          {"distributed_type", distributed_type},
          {"mixed_precision", precision == DType::BF16  ? "bf16"
                              : precision == DType::F16 ? "fp16"
                                                        : "no"},
          {"num_machines", nodes_of(request).count},
          {"num_processes", request.plan.parallel.world_size()},
          {"main_training_function", "main"},
          {"rdzv_backend", "static"},
          {"same_network", true},
          {"use_cpu", false}};
}

std::vector<ExportedFile> folder_of(const ExportRequest& request, const Json& configuration,
                                    std::string_view notes) {
  std::string launch =
      script_head("Starts the training on this node; on every node with its own NODE_RANK.",
                  "TRAIN=train.py ./run.sh --model_name_or_path ...");
  launch +=
      "exec accelerate launch --config_file \"$here/accelerate.yaml\" \\\n"
      "  --machine_rank \"${NODE_RANK:-0}\" --main_process_ip \"${MASTER_ADDR:-localhost}\" \\\n"
      "  --main_process_port \"${MASTER_PORT:-29500}\" \\\n"
      "  \"${TRAIN:?is the training script, one on the Trainer of Hugging Face}\"";
  launch += trainer_words(request.plan);
  const std::string all_notes = fmt::format(
      "TRAIN is your script; its model, data and number of steps are not in the plan, "
      "and the batch, the\nsequence and the optimizer are not in accelerate's file: "
      "run.sh says them.\n{}Written against accelerate at 16cb6eb8.\n",
      notes);
  return {{.name = "accelerate.yaml", .text = yaml_document(configuration)},
          {.name = "run.sh", .text = launch, .executable = true},
          {.name = "README.md", .text = starting_text(request, "run.sh", all_notes)}};
}

void refuse_optimizer(Refusals& refusals, const program::Plan& plan) {
  const program::OptimizerConfig& optimizer = plan.workload.optimizer;
  const bool is_sgd = optimizer.kind == program::OptimizerKind::Sgd;
  refusals.add(!is_sgd && optimizer.kind != program::OptimizerKind::AdamW,
               "workload.optimizer.kind", meshplan::name_of(optimizer.kind),
               "--optim of the Trainer has AdamW and SGD; nearest: adamw");
  refusals.add(is_sgd && optimizer.momentum != 0, "workload.optimizer.momentum", optimizer.momentum,
               "--optim sgd of the Trainer has none; nearest: 0");
}

}  // namespace meshplan::planner::accelerate
