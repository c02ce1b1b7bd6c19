// The estimator against the lowered programs and the engine, for plans that divide optimizer
// state, gradients, weights (ZeRO) and experts (ep, etp) among their ranks.
#include <catch2/catch.hpp>
#include <cmath>

#include "program/activations.hpp"
#include "sim/engine.hpp"
#include "sim/estimator.hpp"
#include "sim/memory.hpp"
#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::ScheduleKind;

constexpr double kTimeTolerance = 0.05;
constexpr double kMemoryTolerance = 0.002;

double played(const program::Plan& plan, const Cluster& cluster, bool contention) {
  return simulate(program::lower_all(plan), cluster,
                  {.contention = contention, .record_spans = false})
      .step_time_s;
}

std::string name(const program::Plan& plan) {
  return plan.model.name + " " + to_string(plan.parallel) + " zero " +
         std::to_string(plan.zero_stage) + "/" + std::to_string(plan.zero_shard_group) +
         " schedule " + std::to_string(static_cast<int>(plan.schedule)) + " recompute " +
         std::to_string(static_cast<int>(plan.recompute.kind));
}

/// Several buckets and units in a small model.
program::Plan small_plan(const std::string& model, const ParallelConfig& parallel,
                         int num_microbatches) {
  program::Plan plan = tiny_plan(parallel, num_microbatches);
  plan.model = models::load_preset(model);
  plan.bucket_bytes = 2 << 20;
  if (parallel.vpp > 1) plan.schedule = ScheduleKind::Interleaved;
  return plan;
}

std::vector<program::Plan> zero_plans() {
  struct Case {
    ParallelConfig parallel;
    int shard_group = 0;
    ScheduleKind schedule = ScheduleKind::OneFOneB;
  };
  std::vector<program::Plan> all;
  for (const int stage : {1, 2, 3})
    for (const Case& one :
         {Case{{.dp = 4}}, Case{{.dp = 8}, 4}, Case{{.tp = 2, .dp = 2, .sp = true}},
          Case{{.tp = 2, .cp = 2, .dp = 2}}, Case{{.pp = 2, .dp = 2}},
          Case{{.pp = 2, .dp = 2}, 0, ScheduleKind::GPipe},
          Case{{.pp = 2, .vpp = 2, .dp = 4}, 2, ScheduleKind::Interleaved}, Case{{.dp = 3}}}) {
      auto plan = small_plan("tiny-llama", one.parallel, 6);
      plan.schedule = one.schedule;
      plan.zero_stage = stage;
      plan.zero_shard_group = one.shard_group;
      all.push_back(plan);
      plan.model.tied_embeddings = true;
      plan.recompute.kind = program::RecomputeKind::Full;
      all.push_back(plan);
    }
  return all;
}

std::vector<program::Plan> expert_plans() {
  std::vector<program::Plan> all;
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.dp = 4}, ParallelConfig{.dp = 4, .ep = 4},
        ParallelConfig{.dp = 4, .ep = 2, .etp = 2},
        ParallelConfig{.tp = 2, .dp = 2, .ep = 4, .sp = true},
        ParallelConfig{.tp = 2, .dp = 2, .ep = 2, .etp = 2, .sp = true},
        ParallelConfig{.pp = 2, .dp = 2, .ep = 2},
        ParallelConfig{.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .ep = 2, .sp = true}})
    for (const int stage : {0, 1, 2, 3})
      for (const bool dense_first : {false, true}) {
        auto plan = small_plan("tiny-moe", parallel, 6);
        plan.zero_stage = stage;
        if (dense_first) {
          plan.model.ffn_size = 512;
          plan.model.moe->dense_layers = {0};
          plan.model.moe->shared_expert_ffn_size = 256;
          plan.recompute.kind = program::RecomputeKind::Selective;
        }
        if (check(plan).empty()) all.push_back(plan);
      }
  return all;
}

