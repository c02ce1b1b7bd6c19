#include "sim/estimator.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <fmt/format.h>
#include <unordered_map>

#include "chunk_costs.hpp"
#include "compiled_schedule.hpp"
#include "compressed_reduction.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "gradient_buckets.hpp"
#include "host_thread.hpp"
#include "offload.hpp"
#include "priced_group.hpp"
#include "program/cost.hpp"
#include "program/offload.hpp"
#include "sim/memory.hpp"
#include "sim/pricing.hpp"
#include "task_solver.hpp"
#include "wave_solver.hpp"
#include "world.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::Group;
using program::Plan;
using program::RecomputeKind;

constexpr double kFp32Bytes = 4;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

/// Where the groups of a mesh sit on the cluster.
struct Layout {
  PricedGroup tp, replica, world, embedding;
  DataGroups data;
  TaskGroups tasks;
  GroupPlacement neighbours, ends;
  std::vector<int> host;      // of each stage's first rank
  std::vector<double> cores;  // that the stage's ranks of that host hold while they compute
};

Layout layout_of(const Plan& plan, const Cluster& cluster) {
  const program::Mesh mesh = program::mesh_of(plan);
  Layout layout;
  const int first = mesh.rank_of({});
  const int pp = mesh.config().pp;
  const auto of = [&](Group group) { return place(cluster, mesh, group, first); };
  layout.tasks = {
      .tp = of(Group::Tp), .cp = of(Group::Cp), .ep = of(Group::Ep), .etp = of(Group::Etp)};
  layout.tp = PricedGroup(layout.tasks.tp);
  layout.replica = PricedGroup(of(Group::TpPp));
  layout.world = PricedGroup(of(Group::World));
  layout.embedding = PricedGroup(of(Group::Embedding));
  layout.data.dense = PricedGroup(of(Group::DpCp));
  layout.data.experts = PricedGroup(of(Group::ExpertDp));
  layout.data.kv_copies = PricedGroup(of(Group::KvCopies));
  if (plan.zero_stage > 0) {
    layout.data.dense_shards = PricedGroup(of(Group::ZeroShards));
    layout.data.expert_shards = PricedGroup(of(Group::ExpertZeroShards));
    layout.data.dense_replicas = PricedGroup(of(Group::ZeroReplicas));
    layout.data.expert_replicas = PricedGroup(of(Group::ExpertZeroReplicas));
  }
  layout.neighbours = pp > 1 ? place(cluster, {first, mesh.rank_of({.pp = 1})}) : GroupPlacement{};
  layout.ends = pp > 1 ? place(cluster, {first, mesh.rank_of({.pp = pp - 1})}) : GroupPlacement{};
  const bool cpu = cluster.device.kind == DeviceKind::Cpu;
  std::optional<Folding> folding;
  if (cpu) folding.emplace(mesh, cluster);
  for (int stage = 0; stage < pp; ++stage) {
    layout.host.push_back(mesh.rank_of({.pp = stage}) / cluster.devices_per_node);
    layout.cores.push_back(cpu ? folding->multiplicity(stage, cluster.devices_per_node) : 1);
  }
  return layout;
}

/// A rank of the pipeline: its chunks, and what stages with the same chunks have in common.
struct Stage {
  std::vector<const ChunkCost*> chunks;
  std::vector<program::KeptBytes> kept;
  Buckets buckets;
  ZeroStage zero;
  TaskTime total;       // of all tasks, alone
  double streamed = 0;  // seconds of that which ZeRO adds
  double core_share = 1;
  double update_seconds = 0;
  double norm_seconds = 0;
  double load_seconds = 0;
  double once_seconds = 0;
  double quantized_bytes = 0;
  double elements = 0;  // without frozen ones
  double frozen_elements = 0;
  double transient_bytes = 0;
  double boundary_bytes = 0;
  double scalar_bytes = 0;
  double compression_bytes = 0;  // of errors
  double compression_slot_bytes = 0;
  bool tied = false;
  bool last = false;  // with the loss
};

/// Stages with different chunks. A plan that differs from the one before in its schedule alone
/// finds them as that left them.
struct FilledStages {
  std::array<std::int64_t, 9> plan{};  // what else they depend on
  std::vector<Stage> stages;           // the first `count`
  std::size_t count = 0;
};

/// When a stage's gradients are reduced over the replicas, and what that took alone.
struct Reduction {
  double first_ready = 0;
  double end = 0;  // if the lane has nothing else to do
  double seconds = 0;
};

