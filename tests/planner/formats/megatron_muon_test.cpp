// Muon in scripts of Megatron-LM and recipes of Megatron-Bridge.
#include <catch2/catch.hpp>

#include "formats/megatron/megatron.hpp"
#include "planner/formats/formats_support.hpp"
#include "planner/formats/plans.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;
using program::MuonTp;
using program::OptimizerKind;
using program::Plan;

ImportedPlan imported(const std::string& text) {
  return read_megatron({.files = {{"run.sh", text}}, .main = "run.sh"});
}

ImportedPlan imported_flags(const std::string& flags) {
  return imported(
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
      "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
      "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 "
      "--vocab-size 32000 --lr 1e-4 --bf16 " +
      flags);
}

std::string written_refusal(const Plan& plan, std::string_view format) {
  try {
    format_of(format).write({.plan = plan});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

Plan muon() {
  Plan plan = dense_70b();
  plan.stack.software = "megatron-core";
  plan.workload.optimizer.kind = OptimizerKind::Muon;
  plan.workload.optimizer.momentum = 0.95;
  plan.workload.optimizer.orthogonal_steps = 7;
  return plan;
}

}  // namespace

TEST_CASE("Flags of Muon are the plan's optimizer and settings", "[planner][formats][muon]") {
  const Plan plan = imported_flags(
                        "--optimizer muon --muon-momentum 0.95 --muon-num-ns-steps 8 "
                        "--muon-tp-mode blockwise --use-distributed-optimizer --adam-beta2 0.95")
                        .plan;
  CHECK(plan.workload.optimizer.kind == OptimizerKind::Muon);
  CHECK(plan.workload.optimizer.momentum == 0.95);
  CHECK(plan.workload.optimizer.orthogonal_steps == 8);
  CHECK(plan.workload.optimizer.beta2 == 0.95);  // of what is no matrix
  CHECK(plan.zero_stage == 1);
  CHECK(plan.stack.settings.muon_tp == MuonTp::Blockwise);
  CHECK(plan.stack.settings.layer_wise_layout == true);

  const Plan bare = imported_flags("--optimizer muon").plan;  // nobody divides anything
  CHECK(bare.zero_stage == 0);
  CHECK(bare.workload.optimizer.momentum == 0.9);
  CHECK_FALSE(bare.stack.settings.layer_wise_layout);
  CHECK(imported_flags("--optimizer dist_muon").plan.zero_stage == 1);
  CHECK(imported_flags(
            "--optimizer muon --use-distributed-optimizer --no-use-layer-wise-param-layout")
            .plan.stack.settings.layer_wise_layout == false);
  const ImportedPlan high = imported_flags("--optimizer muon --muon-fp32-matmul-prec high");
  CHECK(std::ranges::count(high.assumptions,
                           "Muon's products are in bf16 (the script's precision: high)") == 1);
  // Its flags are nothing to others.
  const Plan adam = imported_flags("--muon-momentum 0.5 --muon-tp-mode blockwise").plan;
  CHECK(adam.workload.optimizer == imported_flags("").plan.workload.optimizer);
  CHECK(adam.stack.settings == imported_flags("").plan.stack.settings);
}

TEST_CASE("A plan with Muon is written for Megatron-LM and read back", "[planner][formats][muon]") {
  for (const MuonTp way : {MuonTp::Duplicated, MuonTp::Blockwise, MuonTp::Distributed})
    for (const bool layout : {true, false}) {
      Plan plan = muon();
      plan.stack.settings.muon_tp = way;
      plan.stack.settings.layer_wise_layout = layout;
      std::string script;
      for (const ExportedFile& file : format_of("megatron").write({.plan = plan}))
        if (file.name == "run.sh") script = file.text;
      INFO(script);
      const Plan back = imported(script).plan;
      CHECK(back.workload.optimizer == plan.workload.optimizer);
      CHECK(back.stack.settings.muon_tp == way);
      CHECK(back.stack.settings.layer_wise_layout == layout);
      CHECK(back.zero_stage == plan.zero_stage);
    }
}

TEST_CASE("Muon is refused by name where it is not written", "[planner][formats][muon]") {
  Plan plan = muon();
  plan.offload_optimizer = true;
  CHECK_THAT(written_refusal(plan, "megatron"), Contains("offload_optimizer with muon"));
  plan = muon();
  program::set_precision(plan.workload, program::Precision::F16);
  CHECK_THAT(written_refusal(plan, "megatron"), Contains("'fp16' with muon"));
  for (const char* format :
       {"megatron-bridge", "torchtitan", "nanotron", "deepspeed", "accelerate-fsdp"}) {
    CAPTURE(format);
    plan = muon();
    plan.stack = {};
    CHECK_THAT(written_refusal(plan, format),
               Contains("workload.optimizer.kind") && Contains("muon"));
  }
}

}  // namespace meshplan::planner
