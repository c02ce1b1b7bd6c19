// The estimator against the lowered programs and the engine, for plans that divide optimizer
// state, gradients, weights (ZeRO) and experts (ep, etp) among their ranks, or freeze parameters.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/units.hpp"
#include "models/adapters.hpp"
#include "program/memory/activations.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/plans.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::ScheduleKind;

constexpr double kTimeTolerance = 0.05;
constexpr double kMemoryTolerance = 0.002;

std::string name(const program::Plan& plan) {
  return plan.model.name + " " + to_string(plan.parallel) + " zero " +
         std::to_string(plan.zero_stage) + "/" + std::to_string(plan.zero_shard_group) +
         " schedule " + std::to_string(static_cast<int>(plan.schedule)) + " recompute " +
         std::to_string(static_cast<int>(plan.recompute.kind)) +
         (plan.frozen.empty() ? "" : " frozen " + plan.frozen.front() + ".." + plan.frozen.back());
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
        plan.expert_node_ranks = 2;
        if (check(plan).empty()) all.push_back(plan);
        plan.workload.precision = DType::BF16;
        plan.expert_dispatch_fp8 = true;
        if (stage < 2 && check(plan).empty()) all.push_back(plan);
      }
  return all;
}

/// Parts of a model that are frozen, under every schedule.
std::vector<program::Plan> frozen_plans() {
  struct Case {
    std::vector<std::string> frozen;
    ParallelConfig parallel;
    ScheduleKind schedule = ScheduleKind::OneFOneB;
    int zero = 0;
  };
  const std::vector<std::string> lowest = {"embedding", "layers.0-1"}, norms = {"*", "!*norm*"},
                                 head = {"*", "!head"}, middle = {"layers.1", "layers.2.mlp"};
  std::vector<program::Plan> all;
  for (const Case& one : std::vector<Case>{
           {lowest, {}},
           {norms, {}},
           {head, {}},
           {middle, {}},
           {{"embedding", "head"}, {.dp = 4}},
           {lowest, {.tp = 2, .dp = 2, .sp = true}},
           {middle, {.tp = 2, .sp = true}},
           {lowest, {.pp = 2, .dp = 2}},
           {lowest, {.pp = 4}},
           {middle, {.pp = 4}},
           {head, {.pp = 2, .dp = 2}},
           {middle, {.pp = 2}, ScheduleKind::GPipe},
           {lowest, {.pp = 2, .vpp = 2}, ScheduleKind::Interleaved},
           {lowest, {.pp = 2}, ScheduleKind::OverlappedOneFOneB},
           {lowest, {.pp = 2}, ScheduleKind::ZbH1},
           {middle, {.pp = 2}, ScheduleKind::ZbH1},
           {middle, {.pp = 2, .vpp = 2}, ScheduleKind::ZbV},
           {middle, {.pp = 2, .vpp = 2}, ScheduleKind::DualPipeV},
           {lowest, {.dp = 4}, ScheduleKind::OneFOneB, 1},
           {lowest, {.dp = 4}, ScheduleKind::OneFOneB, 2},
           {middle, {.pp = 2, .dp = 2}, ScheduleKind::OneFOneB, 3},
           {lowest, {.tp = 2, .cp = 2}},
       })
    for (const program::RecomputeKind recompute :
         {program::RecomputeKind::None, program::RecomputeKind::Full}) {
      auto plan = small_plan("tiny-llama", one.parallel, 6);
      plan.schedule = one.schedule;
      plan.zero_stage = one.zero;
      plan.frozen = one.frozen;
      plan.recompute.kind = recompute;
      plan.model.tied_embeddings = all.size() % 3 == 2;
      all.push_back(plan);
    }
  return all;
}

