#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "planner/formats/formats_support.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/random_plans.hpp"

namespace meshplan::planner::format_tests {
namespace {

using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;
using program::ScheduleKind;

struct Target {
  const char* format;
  const char* main;
  Plan (*nearer)(Plan plan);  // to what the target has words for; some of it, not all
  Plan (*same)(Plan plan);    // what the target does not tell apart
  int least;                  // plans of 600 that it can express
};

Plan without_own_techniques(Plan plan) {
  plan.frozen.clear();
  plan.workload.documents = {};
  plan.recompute.num_layers.reset();
  return plan;
}

Plan nearer_torchtitan(Plan plan) {
  plan = without_own_techniques(std::move(plan));
  plan.context_parallel = ContextMethod::AllGather;
  if (plan.zero_stage > 0 || plan.parallel.cp > 1) plan.zero_stage = 3;
  plan.workload.optimizer.kind = program::OptimizerKind::AdamW;
  plan.parallel.etp = plan.model.moe && plan.parallel.ep == 1 ? plan.parallel.tp : 1;
  return plan;
}

Plan same_in_torchtitan(Plan plan) {
  plan.bucket_bytes = Plan().bucket_bytes;
  const int ranks = plan.parallel.dp * plan.parallel.cp;
  if (plan.zero_shard_group == 1 && ranks > 1) plan.zero_stage = plan.zero_shard_group = 0;
  if (ranks == 1) {
    plan.zero_stage = 3;  // FSDP of one rank
    plan.zero_shard_group = 0;
  }
  return canonical(plan);
}

Plan nearer_deepspeed(Plan plan) {
  plan = without_own_techniques(std::move(plan));
  plan.context_parallel = ContextMethod::Ulysses;
  if (plan.recompute.kind == RecomputeKind::Selective) plan.recompute.kind = RecomputeKind::Full;
  plan.parallel.sp = false;
  if (plan.parallel.tp > 1) plan.parallel.cp = 1;
  if (plan.zero_stage != 3) plan.zero_shard_group = 0;
  if (plan.zero_stage == 0) plan.offload_optimizer = false;
  return plan;
}

Plan same_in_deepspeed(Plan plan) {
  if (plan.workload.optimizer.decay_steps == 0) plan.workload.optimizer.decay_steps = 1000;
  if (plan.workload.optimizer.kind == program::OptimizerKind::Sgd)
    plan.workload.optimizer.momentum = 0.9;
  return canonical(plan);
}

Plan nearer_nanotron(Plan plan) {
  plan = without_own_techniques(std::move(plan));
  plan.context_parallel = ContextMethod::Ring;
  plan.layers_per_stage.clear();
  plan.count_ends_as_layers = false;
  plan.offload_optimizer = false;
  if (plan.recompute.kind == RecomputeKind::Selective) plan.recompute.kind = RecomputeKind::None;
  if (plan.parallel.vpp > 1 || plan.schedule == ScheduleKind::ZbH1) {
    plan.parallel.vpp = 1;
    plan.schedule = ScheduleKind::OneFOneB;
  }
  plan.zero_stage = plan.parallel.cp > 1 ? 0 : plan.zero_stage % 2;
  plan.zero_shard_group = 0;
  plan.workload.optimizer.momentum = 0;
  plan.model.rope_scaling.reset();
  return plan;
}

Plan nearer_fsdp(Plan plan) {
  plan = without_own_techniques(std::move(plan));
  if (plan.recompute.kind == RecomputeKind::Selective) plan.recompute.kind = RecomputeKind::Full;
  if (plan.zero_stage < 2) plan.zero_stage += 2;
  plan.parallel.sp = false;
  plan.parallel.ep = plan.parallel.etp = 1;
  plan.workload.optimizer.momentum = 0;
  return plan;
}

Plan same_in_trainer(Plan plan) {
  plan.bucket_bytes = Plan().bucket_bytes;
  return canonical(plan);
}

Plan nearer_plugin(Plan plan) {
  const auto layers = plan.recompute.num_layers;
  plan = without_own_techniques(std::move(plan));
  plan.recompute = {.kind = RecomputeKind::Full, .num_layers = layers};
  plan.context_parallel = ContextMethod::Ring;
  if (plan.parallel.vpp > 1 || plan.schedule == ScheduleKind::ZbH1) {
    plan.parallel.vpp = 1;
    plan.schedule = ScheduleKind::OneFOneB;
    plan.layers_per_stage.clear();
  }
  if (plan.schedule == ScheduleKind::GPipe) plan.schedule = ScheduleKind::OneFOneB;
  plan.zero_stage = plan.zero_stage % 2;
  plan.zero_shard_group = 0;
  plan.workload.optimizer.momentum = 0;
  return plan;
}

const std::vector<Target> kTargets = {
    {"torchtitan", "torchtitan_plan.py", nearer_torchtitan, same_in_torchtitan, 40},
    {"deepspeed", "ds_config.json", nearer_deepspeed, same_in_deepspeed, 30},
    {"nanotron", "nanotron.yaml", nearer_nanotron, canonical, 30},
    {"accelerate-fsdp", "accelerate.yaml", nearer_fsdp, same_in_trainer, 30},
    {"accelerate-megatron", "accelerate.yaml", nearer_plugin, same_in_trainer, 60},
    {"accelerate-deepspeed", "accelerate.yaml", nearer_deepspeed, same_in_deepspeed, 30}};

}  // namespace

TEST_CASE("Random plans that a target can express come back from it", "[formats][roundtrip]") {
  for (const Target& target : kTargets) {
    const Format& format = format_of(target.format);
    meshplan::testing::Random random(2026);
    int expressed = 0;
    for (int i = 0; i < 600; ++i) {
      Plan plan = sim::random_plan(random).plan;
      if (i % 4 != 0) plan = target.nearer(plan);
      std::vector<ExportedFile> files;
      try {
        files = format.write({.plan = plan});
      } catch (const ConfigError&) {
        continue;  // refused
      }
      ++expressed;
      const ImportRequest request = request_of(files, target.main, plan);
      ImportedPlan imported = format.read(request);
      CHECK_FALSE(imported.plan.stack.is_own());
      imported.plan.stack = plan.stack;  // which is ours
      INFO(target.format << ", plan " << i << "\n" << request.files.at(target.main));
      CHECK(program::to_json(target.same(imported.plan)) == program::to_json(target.same(plan)));
      CHECK(format.recognizes(target.main, request.files.at(target.main)));
    }
    INFO(target.format);
    CHECK(expressed >= target.least);
  }
}

}  // namespace meshplan::planner::format_tests
