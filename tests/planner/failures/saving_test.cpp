#include "planner/failures/saving.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/checkpoint_interval.hpp"
#include "core/error.hpp"
#include "models/counts.hpp"
#include "program/lower/lower.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

constexpr double kStep = 2;  // seconds

program::Plan replicated_gpt2(int dp) {
  program::Plan plan;
  plan.model = models::load_preset("gpt2-124m");
  plan.workload = {.seq_len = 512, .global_batch_size = 2 * dp};
  plan.parallel.dp = dp;
  return plan;
}

sim::Cluster gpus(int ranks) {
  return sim::with_ranks(sim::load_cluster_preset("dgx-a100"), ranks);
}

SavingPrediction predicted(const sim::Cluster& cluster, const SavingIntervals& intervals) {
  return predict_saving(program::lower_all(replicated_gpt2(cluster.num_ranks())), cluster, kStep,
                        intervals);
}

double bytes_of_gpt2() {
  const models::ModelSpec model = models::load_preset("gpt2-124m");
  return 12.0 * static_cast<double>(models::count_parameters(models::build_graph(model)).total);
}

}  // namespace

// dgx-a100: a copy over PCIe 4.0 reaches 25.6 GB/s, the host's memory 40.96 GB/s for each of eight
// devices (tests/sim/prices/offload_test.cpp).
TEST_CASE("A save stalls for the copy and is complete when its bytes have arrived",
          "[planner][saving]") {
  const SavingPrediction saving =
      predicted(gpus(16), {.checkpoint_every = 10, .memory_every = 1, .storage_gb_per_s = 0.5});
  const double all = bytes_of_gpt2();
  CHECK(saving.bytes == all);
  // Shares are cut with the 47 rows of 768 that pad the vocabulary, and those are not saved. Ranks
  // differ by an element of each state.
  const double rank = (all + 12.0 * 47 * 768) / 16;
  CHECK(saving.rank_bytes == Approx(rank).margin(12));
  REQUIRE(saving.disk);
  CHECK(saving.disk->interval_s == 10 * kStep);
  CHECK(saving.disk->stall_s == Approx(rank / 25.6e9).epsilon(1e-2));
  CHECK(saving.disk->stall_share == Approx(saving.disk->stall_s / (10 * kStep)));
  CHECK(saving.disk->lag_s == Approx(all / 0.5e9));
  CHECK_FALSE(saving.is_storage_assumed);
  REQUIRE(saving.memory);
  CHECK(saving.memory->interval_s == kStep);
  CHECK(saving.memory->stall_s == Approx(rank * (1 / 25.6e9 + 1 / 40.96e9)).epsilon(1e-2));
  CHECK(saving.memory->lag_s > 0);
  CHECK_FALSE(saving.memory->is_due_early());
  CHECK(saving.memory_copies == 6);
  CHECK(saving.memory_node_bytes == Approx(6 * 8 * saving.rank_bytes));
}

TEST_CASE("On one node no other one keeps a copy", "[planner][saving]") {
  const SavingPrediction saving = predicted(gpus(8), {.memory_every = 3});
  CHECK_FALSE(saving.disk);
  REQUIRE(saving.memory);
  CHECK(std::isinf(saving.memory->lag_s));
  CHECK(saving.memory_copies == 3);
}

TEST_CASE("A checkpoint that is due before the last one is complete is said to be",
          "[planner][saving]") {
  const double slow = bytes_of_gpt2() / 1e9 / (2.5 * kStep);  // GB/s: complete after 2.5 steps
  const auto due_early = [&](int every) {
    return predicted(gpus(8), {.checkpoint_every = every, .storage_gb_per_s = slow})
        .disk->is_due_early();
  };
  CHECK(due_early(2));
  CHECK_FALSE(due_early(3));
}

TEST_CASE("With failures checkpoints are as often as a run makes them", "[planner][saving]") {
  const auto steps = [](double storage_gb_per_s) {
    return *predicted(gpus(8), {.device_mtbf_hours = 1000, .storage_gb_per_s = storage_gb_per_s})
                .disk;
  };
  const PlaceSaving fast = steps(1000);
  const double mtbf_s = 1000 * 3600.0 / 8;
  CHECK(fast.every ==
        static_cast<int>(std::ceil(best_checkpoint_interval_s(fast.stall_s, mtbf_s) / kStep)));
  const PlaceSaving slow = steps(0.001);
  CHECK(slow.every == static_cast<int>(std::ceil(slow.lag_s / kStep)));
  CHECK_FALSE(slow.is_due_early());
}

TEST_CASE("A file system is as fast as the cluster says", "[planner][saving]") {
  sim::Cluster cluster = gpus(8);
  CHECK(predicted(cluster, {.checkpoint_every = 1}).is_storage_assumed);
  CHECK(predicted(cluster, {.checkpoint_every = 1}).storage_bytes_per_s == 1e9);
  cluster.storage_gb_per_s = 3;
  const SavingPrediction saving = predicted(cluster, {.checkpoint_every = 1});
  CHECK_FALSE(saving.is_storage_assumed);
  CHECK(saving.disk->lag_s == Approx(saving.bytes / 3e9));
  CHECK_THROWS_AS(predicted(cluster, {.checkpoint_every = 1, .storage_gb_per_s = 0}), ConfigError);
}

}  // namespace meshplan::planner