/// Seconds of all tasks of a stage, alone.
TaskTime total_of(const Plan& plan, const Stage& stage, bool split) {
  const int m = plan.num_microbatches();
  TaskTime total;
  for (const ChunkCost* chunk : stage.chunks) {
    const TaskTimes& tasks = chunk->tasks;
    total = total.plus(m, tasks.forward);
    if (plan.zero_stage >= 2)  // every micro-batch writes its gradients anew
      total = total.plus(m, tasks.backward_first);
    else if (split)
      total = total.plus(m, tasks.input).plus(1, tasks.weight_first).plus(m - 1, tasks.weight);
    else
      total = total.plus(1, tasks.backward_first).plus(m - 1, tasks.backward);
  }
  return total;
}

/// Where a stage's time goes, as far as it is not waiting.
Breakdown seconds_of(const Plan& plan, const Stage& stage, const SolverOutput& solved,
                     std::size_t index, double reduced) {
  const TaskTime& alone = stage.total;
  const double stretch =
      alone.seconds > 0 ? solved.busy[index] / alone.seconds : 1;  // by shared cores
  Breakdown seconds;
  seconds[Category::Forward] = stretch * alone.forward;
  seconds[Category::Recompute] = stretch * alone.recompute;
  seconds[Category::Backward] = stretch * alone.backward;
  const double streamed = stretch * stage.streamed;
  const double exposed = solved.busy[index] - seconds.total() - streamed;
  const double each = alone.moving > 0 ? exposed / alone.moving : 0;
  seconds[Category::Cp] = each * alone.context;
  seconds[Category::Ep] = each * alone.experts;
  seconds[plan.parallel.sp ? Category::Sp : Category::Tp] =
      exposed - each * (alone.context + alone.experts);
  seconds[Category::Dp] = reduced - solved.end[index] + streamed;
  seconds[Category::Optimizer] = stage.update_seconds + stage.norm_seconds;
  seconds[Category::Host] = stage.load_seconds;
  seconds[Category::Forward] += stage.once_seconds;
  return seconds;
}

/// Part of its tasks' time in which a CPU rank holds its core.
double core_share(const Stage& stage) {
  TaskTime sum;
  for (const ChunkCost* chunk : stage.chunks)
    sum = sum.plus(1, chunk->tasks.forward).plus(1, chunk->tasks.backward);
  return sum.seconds > 0 ? 1 - sum.idle / sum.seconds : 1;
}

/// Process groups of more than one rank that a rank of the stage opens.
int communicators_of(const Plan& plan, bool tied, bool last) {
  const auto& p = plan.parallel;
  const auto several = [&](Group group) { return program::group_size(group, plan) > 1 ? 1 : 0; };
  const bool over_world = plan.model.moe || plan.zero_stage > 0;
  int count = several(Group::Tp) + several(Group::Cp) + (p.pp > 1) + (tied ? 1 : 0) +
              several(Group::KvCopies) + several(over_world ? Group::World : Group::TpPp);
  const bool hybrid = plan.zero_stage > 0 && several(Group::ZeroReplicas) > 0;
  // Hybrid: over all of them the last stage alone sums its loss.
  count += hybrid ? several(Group::ZeroShards) + 1 + (last ? 1 : 0) : several(Group::DpCp);
  if (!plan.model.moe) return count;
  const bool hybrid_experts = plan.zero_stage > 0 && several(Group::ExpertZeroReplicas) > 0;
  count += several(Group::Ep) + several(Group::Etp);
  return count + (hybrid_experts ? several(Group::ExpertZeroShards) + 1 : several(Group::ExpertDp));
}

/// Of what is trained, the part that a rank owns.
double owned_share(const ZeroStage& zero) {
  const double all = zero.whole + zero.streamed;
  return all > 0 ? (zero.owned + zero.owned_streamed) / all : 1;
}

/// Both slots of what an offloaded update works on: pieces as large as a bucket, or what a rank
/// owns of one.
double staging_bytes(const Plan& plan, const Stage& stage) {
  if (!plan.offload_optimizer) return 0;
  double elements = 0;
  if (plan.zero_stage == 0) {
    elements = std::min(stage.elements, static_cast<double>(plan.bucket_bytes) / kFp32Bytes);
  } else {
    const ZeroStage& zero = stage.zero;
    const double share = owned_share(zero);
    for (const Bucket& bucket : stage.buckets.all)
      elements = std::max(elements, bucket.elements * share);
    if (plan.zero_stage >= 2) elements = std::max(zero.owned, zero.largest_unit * share);
  }
  return program::kStagingSlots * elements *
         static_cast<double>(std::ssize(program::offloaded_regions(plan))) * kFp32Bytes;
}