/// Frozen weights that ZeRO-3 divides: units of them alone, of both, of adapters beside them.
std::vector<program::Plan> divided_frozen_plans() {
  struct Case {
    std::string model;
    std::vector<std::string> frozen;  // empty: all but adapters
    ParallelConfig parallel;
    int shard_group = 0;
  };
  const std::vector<std::string> lowest = {"embedding", "layers.0-1"}, norms = {"*", "!*norm*"},
                                 every_other = {"layers.0", "layers.2"}, mlps = {"*.mlp"},
                                 experts = {"*.experts"};
  std::vector<program::Plan> all;
  for (const Case& one : std::vector<Case>{
           {"tiny-llama", lowest, {.dp = 4}},
           {"tiny-llama", lowest, {.pp = 2, .dp = 2}},
           {"tiny-llama", every_other, {.dp = 4}},
           {"tiny-llama", every_other, {.tp = 2, .dp = 2, .sp = true}},
           {"tiny-llama", norms, {.dp = 3}},
           {"tiny-llama", mlps, {.dp = 8}, 4},
           {"tiny-llama", mlps, {.pp = 2, .vpp = 2, .dp = 2}},
           {"tiny-llama", {}, {.dp = 4}},
           {"tiny-llama", {}, {.dp = 8}, 2},
           {"tiny-llama", {}, {.tp = 2, .pp = 2, .dp = 2, .sp = true}},
           {"tiny-moe", experts, {.dp = 4, .ep = 2}},
           {"tiny-moe", experts, {.tp = 2, .dp = 4, .ep = 2, .etp = 2, .sp = true}},
           {"tiny-moe", lowest, {.pp = 2, .dp = 2, .ep = 2}},
       })
    for (const bool offloaded : {false, true})
      for (const bool tied : {false, true}) {
        auto plan = small_plan(one.model, one.parallel, 6);
        plan.zero_stage = 3;
        plan.zero_shard_group = one.shard_group;
        plan.frozen = one.frozen;
        plan.model.tied_embeddings = tied;
        plan.offload_optimizer = plan.offload_parameters = offloaded;
        plan.workload.precision = tied ? DType::F32 : DType::BF16;
        if (one.frozen.empty()) {
          plan.model.adapters = models::AdapterSpec{.rank = 8, .alpha = 16};
          plan.model.adapters->modules = models::linear_modules(plan.model);
          plan.frozen = models::all_but_adapters();
        }
        all.push_back(plan);
      }
  return all;
}

/// Memory of the largest stage. What micro-batches keep is counted without the gaps between them,
/// as the search does (program::fullest_tasks).
double planned_bytes(const program::Plan& plan, const Cluster& cluster) {
  double most = 0;
  for (const program::Program& stage : program::lower_all(plan)) {
    StageMemory memory = stage_memory(stage, cluster);
    const auto without_gaps = [&](program::Region region, const auto& bytes_of) {
      std::vector<program::ChunkKeeps> keeps(stage.chunks.size());
      for (std::size_t i = 0; i < stage.layers.size(); ++i)
        keeps[static_cast<std::size_t>(stage.layers[i].chunk)].add(bytes_of(static_cast<int>(i)));
      std::vector<program::KeptBytes> kept;
      for (const program::ChunkKeeps& chunk : keeps) kept.push_back(chunk.bytes());
      std::int64_t most_kept = 0;
      for (const auto& task : program::kept_by_task(program::schedule_of(plan), stage.role.stage,
                                                    plan.num_microbatches(), kept))
        most_kept = std::max(most_kept, task.during);
      memory.activations += static_cast<double>(
          most_kept - stage.memory.regions[static_cast<std::size_t>(region)].bytes());
    };
    without_gaps(program::Region::Saved,
                 [&](int layer) { return program::resident_bytes(stage, layer); });
    if (cluster.device.kind == DeviceKind::Cpu && plan.offload_activations > 0)
      without_gaps(program::Region::OffloadedActivations, [&](int layer) {
        program::KeptBytes bytes{};
        if (stage.layers[static_cast<std::size_t>(layer)].offloaded)
          bytes[static_cast<std::size_t>(program::Keep::UntilInputGrad)] =
              program::staged_range(stage, layer).size();
        return bytes;
      });
    most = std::max(most, memory.total());
  }
  return most;
}

