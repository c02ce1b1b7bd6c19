#include "planner/failures/failure_model.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.hpp"
#include "models/counts.hpp"
#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

using Catch::Matchers::Contains;

program::Plan plan_of(const char* model, program::ParallelConfig parallel, int global_batch) {
  program::Plan plan;
  plan.model = models::load_preset(model);
  plan.workload = {.seq_len = 512, .global_batch_size = global_batch};
  plan.parallel = parallel;
  return plan;
}

sim::Cluster nodes(int num_nodes) {
  return sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 8 * num_nodes);
}

FailureModel model_of(const program::Plan& plan, const FailureAssumptions& assumptions = {}) {
  return FailureModel(plan.model, plan.frozen, nodes(plan.parallel.world_size() / 8), assumptions);
}

SmallerWorlds worlds(const program::Plan& plan, SmallerWorld kind) {
  return SmallerWorlds(plan, 8, plan.parallel.world_size() / 8, kind);
}

}  // namespace

TEST_CASE("A checkpoint holds twelve bytes a parameter", "[planner][failures]") {
  for (const char* name : {"llama3-8b", "gpt2-124m", "mixtral-8x7b", "llama3.2-1b"}) {
    const program::Plan plan = plan_of(name, {.dp = 16}, 16);
    const auto counts = models::count_parameters(models::build_graph(plan.model));
    CHECK(model_of(plan).costs(plan).checkpoint.bytes ==
          Approx(12.0 * static_cast<double>(counts.total)));
  }
  program::Plan sgd = plan_of("gpt2-124m", {.dp = 8}, 16);
  sgd.workload.optimizer.kind = program::OptimizerKind::Sgd;
  const auto counts = models::count_parameters(models::build_graph(sgd.model));
  CHECK(model_of(sgd).costs(sgd).checkpoint.bytes ==
        Approx(8.0 * static_cast<double>(counts.total)));
  program::Plan frozen = plan_of("gpt2-124m", {.dp = 8}, 16);
  frozen.frozen = {"*", "!layers.11"};
  CHECK(model_of(frozen).costs(frozen).checkpoint.bytes < 5.5 * static_cast<double>(counts.total));
}

TEST_CASE("The fullest rank saves its stage's share", "[planner][failures]") {
  const program::Plan plan = plan_of("llama3-8b", {.tp = 4, .pp = 4, .dp = 2}, 16);
  double fullest = 0;
  for (int stage = 0; stage < plan.parallel.pp; ++stage) {
    const program::Program program = program::lower(plan, stage);
    fullest = std::max(fullest,
                       12.0 * static_cast<double>(program.parameter_elements) / plan.parallel.dp);
  }
  const CheckpointCosts costs = model_of(plan).costs(plan).checkpoint;
  CHECK(costs.rank_bytes == Approx(fullest).epsilon(1e-3));  // the program pads and copies norms
  CHECK(costs.host_node_bytes == Approx(8 * costs.rank_bytes));
}

TEST_CASE("Loading reads what ranks hold, not what was saved", "[planner][failures]") {
  // Without ZeRO each of 16 replicas reads everything; with ZeRO-1 its weights, with ZeRO-3 its
  // share.
  program::Plan plan = plan_of("llama3-8b", {.dp = 16}, 16);
  const FailureAssumptions slow{.storage_gb_per_s = 0.001};  // else the copy to the device counts
  const auto load_s = [&](int zero) {
    plan.zero_stage = zero;
    return model_of(plan, slow).costs(plan).checkpoint.load_s;
  };
  const double once = model_of(plan, slow).costs(plan).checkpoint.bytes / 1e6;
  CHECK(load_s(0) == Approx(16 * once).epsilon(1e-3));
  CHECK(load_s(1) == Approx((16.0 * 4 + 8) / 12 * once).epsilon(1e-3));
  CHECK(load_s(3) == Approx(once).epsilon(1e-3));
}

TEST_CASE("Surviving nodes hold as many whole replicas as fit", "[planner][failures]") {
  const program::Plan four = plan_of("llama3-8b", {.tp = 8, .pp = 4, .dp = 8}, 64);
  const SmallerWorlds shrink = worlds(four, SmallerWorld::ShrinkBatch);
  CHECK(shrink.speed(32) == 1);
  for (int away = 1; away <= 4; ++away) CHECK(shrink.speed(32 - away) == Approx(7.0 / 8));
  CHECK(shrink.speed(27) == Approx(6.0 / 8));
  CHECK(shrink.speed(3) == 0);
  // 64 micro-batches of 8 replicas: 7 replicas have at most 10, and the pipeline fills in 3.
  CHECK(worlds(four, SmallerWorld::KeepBatch).speed(31) == Approx((8.0 + 3) / (10 + 3)));
  CHECK(worlds(four, SmallerWorld::Wait).speed(31) == 0);
  const program::Plan one = plan_of("llama3-8b", {.tp = 8, .dp = 32}, 64);
  CHECK(worlds(one, SmallerWorld::ShrinkBatch).speed(31) == Approx(31.0 / 32));
  const program::Plan all = plan_of("llama3-8b", {.tp = 8, .pp = 32, .dp = 1}, 64);
  CHECK(worlds(all, SmallerWorld::ShrinkBatch).speed(31) == 0);
}

TEST_CASE("Experts need whole grids", "[planner][failures]") {
  const program::Plan plan = plan_of("mixtral-8x7b", {.tp = 2, .dp = 32, .ep = 8}, 64);
  const SmallerWorlds worlds_of = worlds(plan, SmallerWorld::ShrinkBatch);
  CHECK(worlds_of.replicas(7) == 28);  // 2 * 28 ranks are 7 grids of 8
  program::Plan hybrid = plan_of("llama3-8b", {.dp = 64}, 64);
  hybrid.zero_stage = 3;
  hybrid.zero_shard_group = 32;
  CHECK(worlds(hybrid, SmallerWorld::ShrinkBatch).replicas(7) == 32);
}