/// A plan's schedule; of many micro-batches so many that the pipeline has long been full, and as
/// many more as do not make a whole round, once more and with a round less.
struct ScheduleEntry {
  explicit ScheduleEntry(program::Schedule schedule) : whole(std::move(schedule)) {}
  CompiledSchedule whole;
  std::optional<CompiledSchedule> shorter;
};

}  // namespace

struct Estimator::State {
  explicit State(Cluster given)
      : cluster(std::move(given)), table(cluster), chunk_costs(cluster, table) {}

  Estimate estimate(const Plan& plan);

  Layout& layout(const Plan& plan);
  ScheduleEntry& schedule(const Plan& plan);
  double flops_per_sequence(const Plan& plan);

  void make_stages(const Plan& plan, const CompiledSchedule& schedule, Layout& where);
  void list_chunks(const Plan& plan, const CompiledSchedule& schedule, const Layout& where);
  void fill_stage(const Plan& plan, const std::vector<const ChunkCost*>& own, bool last,
                  const CompiledSchedule& schedule, Layout& where, Stage& stage);
  const ChunkCost* at_end_of_v(const ChunkCost& chunk, bool first);
  double memory_of(const Plan& plan, int index, CompiledSchedule& schedule) const;
  double all_reduce(double elements, PricedGroup& group) const;
  void price_data_parallel(const Plan& plan, double late, Layout& where, Stage& stage) const;
  double price_compressed(const Plan& plan, double elements, bool expert, DataGroups& data,
                          Stage& stage) const;
  void price_offload(const Plan& plan, Stage& stage) const;
  double agreement_seconds(const Plan& plan, Layout& where) const;
  void solve(const Plan& plan, ScheduleEntry& schedule, const Layout& where);
  Reduction reduction_of(const Stage& stage, const std::vector<double>& gradient_begin);
  double stage_end(double computed, const Reduction& reduction) const;
  /// Seconds that gathers of updated weights take of a stage before its first task.
  double gathers_before(const Stage& stage) const {
    return one_thread() ? stage.zero.gathers : stage.zero.gather_delay;
  }
  double gathers_in_first_task() const;
  bool one_thread() const { return waits; }
  /// Do stages run alone, whatever others do, and all micro-batches alike?
  bool solves_waves(const Plan& plan) const {
    return cluster.device.kind == DeviceKind::Gpu && !one_thread() &&
           has_waves(plan.schedule, plan.parallel.vpp);
  }
  const Stage& stage(std::size_t index) const { return current->stages[kind[index]]; }

  Cluster cluster;
  bool waits = false;  // moves_only_in_waits() of the plan that is being priced
  OperatorTable table;
  ChunkCosts chunk_costs;
  std::optional<models::ModelSpec> model;  // that the memory below is of
  std::vector<std::string> frozen;         // of it
  CacheKey key;
  std::unordered_map<CacheKey, Layout, CacheKey::Hash> layouts;
  std::unordered_map<CacheKey, ScheduleEntry, CacheKey::Hash> schedules;
  std::unordered_map<std::int64_t, double> flops;  // of one sequence, by its length

  // Of the plan that is being priced; their memory is used again.
  std::vector<std::vector<const ChunkCost*>> chunks;  // by stage
  std::deque<ChunkCost> adjusted;                     // ends of a V
  std::vector<int> first_layer;                       // of each virtual stage
  std::array<FilledStages, 4> filled;                 // by ZeRO stage
  FilledStages* current = &filled.front();            // of this plan
  std::vector<std::size_t> kind;                      // of each stage, into `current`
  SolverInput input;
  SolverOutput solved, fewer;
  std::vector<double> reduced;
  std::vector<std::pair<double, double>> lane;  // ready and seconds of buckets
};

Layout& Estimator::State::layout(const Plan& plan) {
  const auto& p = plan.parallel;
  key.clear();
  key.add_all(p.tp, p.cp, p.pp, p.dp, p.ep, p.etp, program::kv_copies(plan), plan.zero_stage > 0,
              plan.zero_shard_group);
  key.add(std::string_view(plan.rank_order));
  const auto found = layouts.find(key);
  if (found != layouts.end()) return found->second;
  return layouts.emplace(key, layout_of(plan, cluster)).first->second;
}

