#include "stacks/memory/run_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "prices/element_bytes.hpp"
#include "schedules/pipeline_time.hpp"
#include "sim/engine/memory.hpp"
#include "stacks/memory/sharded_memory.hpp"
#include "stacks/optimizer/muon.hpp"
#include "stacks/shard_prices.hpp"

namespace meshplan::sim {
namespace {

/// Enough micro-batches for every stage to hold as many as it ever does; GPipe holds all.
const program::Schedule& schedule_for_memory(const TrainingRun& run) {
  const program::ScheduleKind kind = run.pipeline_schedule();
  const int all = run.microbatches_of_flush();
  const int enough = kind == program::ScheduleKind::GPipe ? all : 2 * run.parallel.pp;
  return known_pipeline(kind, run.parallel.pp, std::min(all, enough), run.parallel.vpp).schedule();
}

/// Ranks of this node that hold the same parameters.
double replicas_in_node(const TrainingRun& run, int devices_per_node) {
  const auto ranks = program::Mesh(run.parallel).group(program::Group::DpCp, 0);
  return static_cast<double>(
      std::ranges::count_if(ranks, [&](int rank) { return rank < devices_per_node; }));
}

/// Weights that are gathered in FP8 lie in FP8 where an instruction takes any layout, else in two
/// layouts (Transformer Engine, tensor/float8_tensor.py); embedding and head are in 16 bit.
double bytes_of_weights(const TrainingRun& run, const ExecutionProfile& profile,
                        const StageWork& work, int stage) {
  const double trained = work.trained(stage).all();
  const bool in_fp8 =
      run.precision == RunPrecision::Fp8 && profile.gathers_fp8 && !profile.lays_out_fp8;
  if (!in_fp8) return trained * kHalfBytes;
  double half = 0;
  if (work.holds_embedding(stage)) half += work.embedding.trained.all();
  if (work.holds_head(stage)) half += work.head.trained.all();
  return half * kHalfBytes + (trained - half);
}

RunMemory stage_memory(const TrainingRun& run, const ExecutionProfile& profile,
                       const StageWork& work, const program::Schedule& schedule,
                       int devices_per_node, int stage) {
  const auto& parallel = run.parallel;
  const ParameterCount all = work.parameters(stage), trained = work.trained(stage);
  const double replicas = parallel.dp * parallel.cp;
  const double dp = run.shard_in_node ? replicas_in_node(run, devices_per_node) : replicas;
  const double edp = parallel.edp();
  const auto sharded = [&](const ParameterCount& count, bool shards) {
    return shards ? count.dense / dp + count.expert / edp : count.all();
  };
  RunMemory memory;
  memory.stage = stage;
  const bool full = run.shards_layers();
  double workspace = profile.workspace_mib * kMib;
  if (run.zero_stage >= 1)  // one bucket to sum gradients, one to gather parameters
    workspace += 2 * std::min(profile.optimizer_bucket, trained.all()) * kHalfBytes;
  const ParameterCount frozen{.dense = all.dense - trained.dense,
                              .expert = all.expert - trained.expert};
  memory.parameters = (full ? sharded(trained, true) * profile.sharded_parameter_bytes
                            : bytes_of_weights(run, profile, work, stage)) +
                      sharded(frozen, run.zero_stage >= 3 && run.settings.shard_frozen != false) *
                          frozen_bytes(run, profile);
  const bool accumulates =
      profile.accumulated_copy_bytes > 0 && run.settings.gradient_dtype == program::StateDType::F32;
  memory.gradients = sharded(trained, run.zero_stage >= 2) *
                     (profile.gradient_bytes + (accumulates ? profile.accumulated_copy_bytes : 0));
  const double copy = run.zero_stage >= 1 && !accumulates ? profile.sharded_gradient_bytes : 0;
  const bool shards = run.zero_stage >= 1;
  const UpdatedElements updated = updated_elements(
      run, work, stage, shards ? UpdateShards{.dense = dp, .expert = edp} : UpdateShards{});
  memory.optimizer =
      updated.others * (profile.optimizer_bytes + copy) +
      updated.matrices * (profile.optimizer_bytes - profile.second_moment_bytes + copy);

  double largest = 0;
  std::vector<double> of_chunk;  // bytes that one micro-batch keeps
  for (const ChunkWork& chunk : work.stages[at(stage)]) {
    double& bytes = of_chunk.emplace_back(0);
    for (const LayerCount& layers : chunk.layers) {
      const LayerWork& layer = work.works[at(layers.work)];
      bytes += layers.count * layer.saved_bytes;
      largest = std::max(largest, layer.transient_bytes);
    }
  }
  const double activations = program::most_in_flight(schedule, stage, of_chunk);
  memory.activations = activations * (1 - run.offloaded_activations());
  memory.host = activations - memory.activations;
  if (run.updates_on_host()) memory.host += std::exchange(memory.optimizer, 0);
  if (run.updates_on_host() && run.offload_parameters)
    memory.host += std::exchange(memory.gradients, 0);
  // Summed over micro-batches in the dtype of their reduction (PyTorch, _fsdp_param.py,
  // unsharded_accumulated_grad).
  const double whole = trained.dense + (edp > 1 ? trained.expert : 0);  // one copy is not sharded
  if (run.whole_gradients()) memory.gradients += whole * profile.reduce_bytes;
  if (stage == 0) memory.activations += work.embedding.saved_bytes;
  if (full) {
    const ShardedPeak peak = sharded_peak(run, profile, work, memory);
    memory.transient = peak.allocated + workspace;
    memory.reserved = memory.allocated() + (peak.reserved - peak.allocated);
    return memory;
  }
  memory.transient = largest + workspace;
  if (stage == parallel.pp - 1)
    memory.transient =
        std::max(memory.transient + work.head.logits * profile.logit_bytes + work.head.saved_bytes,
                 work.head.logits * profile.metric_logit_bytes - memory.activations);
  memory.reserved = memory.allocated() * (1 + profile.reserved_fraction);
  return memory;
}

/// What the allocator caches beyond what is allocated it gives back before an allocation fails
/// (PyTorch, c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks), so a run that nearly fills
/// its device has less of it.
void give_back(RunMemory& memory) {
  memory.reserved =
      std::max(memory.allocated(), std::min(memory.reserved, memory.capacity - memory.context));
}

/// XLA recomputes what exceeds its memory, the cheapest first, whatever the program keeps
/// (xla/service/gpu/gpu_compiler.cc, remat-pipeline); at least a layer's input stays.
void recompute_what_exceeds(const StageWork& work, int stage, RunMemory& memory) {
  double least = 0;
  for (const ChunkWork& chunk : work.stages[at(stage)])
    for (const LayerCount& layers : chunk.layers)
      least += layers.count * work.works[at(layers.work)].input_bytes;
  const double excess = memory.allocated() + memory.context - memory.capacity;
  const double freed = std::clamp(excess, 0.0, std::max(0.0, memory.activations - least));
  memory.activations -= freed;
  memory.reserved -= freed;
}

}  // namespace

const RunMemory& fullest(const std::vector<RunMemory>& stages) {
  return *std::ranges::min_element(
      stages, {}, [](const RunMemory& stage) { return stage.need().room_bytes(); });
}

std::vector<RunMemory> run_memory(const TrainingRun& run, const ExecutionProfile& profile,
                                  const Cluster& cluster, const StageWork& work) {
  require_invariant(run.recompute_stated, "what a run recomputes is chosen before it is counted");
  const program::Schedule& schedule = schedule_for_memory(run);
  std::vector<RunMemory> stages;
  for (int stage = 0; stage < run.parallel.pp; ++stage) {
    RunMemory memory = stage_memory(run, profile, work, schedule, cluster.devices_per_node, stage);
    memory.context = profile.context_mib * kMib;
    memory.capacity = cluster.device.memory_gib * kGib;
    memory.host_capacity = host_capacity_bytes(cluster);
    if (profile.recomputes_what_exceeds) recompute_what_exceeds(work, stage, memory);
    give_back(memory);
    memory.visible = memory.reserved + memory.context;
    stages.push_back(memory);
  }
  return stages;
}

}  // namespace meshplan::sim