void check_against_engine(const std::vector<program::Plan>& plans,
                          double memory_tolerance = kMemoryTolerance,
                          double time_tolerance = kTimeTolerance) {
  for (const auto& plan : plans)
    for (const char* preset : {"dgx-h100", "cpu-host"}) {
      Cluster cluster = with_ranks(load_cluster_preset(preset), plan.parallel.world_size());
      // GPUs' lanes do not slow each other; a core computes or communicates.
      const bool cpu = cluster.device.kind == DeviceKind::Cpu;
      cluster.communication.device_share = 0;
      cluster.host_memory_gb_per_s = 0;
      cluster.cores_per_host = plan.parallel.world_size();
      const StepPrediction estimate = Estimator(cluster).estimate(plan);
      const double error = estimate.step_time_s / played(plan, cluster, cpu) - 1;
      const double memory = estimate.peak_memory_bytes / planned_bytes(plan, cluster) - 1;
      INFO(name(plan) << " on " << preset << "\ntime " << error << "\nmemory " << memory);
      CHECK(std::abs(error) <= time_tolerance);
      CHECK(std::abs(memory) <= memory_tolerance);
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

TEST_CASE("The estimate of divided frozen weights is the engine's time and the programs' memory",
          "[sim][estimator][frozen][zero]") {
  check_against_engine(divided_frozen_plans());
}

// Ranks with a core of their own for the thread overlap as GPUs do; the others win nothing by it.
// What is computed is the same; of its tokens 16 of 18 sequences are of the batch.
TEST_CASE("An uneven batch takes the time and memory of the one that fills it",
          "[sim][estimator][uneven]") {
  for (const ParallelConfig& parallel : {ParallelConfig{.dp = 3}, ParallelConfig{.pp = 2, .dp = 3},
                                         ParallelConfig{.pp = 2, .vpp = 2, .dp = 3}})
    for (const int stage : {0, 1, 3}) {
      if (stage == 3 && parallel.pp > 1) continue;
      for (const char* model : {"tiny-llama", "tiny-moe"}) {
        program::Plan full = small_plan(model, parallel, 6);
        full.zero_stage = stage;
        program::Plan uneven = full;
        uneven.uneven_batch = true;
        uneven.workload.global_batch_size = 16;
        REQUIRE(check(uneven).empty());
        REQUIRE(uneven.empty_sequences() == 2);
        INFO(name(uneven));
        const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), parallel.world_size());
        CHECK(played(uneven, cluster, false) == played(full, cluster, false));
        CHECK(planned_bytes(uneven, cluster) == planned_bytes(full, cluster));
        const StepPrediction of_uneven = Estimator(cluster).estimate(uneven);
        const StepPrediction of_full = Estimator(cluster).estimate(full);
        CHECK(of_uneven.step_time_s == of_full.step_time_s);
        CHECK(of_uneven.peak_memory_bytes == of_full.peak_memory_bytes);
        CHECK(of_uneven.mfu == Approx(of_full.mfu * 16 / 18));
      }
    }
}

TEST_CASE("Plans with a progress thread are estimated as the engine plays them",
          "[sim][estimator][zero]") {
  for (const int cores_per_rank : {1, 2})
    for (const ParallelConfig& parallel :
         {ParallelConfig{.dp = 2}, ParallelConfig{.dp = 4}, ParallelConfig{.pp = 2, .dp = 2}})
      for (const int stage : {0, 1, 2, 3}) {
        program::Plan plan = small_plan("tiny-llama", parallel, 4);
        plan.zero_stage = stage;
        plan.progress_thread = true;
        Cluster cluster = with_ranks(load_cluster_preset("cpu-host"), parallel.world_size());
        cluster.host_memory_gb_per_s = 0;
        cluster.cores_per_host = cores_per_rank * parallel.world_size();
        cluster.communication.progress_overhead_percent = 10;
        const double time = Estimator(cluster).estimate(plan).step_time_s;
        const double error = time / played(plan, cluster, true) - 1;
        plan.progress_thread = false;
        const double gain = Estimator(cluster).estimate(plan).step_time_s / time;
        INFO(name(plan) << ", " << cores_per_rank << " cores a rank, error " << error << ", gain "
                        << gain);
        CHECK(std::abs(error) <= kTimeTolerance);
        CHECK((gain > 1) == (cores_per_rank == 2));
      }
}