ScheduleEntry& Estimator::State::schedule(const Plan& plan) {
  constexpr std::size_t kMostRemembered = 4096;
  const int m = plan.num_microbatches();
  const int pp = plan.parallel.pp;
  const int many = std::max(16, 4 * pp);
  const bool custom = plan.schedule == program::ScheduleKind::Custom;
  const bool waves = solves_waves(plan);
  const bool whole = m <= many + pp || custom;
  // What waves are not asked for, memory, is the same for as many micro-batches as fill a pipeline.
  const int few = whole ? m : waves ? many : many + (m - many) % pp;
  key.clear();
  key.add_all(plan.schedule, pp, plan.parallel.vpp, few, whole);
  if (custom)
    for (const std::string& line : plan.custom_schedule) key.add(std::string_view(line));
  const auto found = schedules.find(key);
  if (found != schedules.end()) return found->second;
  if (schedules.size() >= kMostRemembered) schedules.clear();
  if (whole) return schedules.emplace(key, program::schedule_of(plan)).first->second;
  const auto make = [&](int microbatches) {
    return program::make_schedule(plan.schedule, pp, microbatches, plan.parallel.vpp);
  };
  ScheduleEntry& entry = schedules.emplace(key, make(few)).first->second;
  if (!waves) entry.shorter.emplace(make(few - pp));
  return entry;
}

double Estimator::State::flops_per_sequence(const Plan& plan) {
  const auto [entry, fresh] = flops.try_emplace(plan.workload.seq_len, 0.0);
  if (fresh)
    entry->second =
        program::model_flops_per_step(plan) / static_cast<double>(plan.workload.global_batch_size);
  return entry->second;
}

double Estimator::State::all_reduce(double elements, PricedGroup& group) const {
  return group.seconds(Collective::AllReduce, elements * kFp32Bytes, cluster);
}

/// Plays the gradient lane: a bucket starts when its last gradient is there and the one before it
/// is over.
Reduction Estimator::State::reduction_of(const Stage& stage,
                                         const std::vector<double>& gradient_begin) {
  lane.clear();
  for (const Bucket& bucket : stage.buckets.all) {
    double ready = 0;
    for (std::size_t p = bucket.begin_part; p < bucket.end_part; ++p)
      ready = std::max(ready,
                       gradient_begin[stage.buckets.parts[p].chunk] + stage.buckets.parts[p].ready);
    lane.emplace_back(ready, bucket.seconds);
  }
  const auto by_time = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::is_sorted(lane.begin(), lane.end(), by_time)) std::ranges::stable_sort(lane, by_time);
  Reduction reduction;
  for (const auto& [ready, seconds] : lane) {
    if (reduction.seconds == 0) reduction.first_ready = ready;
    reduction.end = std::max(reduction.end, ready) + seconds;
    reduction.seconds += seconds;
  }
  return reduction;
}

double Estimator::State::memory_of(const Plan& plan, int index, CompiledSchedule& schedule) const {
  const int m = plan.num_microbatches();
  const Stage& cost = stage(at(index));
  const StageActivations activations = schedule.activations(index, cost.kept, m);
  const double batch = 2.0 * static_cast<double>(plan.tokens_per_microbatch()) * m * kFp32Bytes;
  const double load = static_cast<double>(program::expert_load_elements(plan)) * kFp32Bytes;
  const bool on_gpu = cluster.device.kind == DeviceKind::Gpu;
  return parameter_bytes(plan, cost.elements, cost.frozen_elements, cost.zero, on_gpu) +
         staging_bytes(plan, cost) + cost.quantized_bytes + cost.compression_bytes +
         2 * cost.compression_slot_bytes + activations.bytes +
         cost.transient_bytes * activations.transient_slots +
         cost.boundary_bytes * activations.boundary_slots + cost.scalar_bytes + load + batch +
         communicators_of(plan, cost.tied, cost.last) * cluster.communication.buffer_mib * kMib +
         cluster.device.runtime_base_mib * kMib;
}

/// In a V one rank holds both ends, and one copy of a tied embedding, reduced with the layers.
const ChunkCost* Estimator::State::at_end_of_v(const ChunkCost& chunk, bool first) {
  if (chunk.tied_elements + chunk.frozen_tied_elements <= 0) return &chunk;
  ChunkCost& cost = adjusted.emplace_back(chunk);
  if (!first) cost.frozen_elements -= cost.frozen_tied_elements;
  if (cost.tied_elements <= 0) return &cost;
  if (first) {
    cost.ready.push_back({cost.tasks.backward.seconds, cost.tied_elements});
    cost.shared_elements += cost.tied_elements;
  } else
    cost.elements -= cost.tied_elements;
  cost.tied_elements = 0;
  return &cost;
}