TEST_CASE("A replica that spans more nodes loses more with one", "[planner][failures]") {
  double before = 1;
  for (const int pp : {1, 2, 4, 8}) {
    const program::Plan plan = plan_of("llama3-8b", {.tp = 8, .pp = pp, .dp = 16 / pp}, 4096);
    const double goodput =
        model_of(plan, {.smaller_world = SmallerWorld::ShrinkBatch}).goodput(plan, 1).goodput;
    CHECK(goodput < before);
    before = goodput;
  }
}

TEST_CASE("Spares and a partner's memory raise goodput", "[planner][failures]") {
  const program::Plan plan = plan_of("llama3-8b", {.tp = 8, .pp = 4, .dp = 16}, 64);
  // A file system so slow that writing takes longer than Daly's interval.
  FailureAssumptions assumptions{.device_mtbf_hours = 2000, .storage_gb_per_s = 0.5};
  const auto goodput = [&] { return model_of(plan, assumptions).goodput(plan, 1); };
  const Goodput alone = goodput();
  assumptions.spare_nodes = 20;
  const Goodput spared = goodput();
  CHECK(spared.goodput > alone.goodput);
  CHECK(spared.smaller_world == Approx(0).margin(1e-3));
  CHECK(spared.paid == Approx(1 + 20.0 / 64));
  assumptions.checkpoints = CheckpointPlace::Partner;
  const Goodput partner = goodput();
  CHECK(partner.goodput > spared.goodput);
  CHECK(partner.interval_s < spared.interval_s);
  // Three states of a rank's own and three of another node's (docs/checkpoints.md), beside one copy
  // on its way to the file system.
  CHECK(partner.checkpoint.host_node_bytes == Approx(6 * spared.checkpoint.host_node_bytes));
  CHECK(partner.checkpoint.stall_s > spared.checkpoint.stall_s);  // for it reads for hashes, too
}

TEST_CASE("A checkpoint is not begun before the last is written", "[planner][failures]") {
  const program::Plan plan = plan_of("llama3-8b", {.tp = 8, .dp = 2}, 64);
  const FailureModel slow = model_of(plan, {.interval_s = 1, .storage_gb_per_s = 0.01});
  const double write_s = slow.costs(plan).checkpoint.lag_s;
  CHECK(write_s == Approx(slow.costs(plan).checkpoint.bytes / 1e7));
  CHECK(slow.goodput(plan, 1).interval_s == Approx(write_s));
}

TEST_CASE("A file system is as fast as stated, else as the cluster says, else assumed",
          "[planner][failures]") {
  const program::Plan plan = plan_of("gpt2-124m", {.dp = 8}, 16);
  sim::Cluster cluster = nodes(1);
  const auto lag_times_rate = [&](const FailureAssumptions& assumptions, double gb_per_s) {
    const FailureModel model(plan.model, {}, cluster, assumptions);
    const CheckpointCosts costs = model.costs(plan).checkpoint;
    return costs.lag_s * gb_per_s * 1e9 / costs.bytes;
  };
  CHECK(lag_times_rate({}, 1) == Approx(1));
  const auto mentions_storage = [&] {
    const auto lines = FailureModel(plan.model, {}, cluster, {}).assumed();
    return std::ranges::any_of(lines, [](const std::string& line) {
      return line.find("file system") != std::string::npos;
    });
  };
  CHECK(mentions_storage());
  cluster.storage_gb_per_s = 4;
  CHECK(lag_times_rate({}, 4) == Approx(1));
  CHECK_FALSE(mentions_storage());
  CHECK(lag_times_rate({.storage_gb_per_s = 7}, 7) == Approx(1));
}

TEST_CASE("Assumptions that cannot be are refused", "[planner][failures]") {
  const program::Plan plan = plan_of("gpt2-124m", {.dp = 8}, 16);
  const auto refused = [&](const FailureAssumptions& assumptions, const char* message) {
    CHECK_THROWS_WITH(model_of(plan, assumptions), Contains(message));
  };
  refused({.device_mtbf_hours = 0}, "MTBF");
  refused({.device_mtbf_hours = -1}, "MTBF");
  refused({.device_mtbf_hours = std::nan("")}, "MTBF");
  refused({.device_mtbf_hours = 1e-3}, "fail before a restart");
  refused({.spare_nodes = 2}, "nearest: 1");
  refused({.spare_nodes = -1}, "nearest: 0");
  refused({.repair_hours = -1}, "repair hours");
  refused({.interval_s = 0}, "interval");
  refused({.storage_gb_per_s = 0}, "storage bandwidth");
  refused({.checkpoints = CheckpointPlace::Partner}, "second node");
}

TEST_CASE("An MTBF has a unit", "[planner][failures]") {
  CHECK(parse_mtbf_hours("50000h") == 50000);
  CHECK(parse_mtbf_hours("2d") == 48);
  CHECK(parse_mtbf_hours("1y") == Approx(365.25 * 24));
  CHECK(parse_mtbf_hours("5e4h") == 50000);
  for (const char* text : {"50000", "", "h", "0h", "-1h", "nanh", "infh", "1e99y", "5w", "5 h"})
    CHECK_THROWS_AS(parse_mtbf_hours(text), ConfigError);
  CHECK_THROWS_WITH(parse_mtbf_hours("50000"), Contains("nearest: 50000h"));
}

}  // namespace meshplan::planner