// State on the host: its copies run beside the update on a GPU, between updates on a processor.
TEST_CASE("Plans with offloaded optimizer state are estimated as the engine plays them",
          "[sim][estimator][offload]") {
  std::vector<program::Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.dp = 4}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2}})
    for (const int stage : {0, 1, 2, 3})
      for (const DType precision : {DType::F32, DType::BF16}) {
        program::Plan plan = small_plan("tiny-llama", parallel, 6);
        plan.workload.precision = precision;
        plan.zero_stage = parallel.dp > 1 ? stage : 0;
        plan.offload_optimizer = true;
        plans.push_back(plan);
        plan.offload_parameters = plan.zero_stage == 3;
        if (plan.offload_parameters) plans.push_back(plan);
      }
  check_against_engine(plans);
}

// A small model's layers are launches alone, so these are of 1,024 features: some of their copies
// take longer than they compute, some less.
TEST_CASE("Plans with offloaded activations are estimated as the engine plays them",
          "[sim][estimator][offload]") {
  std::vector<program::Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.tp = 2, .sp = true}, ParallelConfig{.pp = 2, .dp = 2},
        ParallelConfig{.pp = 2, .vpp = 2}, ParallelConfig{.dp = 4}})
    for (const int layers : {1, 2})
      for (const auto recompute : {program::RecomputeKind::None, program::RecomputeKind::Selective,
                                   program::RecomputeKind::Full})
        for (const std::int64_t seq_len : {1024, 16384}) {
          // Delays are those of a full pipeline.
          program::Plan plan = small_plan("llama3.2-1b", parallel, parallel.pp > 1 ? 24 : 6);
          plan.model.num_layers = 8;
          plan.workload.precision = DType::BF16;
          plan.workload.seq_len = seq_len;
          plan.recompute.kind = recompute;
          plan.zero_stage = parallel == ParallelConfig{.dp = 4} ? 3 : 0;
          plan.offload_activations =
              layers == 1 ? 1 : std::ranges::max(program::resolved_layers_per_stage(plan));
          plans.push_back(plan);
        }
  // A copy begins when the last value is there that it takes along, a product before the layer
  // ends.
  constexpr double kWithCopies = 0.1;
  check_against_engine(plans, kMemoryTolerance, kWithCopies);
}

TEST_CASE("The host holds what offloaded layers keep, the device three of them",
          "[sim][memory][offload]") {
  program::Plan plan = small_plan("llama3.2-1b", {.pp = 2}, 6);
  plan.workload.precision = DType::BF16;
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 2);
  const program::Program before = program::lower(plan, 0);
  const StageMemory plain = stage_memory(before, cluster);
  plan.offload_activations = 8;
  const program::Program after = program::lower(plan, 0);
  const StageMemory offloaded = stage_memory(after, cluster);
  const auto dense = std::ranges::find(after.blocks, "dense", &program::Block::name);
  REQUIRE(dense != after.blocks.end());
  const auto layer = static_cast<double>(dense->saved_bytes);
  constexpr int kInFlight = 2;
  CHECK(offloaded.host == kInFlight * 8 * layer);
  CHECK(offloaded.activations == plain.activations - kInFlight * 8 * layer + 3 * layer);
}

TEST_CASE("What is offloaded must fit in its host", "[sim][memory][offload]") {
  std::vector<program::Plan> plans;
  for (program::Plan plan : zero_plans()) {
    plan.workload.precision = DType::BF16;
    plan.offload_optimizer = true;
    plans.push_back(plan);
    plan.offload_parameters = plan.zero_stage == 3;
    if (plan.offload_parameters) plans.push_back(plan);
  }
  program::Plan plan = small_plan("llama3.2-1b", {.pp = 2}, 6);
  plan.offload_activations = 4;
  plans.push_back(plan);
  for (const program::Plan& offloaded : plans) {
    CAPTURE(to_string(offloaded.parallel), offloaded.zero_stage, offloaded.zero_shard_group,
            offloaded.offload_parameters, offloaded.offload_activations);
    Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), offloaded.parallel.world_size());
    const double ranks = cluster.devices_per_node;
    double most = 0;  // of a rank, as the program says
    for (const program::Program& stage : program::lower_all(offloaded))
      most = std::max(most, static_cast<double>(stage.memory.host_bytes()));
    REQUIRE(most > 0);
    cluster.host_memory_gib = 1.001 * most * ranks / (1 - kHostReserve) / kGib;
    CHECK(memory_of(offloaded, cluster).fits());
    CHECK(Estimator(cluster).estimate(offloaded).fits());
    cluster.host_memory_gib *= 0.998;
    const MemoryReport memory = memory_of(offloaded, cluster);
    const StepPrediction estimate = Estimator(cluster).estimate(offloaded);
    CHECK_FALSE(memory.fits());
    CHECK(memory.of_host);
    CHECK(memory.peak_bytes == most);
    CHECK(estimate.of_host);
    CHECK(estimate.peak_memory_bytes == Approx(most).epsilon(1e-9));
    cluster.host_memory_gib = 0;  // not known
    CHECK(memory_of(offloaded, cluster).fits());
  }
}