/// The chunks of every stage.
void Estimator::State::list_chunks(const Plan& plan, const CompiledSchedule& schedule,
                                   const Layout& where) {
  const int pp = plan.parallel.pp, vpp = plan.parallel.vpp;
  const bool recomputes = plan.recompute.kind != RecomputeKind::None;
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  const std::vector<int> recomputed =
      recomputes ? program::recomputed_layers_per_stage(plan) : std::vector<int>();
  ChunkCosts::Set& set = chunk_costs.set_of(plan, plan.recompute.kind, schedule.mix(), where.tasks);
  ChunkCosts::Set* plain =
      !recomputes || recomputed == layers
          ? nullptr
          : &chunk_costs.set_of(plan, RecomputeKind::None, schedule.mix(), where.tasks);
  const bool is_v = schedule.schedule().placement == program::ChunkPlacement::V;
  adjusted.clear();
  chunks.resize(at(pp));
  first_layer.assign(1, 0);
  for (const int count : layers) first_layer.push_back(first_layer.back() + count);
  for (int stage = 0; stage < pp; ++stage) {
    chunks[at(stage)].clear();
    for (int chunk = 0; chunk < vpp; ++chunk) {
      const int number = program::virtual_stage(schedule.schedule().placement, pp, {stage, chunk});
      const int own = layers[at(number)];
      const int plain_layers = recomputes ? own - recomputed[at(number)] : 0;
      const ChunkCost& cost = chunk_costs.chunk_of(plan, set, plain,
                                                   {.number = number,
                                                    .first_layer = first_layer[at(number)],
                                                    .num_layers = own,
                                                    .plain_layers = plain_layers});
      chunks[at(stage)].push_back(is_v ? at_end_of_v(cost, number == 0) : &cost);
    }
  }
}

void Estimator::State::fill_stage(const Plan& plan, const std::vector<const ChunkCost*>& own,
                                  bool last, const CompiledSchedule& schedule, Layout& where,
                                  Stage& stage) {
  stage.chunks = own;
  stage.kept.clear();
  stage.update_seconds = stage.norm_seconds = stage.load_seconds = stage.elements = 0;
  stage.transient_bytes = stage.boundary_bytes = stage.scalar_bytes = 0;
  stage.once_seconds = stage.quantized_bytes = stage.frozen_elements = 0;
  double partial = 0, tied = 0;
  for (const ChunkCost* chunk : stage.chunks) {
    partial += chunk->partial_elements;
    tied += chunk->tied_elements;
    stage.load_seconds = std::max(stage.load_seconds, chunk->load_seconds);
    stage.update_seconds += chunk->update_seconds;
    stage.norm_seconds += chunk->norm_seconds;
    stage.once_seconds += chunk->once_seconds;
    stage.quantized_bytes += chunk->quantized_bytes;
    if (plan.zero_stage < 2)  // else with their unit
      for (const std::int64_t part : chunk->layer_copied_parts)
        stage.norm_seconds +=
            chunk->num_layers * all_reduce(static_cast<double>(part), where.data.kv_copies);
    stage.elements += chunk->elements;
    stage.frozen_elements += chunk->frozen_elements;
    stage.transient_bytes = std::max(stage.transient_bytes, chunk->transient_bytes);
    stage.boundary_bytes = std::max(stage.boundary_bytes, chunk->boundary_bytes);
    stage.scalar_bytes = std::max(stage.scalar_bytes, chunk->scalar_bytes);
    stage.kept.push_back(chunk->kept_bytes);
  }
  stage.tied = tied > 0;
  stage.last = last;
  stage.norm_seconds += all_reduce(partial, where.tp);
  if (tied > 0) stage.norm_seconds += all_reduce(tied, where.embedding);
  if (last) stage.norm_seconds += all_reduce(2, where.data.dense);  // the loss, one fp64
  stage.total = total_of(plan, stage, schedule.mix() != TaskMix::Full);
  stage.core_share = core_share(stage);
  price_data_parallel(plan, partial + tied, where, stage);
  if (plan.offload_optimizer) price_offload(plan, stage);
}

/// The update with the copies of its state: between them on one thread, beside them on a GPU.
void Estimator::State::price_offload(const Plan& plan, Stage& stage) const {
  double launches = 0;
  for (const ChunkCost* chunk : stage.chunks) launches += chunk->update_launches;
  const ZeroStage& zero = stage.zero;
  const bool divided = plan.zero_stage > 0;
  const double elements = divided ? zero.owned + zero.owned_streamed : stage.elements;
  const double pieces =
      launches +
      (divided ? zero.num_buckets : elements * kFp32Bytes / static_cast<double>(plan.bucket_bytes));
  const double bytes =
      elements * kFp32Bytes * static_cast<double>(std::ssize(program::offloaded_regions(plan)));
  if (cluster.device.kind == DeviceKind::Cpu) {
    stage.update_seconds += 2 * (stream_seconds(2 * bytes, cluster) +
                                 pieces * cluster.device.launch_us / kMicroseconds);
    return;
  }
  const double launch = cluster.device.launch_us / kMicroseconds;
  stage.update_seconds = offloaded_update_seconds(
      {.pieces = pieces,
       .copy_seconds = state_copy_seconds(bytes, cluster) + (pieces - 1) * launch,
       .update_seconds = stage.update_seconds,
       .lead = stage.norm_seconds});
}