/// Of the largest stage. What micro-batches keep is counted without the gaps between them, as the
/// search does (program::estimate_activations).
double planned_bytes(const program::Plan& plan, const Cluster& cluster) {
  double most = 0;
  for (const program::Program& stage : program::lower_all(plan)) {
    std::vector<program::KeptBytes> kept(stage.chunks.size(), program::KeptBytes{});
    for (const auto& layer : stage.layers)
      for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
        kept[static_cast<std::size_t>(layer.chunk)][keep] +=
            stage.blocks[static_cast<std::size_t>(layer.block)].kept_bytes[keep];
    StageMemory memory = stage_memory(stage, cluster);
    memory.activations = static_cast<double>(
        program::estimate_activations(program::schedule_of(plan), stage.role.stage,
                                      plan.num_microbatches(), kept)
            .bytes);
    most = std::max(most, memory.total());
  }
  return most;
}

void check_against_engine(const std::vector<program::Plan>& plans) {
  for (const auto& plan : plans)
    for (const char* preset : {"dgx-h100", "cpu-host"}) {
      Cluster cluster = with_ranks(load_cluster_preset(preset), plan.parallel.world_size());
      // GPUs' lanes do not slow each other; a core computes or communicates.
      const bool cpu = cluster.device.kind == DeviceKind::Cpu;
      cluster.communication.device_share = 0;
      cluster.host_memory_gb_per_s = 0;
      cluster.cores_per_host = plan.parallel.world_size();
      const Estimate estimate = Estimator(cluster).estimate(plan);
      const double error = estimate.step_time_s / played(plan, cluster, cpu) - 1;
      const double memory = estimate.peak_memory_bytes / planned_bytes(plan, cluster) - 1;
      INFO(name(plan) << " on " << preset << "\ntime " << error << "\nmemory " << memory);
      CHECK(std::abs(error) <= kTimeTolerance);
      CHECK(std::abs(memory) <= kMemoryTolerance);
      CHECK(estimate.seconds.total() == Approx(estimate.step_time_s));
    }
}

}  // namespace

TEST_CASE("The estimate of ZeRO is the engine's time and the programs' memory",
          "[sim][estimator][zero]") {
  check_against_engine(zero_plans());
}

TEST_CASE("The estimate of experts is the engine's time and the programs' memory",
          "[sim][estimator][experts]") {
  CHECK(expert_plans().size() >= 50);
  check_against_engine(expert_plans());
}

// As the presets are: what moves beside computation takes its share of the device from it.
TEST_CASE("Whole models on GPUs that ZeRO and ep divide are estimated", "[sim][estimator]") {
  struct Case {
    std::string model;
    ParallelConfig parallel;
    int zero_stage = 0;
  };
  for (const Case& one : {Case{"llama3-8b", {.dp = 16}, 1}, Case{"llama3-8b", {.dp = 16}, 2},
                          Case{"llama3-8b", {.dp = 16}, 3},
                          Case{"llama3-8b", {.tp = 2, .pp = 2, .dp = 8, .sp = true}, 1},
                          Case{"mixtral-8x7b", {.dp = 16, .ep = 8}, 1},
                          Case{"mixtral-8x7b", {.tp = 4, .pp = 4, .dp = 2, .ep = 8, .sp = true}},
                          Case{"deepseek-v3", {.pp = 4, .dp = 32, .ep = 32}, 1}}) {
    program::Plan plan = tiny_plan(one.parallel, 2 * one.parallel.pp);
    plan.model = models::load_preset(one.model);
    plan.workload.seq_len = 4096;
    plan.workload.precision = DType::BF16;
    plan.bucket_bytes = 25 << 20;
    plan.zero_stage = one.zero_stage;
    plan.recompute.kind = program::RecomputeKind::Full;
    const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
    const double estimate = Estimator(cluster).estimate(plan).step_time_s;
    const double error = estimate / played(plan, cluster, true) - 1;
    INFO(name(plan) << ": " << estimate << " s, " << error << " from the engine");
    CHECK(std::abs(error) <= kTimeTolerance);
  }
}

}  // namespace meshplan::sim