// Compressing, summing and decompressing are work; the rest travels beside backward.
TEST_CASE("Plans that compress gradients are estimated as the engine plays them",
          "[sim][estimator][compression]") {
  std::vector<program::Plan> plans;
  for (const ParallelConfig& parallel :
       {ParallelConfig{.dp = 4}, ParallelConfig{.tp = 2, .dp = 2, .sp = true},
        ParallelConfig{.pp = 2, .dp = 4}, ParallelConfig{.pp = 4, .dp = 2},
        ParallelConfig{.pp = 4, .vpp = 2, .dp = 2}})
    for (const int stage : {0, 1, 2, 3})
      for (const auto kind : {program::CompressionKind::Int8, program::CompressionKind::TopK}) {
        program::Plan plan = small_plan("tiny-llama", parallel, 6);
        plan.zero_stage = stage;
        plan.compression = {.kind = kind, .ratio = 0.05};
        if (parallel.vpp > 1) plan.schedule = program::ScheduleKind::Interleaved;
        if (check(plan).empty()) plans.push_back(plan);
      }
  for (const int stage : {1, 2, 3}) {
    program::Plan plan = small_plan("tiny-llama", {.dp = 8}, 6);
    plan.zero_stage = stage;
    plan.zero_shard_group = 4;
    plan.compression.kind = program::CompressionKind::Int8;
    plans.push_back(plan);
  }
  for (program::Plan plan : expert_plans())
    for (const auto kind : {program::CompressionKind::Int8, program::CompressionKind::TopK}) {
      if (plan.parallel.dp == 1 || plan.model.moe->shared_expert_ffn_size > 0) continue;
      plan.compression = {.kind = kind, .ratio = 0.05};
      if (check(plan).empty()) plans.push_back(plan);
    }
  // Lowering starts parameters on blocks of 256 or 1,024 elements; the estimator leaves no gaps.
  constexpr double kGaps = 0.005;
  check_against_engine(plans, kGaps);
}

// PCI Express 5.0 at 0.8 of 64 GB/s, but a share of 614.4 / 8 GB/s of the host's memory: 51.2.
TEST_CASE("A GPU's copies of optimizer state take its link to the host", "[sim][offload]") {
  program::Plan plan = small_plan("tiny-llama", {}, 2);
  plan.workload.precision = DType::BF16;
  const Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 1);
  const auto spans = [&](const std::string& ending) {
    std::pair<double, std::int64_t> sum;
    const auto programs = program::lower_all(plan);
    for (const auto& span : simulate(programs, cluster).trace.spans)
      if (span.name.ends_with(ending))
        sum = {sum.first + span.end_s - span.start_s, sum.second + 1};
    return sum;
  };
  CHECK(spans(".fetch").second == 0);
  plan.offload_optimizer = true;
  const double state = static_cast<double>(program::lower(plan, 0).memory.host_bytes());
  for (const char* ending : {".fetch", ".store"}) {
    const auto [seconds, copies] = spans(ending);
    CHECK(copies > 2);
    const double launches = static_cast<double>(copies) * cluster.device.launch_us * 1e-6;
    CHECK(seconds == Approx(state / 51.2e9 + launches).epsilon(1e-3));
  }
  const StageMemory memory = stage_memory(program::lower(plan, 0), cluster);
  CHECK(memory.host == state);
  CHECK(memory.master_parameters == 0);
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

TEST_CASE("The estimate of frozen parameters is the engine's time and the programs' memory",
          "[sim][estimator][frozen]") {
  check_against_engine(frozen_plans());
}

}  // namespace meshplan::sim