/// @returns seconds of the communication; the computation, which is in the way of backward or of
/// the norm, and the memory go to the stage
double Estimator::State::price_compressed(const Plan& plan, double elements, bool expert,
                                          DataGroups& data, Stage& stage) const {
  const CompressedReduction reduction =
      compressed_reduction(plan, elements, expert, data, table, cluster);
  stage.norm_seconds +=
      reduction.compress_seconds + reduction.sum_seconds + reduction.settle_seconds;
  stage.compression_bytes += reduction.error_bytes;
  stage.compression_slot_bytes = std::max(stage.compression_slot_bytes, reduction.slot_bytes);
  return reduction.scatter_seconds + reduction.communication_seconds;
}

/// @param late  elements that are summed over something else before they are over the replicas
void Estimator::State::price_data_parallel(const Plan& plan, double late, Layout& where,
                                           Stage& stage) const {
  stage.buckets.clear();
  stage.zero = {};
  stage.compression_bytes = stage.compression_slot_bytes = 0;
  stage.streamed = 0;
  DataGroups& data = where.data;
  if (plan.zero_stage < 2 && (data.dense.size() > 1 || data.experts.size() > 1))
    fill_buckets(plan, stage.chunks, stage.buckets);
  const bool compressed = plan.compression.kind != program::CompressionKind::None;
  for (Bucket& bucket : stage.buckets.all)
    bucket.seconds = compressed
                         ? price_compressed(plan, bucket.elements, bucket.expert, data, stage)
                         : reduction_seconds(plan, bucket.elements, bucket.expert, data, cluster);
  if (plan.zero_stage >= 2)
    for (const ChunkCost* chunk : stage.chunks) late += chunk->shared_elements;
  stage.norm_seconds += compressed ? price_compressed(plan, late, false, data, stage)
                                   : reduction_seconds(plan, late, false, data, cluster);
  if (plan.zero_stage == 0) return;
  stage.zero = zero_stage(plan, stage.chunks, late, stage.buckets, data, table, cluster);
  stage.compression_bytes += stage.zero.compression_error_bytes;
  stage.compression_slot_bytes =
      std::max(stage.compression_slot_bytes, stage.zero.compression_slot_bytes);
  // Every rank updates, and sums the squares of, what it owns; ranges end where buckets do.
  const ZeroStage& zero = stage.zero;
  const double share = owned_share(zero);
  const double launch = cluster.device.launch_us / kMicroseconds;
  const auto shared = [&](double& seconds, double launches) {
    const double fixed = std::min(seconds, launch * launches);
    seconds = fixed + (seconds - fixed) * share;
  };
  double launches = 0;
  for (const ChunkCost* chunk : stage.chunks) launches += chunk->update_launches;
  shared(stage.update_seconds, launches);
  double squares = 0;
  for (const ChunkCost* chunk : stage.chunks) squares += chunk->norm_seconds;
  stage.norm_seconds += squares * (share - 1) + launch * zero.num_buckets;
  for (std::size_t c = 0; c < zero.tasks.size(); ++c) {
    const TaskTimes& alone = stage.chunks[c]->tasks;
    const StreamedTasks& streamed = zero.tasks[c];
    stage.streamed += plan.num_microbatches() * (streamed.forward - alone.forward.seconds +
                                                 streamed.backward - alone.backward_first.seconds);
    stage.norm_seconds += streamed.at_end;
  }
  stage.total.seconds += stage.streamed;
}

