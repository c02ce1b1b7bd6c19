// Checkpoints of runs whose optimizer state lies on the host: the same files, and the same bits.
#include <catch2/catch.hpp>

#include "runtime/weights/checkpoint_job.hpp"

namespace meshplan::test {
namespace {

/// Plans on meshes that a job of `ranks` can have: every ZeRO stage, precision and optimizer whose
/// state is cut otherwise, in many pieces.
std::vector<Plan> offloaded_plans(int ranks) {
  std::vector<Plan> plans = {checkpoint_plan(llama_style(), {}),
                             checkpoint_plan(llama_style(), {}, DType::BF16),
                             checkpoint_plan(llama_style(), {.dp = 4}, DType::BF16),
                             checkpoint_plan(llama_style(), {.dp = 4}, DType::BF16),
                             checkpoint_plan(gpt2_style(), {.dp = 4}),
                             checkpoint_plan(llama_style(), {.dp = 4}, DType::BF16),
                             checkpoint_plan(gpt2_style(), {.tp = 2, .pp = 2}, DType::BF16),
                             checkpoint_plan(mixtral_style(), {.dp = 4, .ep = 2}, DType::BF16)};
  plans[3].zero_stage = 1;
  plans[4].zero_stage = 2;
  plans[5].zero_stage = 3;
  plans[6].workload.optimizer.kind = program::OptimizerKind::Sgd;
  plans[7].zero_stage = 1;
  for (Plan& plan : plans) {
    plan.bucket_bytes = 16 << 10;
    plan.expert_imbalance = 8;
    plan.offload_optimizer = true;
  }
  std::erase_if(plans, [&](const Plan& plan) { return plan.parallel.world_size() > ranks; });
  return plans;
}

}  // namespace

TEST_CASE("with the optimizer's state on the host a resumed run equals an uninterrupted one",
          "[checkpoint][offload]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const Plan& plan : offloaded_plans(world->size())) check_resumed_equals(*world, plan);
}

TEST_CASE("a run goes on bit for bit with its optimizer's state in the other place",
          "[checkpoint][offload]") {
  const auto world = runtime::make_host_world(mpi_session(), {});
  for (const Plan& plan : offloaded_plans(world->size())) {
    if (plan.workload.precision == DType::F32) continue;  // as bf16, without master weights
    Plan on_device = plan;
    on_device.offload_optimizer = false;
    check_resumed_equals(*world, plan, on_device);
    check_resumed_equals(*world, on_device, plan);
  }
}

}  // namespace meshplan::test