/// Stages with the same chunks share one entry.
void Estimator::State::make_stages(const Plan& plan, const CompiledSchedule& schedule,
                                   Layout& where) {
  list_chunks(plan, schedule, where);
  const int pp = plan.parallel.pp;
  const auto placement = schedule.schedule().placement;
  const program::ChunkPlace end = program::place_of(placement, pp, pp * plan.parallel.vpp - 1);
  current = &filled[at(plan.zero_stage)];
  const bool streams = plan.zero_stage >= 2;  // forwards and backwards take turns or not
  const std::array<std::int64_t, 9> same{reinterpret_cast<std::intptr_t>(&where),
                                         plan.num_microbatches(),
                                         plan.bucket_bytes,
                                         static_cast<std::int64_t>(schedule.mix()),
                                         streams ? static_cast<std::int64_t>(plan.schedule) : -1,
                                         plan.parallel.vpp,
                                         static_cast<std::int64_t>(plan.compression.kind),
                                         std::bit_cast<std::int64_t>(plan.compression.ratio),
                                         plan.offload_optimizer};
  // Chunks of a V are made anew for every plan, where others lay before.
  const bool keeps = placement == program::ChunkPlacement::Loop;
  const std::size_t known = keeps && same == current->plan ? current->count : 0;
  current->count = 0;
  std::size_t num_distinct = 0;
  kind.clear();
  for (int s = 0; s < pp; ++s) {
    const bool last = s == end.stage;
    const bool repeats = s > 0 && !last && s - 1 != end.stage && chunks[at(s)] == chunks[at(s - 1)];
    if (!repeats) {
      if (num_distinct == current->stages.size()) current->stages.emplace_back();
      Stage& own = current->stages[num_distinct];
      if (num_distinct >= known || own.last != last || own.chunks != chunks[at(s)])
        fill_stage(plan, chunks[at(s)], last, schedule, where, own);
      ++num_distinct;
    }
    kind.push_back(num_distinct - 1);
  }
  current->plan = same;
  current->count = keeps ? num_distinct : 0;
}

void Estimator::State::solve(const Plan& plan, ScheduleEntry& schedule, const Layout& where) {
  input.transfer = input.wrap_transfer = 0;
  const std::int64_t parts = plan.parallel.sp ? plan.parallel.tp : 1;
  const std::int64_t message = plan.tokens_per_microbatch() / parts * plan.model.hidden_size *
                               size_of(plan.workload.precision);
  if (plan.parallel.pp > 1) {
    input.transfer = price_transfer(message, where.neighbours, cluster).seconds;
    input.wrap_transfer = price_transfer(message, where.ends, cluster).seconds;
  }
  input.receiver_copies = one_thread();
  if (cluster.oversubscribed())
    input.wake = cluster.communication.oversubscription_wake_us / kMicroseconds;
  if (cluster.device.kind == DeviceKind::Cpu) input.host_cores = cluster.cores_per_host;
  input.stages.resize(kind.size());
  for (std::size_t s = 0; s < kind.size(); ++s) {
    const Stage& from = stage(s);
    SolverStage& to = input.stages[s];
    to.ready = from.load_seconds + from.update_seconds + from.once_seconds + gathers_before(from);
    to.host = where.host[s];
    to.cores = where.cores[s] * from.core_share;
    to.chunks.resize(from.chunks.size());
    for (std::size_t c = 0; c < from.chunks.size(); ++c) {
      const ChunkCost& chunk = *from.chunks[c];
      to.chunks[c] = {.forward = chunk.tasks.forward.seconds,
                      .backward_first = chunk.tasks.backward_first.seconds,
                      .backward = chunk.tasks.backward.seconds,
                      .input = chunk.tasks.input.seconds,
                      .weight_first = chunk.tasks.weight_first.seconds,
                      .weight = chunk.tasks.weight.seconds,
                      .overlap_saves = chunk.tasks.overlap_saves,
                      .prelude = chunk.prelude,
                      .has_backward = chunk.has_backward};
      if (from.zero.tasks.empty()) continue;
      to.chunks[c].forward = from.zero.tasks[c].forward;
      to.chunks[c].backward_first = to.chunks[c].backward = from.zero.tasks[c].backward;
    }
  }
  if (solves_waves(plan)) {
    solve_waves(plan.schedule, input, plan.num_microbatches(), solved);
    return;
  }
  schedule.whole.solve(input, solved);
  if (!schedule.shorter) return;
  // Beyond the fill, every pp micro-batches add the same.
  schedule.shorter->solve(input, fewer);
  const double rounds =
      static_cast<double>(plan.num_microbatches() - schedule.whole.num_microbatches()) /
      plan.parallel.pp;
  for (std::size_t s = 0; s < kind.size(); ++s) {
    const double shift = (solved.end[s] - fewer.end[s]) * rounds;
    for (double& begin : solved.last_gradient_begin[s]) begin += shift;
    solved.end[s] += shift;
    solved.busy[s] += (solved.busy[s] - fewer.busy[s]) * rounds;
  }
}

/// When a stage's gradients are reduced over the replicas.
double Estimator::State::stage_end(double computed, const Reduction& reduction) const {
  if (reduction.seconds <= 0) return computed;
  if (one_thread()) return computed + reduction.seconds;  // nothing moves while it computes
  const double window = computed - reduction.first_ready;
  const double overlap = std::max(0.0, std::min(window, reduction.seconds));
  const double slowdown = cluster.communication.device_share * overlap;
  return std::max(computed, reduction.end) + slowdown;
}

/// One thread gathers layer by layer while it runs the first forward: of stages that wait for it,
/// all but the first gather come after their wait.
double Estimator::State::gathers_in_first_task() const {
  if (!one_thread()) return 0;
  double most = 0;
  for (std::size_t s = 1; s < kind.size(); ++s)
    most = std::max(most, stage(s).zero.gathers - stage(s).zero.first_gather);
  return most;
}

/// What all ranks agree on at the end of a step: loss and squared norm in fp64, with experts their
/// losses and load, too.
double Estimator::State::agreement_seconds(const Plan& plan, Layout& where) const {
  const bool experts = plan.model.moe.has_value();
  PricedGroup& all = experts || plan.zero_stage > 0 ? where.world : where.replica;
  const auto load = static_cast<double>(program::expert_load_elements(plan));
  return all_reduce(experts ? 8 : 4, all) + all_reduce(load, all);
}

Estimate Estimator::State::estimate(const Plan& plan) {
  if (plan.parallel.world_size() != cluster.num_ranks())
    throw ConfigError(fmt::format("the plan ({}) has {} ranks, but cluster '{}' has {}",
                                  to_string(plan.parallel), plan.parallel.world_size(),
                                  cluster.name, cluster.num_ranks()));
  if (!model || !(*model == plan.model) || frozen != plan.frozen) {
    model = plan.model;
    frozen = plan.frozen;
    chunk_costs.set_model(plan);
    flops.clear();
    for (FilledStages& stages : filled) stages.count = 0;
  }
  waits = moves_only_in_waits(plan, cluster);
  Layout& where = layout(plan);
  const int pp = plan.parallel.pp;
  ScheduleEntry& planned = schedule(plan);
  make_stages(plan, planned.whole, where);
  solve(plan, planned, where);

  Estimate estimate;
  double synchronized = 0, operations = 0;
  reduced.resize(kind.size());
  const double first_gathers = gathers_in_first_task();
  std::size_t slowest = 0;
  for (std::size_t s = 0; s < kind.size(); ++s) {
    const Reduction reduction = reduction_of(stage(s), solved.last_gradient_begin[s]);
    reduced[s] = stage_end(solved.end[s], reduction) + first_gathers;
    if (!stage(s).zero.tasks.empty()) reduced[s] += stage(s).zero.tasks.front().tail;
    synchronized = std::max(synchronized, reduced[s] + stage(s).norm_seconds);
    operations = std::max(operations, stage(s).total.operations);
    if (solved.busy[s] > solved.busy[slowest]) slowest = s;
    // Of stages alike in a 1F1B or GPipe, none keeps more micro-batches than the first.
    if (s > 0 && kind[s] == kind[s - 1] && has_waves(plan.schedule, plan.parallel.vpp)) continue;
    const double memory = memory_of(plan, static_cast<int>(s), planned.whole);
    if (memory <= estimate.peak_memory_bytes) continue;
    estimate.peak_memory_bytes = memory;
    estimate.largest_stage = static_cast<int>(s);
  }
  const double norm = agreement_seconds(plan, where);
  const double issue = operations * cluster.device.host_issue_us / kMicroseconds;
  const double period = std::max(synchronized + norm, one_thread() ? 0.0 : issue);
  estimate.step_time_s = with_step_effects(cluster, period);

  estimate.seconds = seconds_of(plan, stage(slowest), solved, slowest, reduced[slowest]);
  const double waited = period - estimate.seconds.total();
  estimate.seconds[pp > 1 ? Category::Bubble : Category::Other] = waited;
  estimate.seconds[Category::Other] += estimate.step_time_s - period;

  estimate.capacity_bytes = memory_capacity_bytes(cluster);
  estimate.mfu =
      flops_per_sequence(plan) * static_cast<double>(plan.workload.global_batch_size) /
      (estimate.step_time_s * plan.parallel.world_size() * peak_flop_per_s(cluster, plan.workload));
  return estimate;
}

Estimator::Estimator(Cluster cluster) : state_(std::make_unique<State>(std::move(cluster))) {}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

Estimate Estimator::estimate(const Plan& plan) {
  return state_->estimate(plan);
}

}  // namespace meshplan::sim
