#include "sim/estimator.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <unordered_map>

#include "block_prices.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
#include "program/activations.hpp"
#include "program/cost.hpp"
#include "program/lower.hpp"
#include "sim/memory.hpp"
#include "sim/pricing.hpp"
#include "task_solver.hpp"
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
  GroupPlacement tp, dp_cp, tp_pp, embedding, kv_copies, neighbours, ends;
  std::vector<int> host;      // of each stage's first rank
  std::vector<double> cores;  // that the stage's ranks of that host hold while they compute
};

Layout layout_of(const program::Mesh& mesh, const Cluster& cluster) {
  Layout layout;
  const int first = mesh.rank_of({});
  const int pp = mesh.config().pp;
  layout.tp = place(cluster, mesh.group(Group::Tp, first));
  layout.dp_cp = place(cluster, mesh.group(Group::DpCp, first));
  layout.tp_pp = place(cluster, mesh.group(Group::TpPp, first));
  layout.embedding = place(cluster, mesh.group(Group::Embedding, first));
  layout.kv_copies = place(cluster, mesh.group(Group::KvCopies, first));
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

/// Layers that differ only in their number share one block.
bool layers_are_alike(const models::ModelSpec& model) {
  if (model.moe) return false;
  return std::ranges::adjacent_find(model.layer_pattern, std::ranges::not_equal_to()) ==
         model.layer_pattern.end();
}

/// A virtual stage of the plan: the small pipeline's stage, with the layers that it really has.
struct ChunkCost {
  TaskTimes tasks;
  double prelude = 0;
  double update_seconds = 0;
  double norm_seconds = 0;
  double load_seconds = 0;
  double elements = 0;
  double partial_elements = 0;
  double tied_elements = 0;
  double transient_bytes = 0;
  double boundary_bytes = 0;
  double scalar_bytes = 0;
  program::KeptBytes kept_bytes{};
  // Gradients in the order of the backward pass, with the seconds after which they are ready.
  std::vector<std::pair<double, double>> ready_elements;
};

/// A rank of the pipeline: its chunks.
struct Stage {
  std::vector<ChunkCost> chunks;
  double update_seconds = 0;
  double norm_seconds = 0;
  double load_seconds = 0;
  double memory_bytes = 0;
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
  for (const ChunkCost& chunk : stage.chunks) {
    total = total.plus(m, chunk.tasks.forward);
    const TaskTimes& tasks = chunk.tasks;
    if (split)
      total = total.plus(m, tasks.input).plus(1, tasks.weight_first).plus(m - 1, tasks.weight);
    else
      total = total.plus(1, tasks.backward_first).plus(m - 1, tasks.backward);
  }
  return total;
}

/// Where a stage's time goes, as far as it is not waiting.
Breakdown seconds_of(const Plan& plan, const Stage& stage, const SolverOutput& solved,
                     std::size_t index, double reduced, bool split) {
  const TaskTime alone = total_of(plan, stage, split);
  const double stretch =
      alone.seconds > 0 ? solved.busy[index] / alone.seconds : 1;  // by shared cores
  Breakdown seconds;
  seconds[Category::Forward] = stretch * alone.forward;
  seconds[Category::Recompute] = stretch * alone.recompute;
  seconds[Category::Backward] = stretch * alone.backward;
  const double exposed = solved.busy[index] - seconds.total();
  seconds[plan.parallel.sp ? Category::Sp : Category::Tp] = exposed;
  seconds[Category::Dp] = reduced - solved.end[index];
  seconds[Category::Optimizer] = stage.update_seconds + stage.norm_seconds;
  seconds[Category::Host] = stage.load_seconds;
  return seconds;
}

/// Part of its tasks' time in which a CPU rank holds its core.
double core_share(const Stage& stage) {
  TaskTime sum;
  for (const ChunkCost& chunk : stage.chunks)
    sum = sum.plus(1, chunk.tasks.forward).plus(1, chunk.tasks.backward);
  return sum.seconds > 0 ? 1 - sum.idle / sum.seconds : 1;
}

int num_microbatches_of(const program::Schedule& schedule) {
  int most = 0;
  for (const program::Task& task : schedule.tasks.front())
    most = std::max(most, task.microbatch + 1);
  return most;
}

/// The plan's schedule; of many micro-batches so many that the pipeline has long been full, and as
/// many more as do not make a whole round. GPipe's memory grows with every one of them.
program::Schedule short_schedule(const Plan& plan) {
  const int m = plan.num_microbatches();
  const int pp = plan.parallel.pp;
  const int many = std::max(64, 8 * pp);
  const bool whole = m <= many || plan.schedule == program::ScheduleKind::Custom ||
                     plan.schedule == program::ScheduleKind::GPipe;
  if (whole) return program::schedule_of(plan);
  return program::make_schedule(plan.schedule, pp, many + (m - many) % pp, plan.parallel.vpp);
}

/// Tasks for the small pipeline in which every kind that `schedule` has occurs.
enum class TaskMix { Full, Split, Overlapped };

TaskMix mix_of(const program::Schedule& schedule) {
  for (const auto& tasks : schedule.tasks)
    if (std::ranges::find(tasks, program::TaskKind::Overlapped, &program::Task::kind) !=
        tasks.end())
      return TaskMix::Overlapped;
  return program::splits_backward(schedule) ? TaskMix::Split : TaskMix::Full;
}

/// 1F1B with one forward more in the warm-up, so that a forward can be overlapped with the backward
/// of another micro-batch; one micro-batch more has both gradients apart.
std::vector<std::string> small_schedule(TaskMix mix, int pp, int num_microbatches) {
  program::Schedule schedule;
  for (int stage = 0; stage < pp; ++stage) {
    auto& tasks = schedule.tasks.emplace_back();
    const int ahead = pp - stage;
    for (int m = 0; m < std::min(ahead, num_microbatches); ++m) tasks.push_back({.microbatch = m});
    for (int m = 0; m < num_microbatches; ++m) {
      const bool overlapped = mix == TaskMix::Overlapped && m == 0;
      if (overlapped) {
        tasks.push_back({.kind = program::TaskKind::Overlapped,
                         .microbatch = m + ahead,
                         .backward_microbatch = m});
        continue;
      }
      if (m + ahead < num_microbatches) tasks.push_back({.microbatch = m + ahead});
      tasks.push_back({.kind = program::TaskKind::BackwardInput, .microbatch = m});
      tasks.push_back({.kind = program::TaskKind::BackwardWeight, .microbatch = m});
    }
  }
  const std::string text = program::to_csv(schedule);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  return lines;
}

}  // namespace

struct Estimator::State {
  explicit State(Cluster given) : cluster(std::move(given)), table(cluster) {}

  Estimate estimate(const Plan& plan);

  const Layout& layout(const Plan& plan);
  /// Stages of the small pipeline, remembered.
  const std::vector<StagePrices>& blocks(const Plan& plan, RecomputeKind recompute, TaskMix mix,
                                         const Layout& where);
  double flops_per_sequence(const Plan& plan);

  ChunkCost chunk_of(const Plan& plan, int number, TaskMix mix, const Layout& where);
  Stage stage_of(const Plan& plan, int stage, const program::Schedule& schedule,
                 const Layout& where);
  void add_gradients(const StagePrices& prices, int extra_layers, ChunkCost& chunk);
  double memory_of(const Plan& plan, int stage, const program::Schedule& schedule,
                   const Stage& cost) const;
  double all_reduce(double elements, const GroupPlacement& group);
  SolverOutput solve(const Plan& plan, const program::Schedule& schedule,
                     const std::vector<Stage>& stages, const Layout& where);
  Reduction reduction_of(const Plan& plan, const Stage& stage,
                         const std::vector<double>& gradient_begin, const Layout& where);
  double stage_end(double computed, const Reduction& reduction) const;
  /// All ranks of a host want its cores at once.
  double turns() const {
    return cluster.device.kind == DeviceKind::Cpu
               ? std::max(1.0,
                          static_cast<double>(cluster.devices_per_node) / cluster.cores_per_host)
               : 1.0;
  }
  bool one_thread() const { return cluster.communication.needs_host; }

  Cluster cluster;
  OperatorTable table;
  std::optional<models::ModelSpec> model;  // that the memory below is of
  std::unordered_map<std::string, Layout> layouts;
  std::unordered_map<std::string, std::vector<StagePrices>> stages;
  std::unordered_map<std::int64_t, double> flops;  // of one sequence, by its length
  std::map<std::pair<double, const GroupPlacement*>, double> all_reduces;
};

const Layout& Estimator::State::layout(const Plan& plan) {
  const auto& p = plan.parallel;
  const auto key = fmt::format("{} {} {} {} {} {} {} {}", p.tp, p.cp, p.pp, p.dp, p.ep, p.etp,
                               plan.rank_order, program::kv_copies(plan));
  const auto found = layouts.find(key);
  if (found != layouts.end()) return found->second;
  return layouts.emplace(key, layout_of(program::mesh_of(plan), cluster)).first->second;
}

const std::vector<StagePrices>& Estimator::State::blocks(const Plan& plan, RecomputeKind recompute,
                                                         TaskMix mix, const Layout& where) {
  constexpr int kLayersPerStage = 2;  // the second says what one more costs
  const bool alike = layers_are_alike(plan.model);
  const auto& p = plan.parallel;
  const int pp = alike ? std::min(p.pp * p.vpp, 3) : p.pp * p.vpp;
  // The first writes gradients, the second adds; a third one where the first is overlapped.
  const int microbatches = mix == TaskMix::Full ? 2 : mix == TaskMix::Split ? 2 : pp + 2;
  const auto layers =
      alike ? std::vector<int>(at(pp), kLayersPerStage) : program::resolved_layers_per_stage(plan);
  const auto& workload = plan.workload;
  auto key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", p.tp, p.sp, pp, plan.micro_batch_size,
                  workload.seq_len, static_cast<int>(workload.precision),
                  static_cast<int>(workload.optimizer.kind), static_cast<int>(recompute),
                  static_cast<int>(mix), fmt::join(where.tp.domains, "/"), fmt::join(layers, "/"));
  const auto found = stages.find(key);
  if (found != stages.end()) return found->second;
  Plan small = plan;
  small.cluster_json.clear();
  small.prediction.reset();
  small.parallel = {.tp = p.tp, .pp = pp, .sp = p.sp};
  small.rank_order = program::Mesh::kDefaultOrder;
  small.schedule = program::ScheduleKind::GPipe;
  small.custom_schedule.clear();
  small.workload.global_batch_size = microbatches * plan.micro_batch_size;
  if (mix != TaskMix::Full) {
    small.schedule = program::ScheduleKind::Custom;
    small.custom_schedule = small_schedule(mix, pp, microbatches);
  }
  small.recompute = {.kind = recompute, .num_layers = std::nullopt, .layers_per_stage = {}};
  small.layers_per_stage = layers;
  small.count_ends_as_layers = false;
  small.model.num_layers = 0;
  for (const int count : layers) small.model.num_layers += count;
  const BlockPricing pricing{.cluster = &cluster, .table = &table, .tp = where.tp};
  std::vector<StagePrices> priced;
  for (int stage = 0; stage < pp; ++stage)
    priced.push_back(price_stage(program::lower(small, stage), pricing));
  return stages.emplace(std::move(key), std::move(priced)).first->second;
}

double Estimator::State::flops_per_sequence(const Plan& plan) {
  const auto [entry, fresh] = flops.try_emplace(plan.workload.seq_len, 0.0);
  if (fresh)
    entry->second =
        program::model_flops_per_step(plan) / static_cast<double>(plan.workload.global_batch_size);
  return entry->second;
}

double Estimator::State::all_reduce(double elements, const GroupPlacement& group) {
  if (elements <= 0 || group.size == 1) return 0;
  const auto [entry, fresh] = all_reduces.try_emplace(std::pair(elements, &group), 0.0);
  if (fresh)
    entry->second =
        price_collective(Collective::AllReduce, static_cast<std::int64_t>(elements * kFp32Bytes),
                         group, cluster)
            .seconds;
  return entry->second;
}

/// Gradients of a chunk as its last task makes them, layer by layer.
void Estimator::State::add_gradients(const StagePrices& prices, int extra_layers,
                                     ChunkCost& chunk) {
  const bool split = chunk.tasks.weight.seconds > 0;
  const auto& last = split ? &TaskTimes::weight : &TaskTimes::backward;
  const double layer = (prices.layer_tasks.*last).seconds;
  const double layers = layer * (prices.num_layers + extra_layers);
  const bool has_head = prices.first_layer_part + 1 > at(prices.num_layers);
  const double others =
      std::max(0.0, (chunk.tasks.*last).seconds - layers);  // head, else embedding
  double ready = 0;
  const auto add_part = [&](const BucketParts& part, double seconds) {
    ready += seconds;
    for (const std::int64_t elements : part)
      chunk.ready_elements.emplace_back(ready, static_cast<double>(elements));
  };
  for (std::size_t i = 0; i < prices.parts.size(); ++i) {
    const bool is_layer =
        i + at(prices.num_layers) > prices.first_layer_part && i <= prices.first_layer_part;
    if (!is_layer) {
      add_part(prices.parts[i], has_head == (i == 0) ? others : 0);
      continue;
    }
    const int repeats = i == prices.first_layer_part ? 1 + extra_layers : 1;
    for (int more = 0; more < repeats; ++more) add_part(prices.parts[i], layer);
  }
}

/// Fills buckets over the chunks in the order in which lowering places their gradients, and plays
/// the gradient lane: a bucket starts when its last gradient is there and the one before it is
/// over.
Reduction Estimator::State::reduction_of(const Plan& plan, const Stage& stage,
                                         const std::vector<double>& gradient_begin,
                                         const Layout& where) {
  struct Filled {
    double ready = 0;
    double elements = 0;
  };
  std::vector<Filled> buckets;
  for (std::size_t chunk = stage.chunks.size(); chunk-- > 0;)
    for (const auto& [ready, elements] : stage.chunks[chunk].ready_elements) {
      const bool full = !buckets.empty() && buckets.back().elements * kFp32Bytes >=
                                                static_cast<double>(plan.bucket_bytes);
      if (buckets.empty() || full) buckets.emplace_back();
      buckets.back().ready = std::max(buckets.back().ready, gradient_begin[chunk] + ready);
      buckets.back().elements += elements;
    }
  std::ranges::stable_sort(buckets, {}, &Filled::ready);
  Reduction reduction;
  for (const Filled& bucket : buckets) {
    const double seconds = all_reduce(bucket.elements, where.dp_cp);
    if (reduction.seconds == 0) reduction.first_ready = bucket.ready;
    reduction.end = std::max(reduction.end, bucket.ready) + seconds;
    reduction.seconds += seconds;
  }
  return reduction;
}

double Estimator::State::memory_of(const Plan& plan, int stage, const program::Schedule& schedule,
                                   const Stage& cost) const {
  const auto& p = plan.parallel;
  const int m = plan.num_microbatches();
  const bool sgd = plan.workload.optimizer.kind == program::OptimizerKind::Sgd;
  const bool master = plan.workload.precision != DType::F32;
  const double per_element = static_cast<double>(size_of(plan.workload.precision)) +
                             kFp32Bytes * (2 + (sgd ? 0 : 1) + (master ? 1 : 0));
  double elements = 0, transient = 0, boundary = 0, scalars = 0;
  bool tied = false;
  std::vector<program::KeptBytes> kept;
  for (const ChunkCost& chunk : cost.chunks) {
    elements += chunk.elements;
    transient = std::max(transient, chunk.transient_bytes);
    boundary = std::max(boundary, chunk.boundary_bytes);
    scalars = std::max(scalars, chunk.scalar_bytes);
    tied = tied || chunk.tied_elements > 0;
    kept.push_back(chunk.kept_bytes);
  }
  const program::ActivationPlan activations =
      program::estimate_activations(schedule, stage, num_microbatches_of(schedule), kept);
  const double batch = 2.0 * static_cast<double>(plan.tokens_per_microbatch()) * m * kFp32Bytes;
  const int communicators = (p.tp > 1) + (p.tp * p.pp > 1) + (p.dp * p.cp > 1) + (p.pp > 1) +
                            (tied ? 1 : 0) + (program::kv_copies(plan) > 1);
  const int slots = std::max(1, activations.boundary.total());
  return elements * per_element + static_cast<double>(activations.bytes) +
         transient * activations.transient_slots + boundary * slots + scalars + batch +
         communicators * cluster.communication.buffer_mib * kMib +
         cluster.device.runtime_base_mib * kMib;
}

ChunkCost Estimator::State::chunk_of(const Plan& plan, int number, TaskMix mix,
                                     const Layout& where) {
  const int virtual_stages = plan.parallel.pp * plan.parallel.vpp;
  const int num_layers = program::resolved_layers_per_stage(plan)[at(number)];
  const bool recomputes = plan.recompute.kind != RecomputeKind::None;
  const int plain_layers =
      recomputes ? num_layers - program::recomputed_layers_per_stage(plan)[at(number)] : 0;
  const auto& all = blocks(plan, plan.recompute.kind, mix, where);
  const std::size_t small = number == 0                    ? 0
                            : number + 1 == virtual_stages ? all.size() - 1
                                                           : std::min(at(number), all.size() - 2);
  const std::size_t which = layers_are_alike(plan.model) ? small : at(number);
  const StagePrices& prices = all[which];
  const int extra = num_layers - prices.num_layers;
  const StagePrices& plain =
      plain_layers > 0 ? blocks(plan, RecomputeKind::None, mix, where)[which] : prices;
  ChunkCost chunk;
  chunk.tasks = prices.tasks.plus(extra - plain_layers, prices.layer_tasks)
                    .plus(plain_layers, plain.layer_tasks);
  chunk.prelude = prices.prelude;
  chunk.elements = static_cast<double>(prices.parameter_elements + extra * prices.layer_elements);
  chunk.partial_elements =
      static_cast<double>(prices.partial_elements + extra * prices.layer_partial_elements);
  chunk.tied_elements = static_cast<double>(prices.tied_elements);
  chunk.load_seconds = prices.load_seconds;
  chunk.update_seconds = turns() * (prices.update_seconds + extra * prices.layer_update_seconds);
  chunk.norm_seconds = turns() * (prices.norm_seconds + extra * prices.layer_norm_seconds);
  for (const std::int64_t part : prices.layer_copied_parts)
    chunk.norm_seconds += num_layers * all_reduce(static_cast<double>(part), where.kv_copies);
  chunk.transient_bytes = prices.transient_bytes;
  chunk.boundary_bytes = prices.boundary_bytes;
  chunk.scalar_bytes = prices.scalar_bytes;
  for (std::size_t keep = 0; keep < program::kNumKeeps; ++keep)
    chunk.kept_bytes[keep] = prices.kept_bytes[keep] +
                             (extra - plain_layers) * prices.layer_kept_bytes[keep] +
                             plain_layers * plain.layer_kept_bytes[keep];
  if (where.dp_cp.size > 1) add_gradients(prices, extra, chunk);
  return chunk;
}

Stage Estimator::State::stage_of(const Plan& plan, int index, const program::Schedule& schedule,
                                 const Layout& where) {
  const int pp = plan.parallel.pp;
  const TaskMix mix = mix_of(schedule);
  const bool is_v = schedule.placement == program::ChunkPlacement::V;
  Stage stage;
  double partial = 0, tied = 0;
  bool last = false;
  for (int chunk = 0; chunk < plan.parallel.vpp; ++chunk) {
    const int number = program::virtual_stage(schedule.placement, pp, {index, chunk});
    ChunkCost cost = chunk_of(plan, number, mix, where);
    last = last || number + 1 == pp * plan.parallel.vpp;
    if (is_v && number == 0) {  // one copy for both ends, reduced with the layers
      if (cost.tied_elements > 0 && where.dp_cp.size > 1)
        cost.ready_elements.emplace_back(cost.tasks.backward.seconds, cost.tied_elements);
      cost.tied_elements = 0;
    } else if (is_v) {
      cost.elements -= cost.tied_elements;
      cost.tied_elements = 0;
    }
    partial += cost.partial_elements;
    tied += cost.tied_elements;
    stage.load_seconds = std::max(stage.load_seconds, cost.load_seconds);
    stage.update_seconds += cost.update_seconds;
    stage.norm_seconds += cost.norm_seconds;
    stage.chunks.push_back(std::move(cost));
  }
  stage.norm_seconds += all_reduce(partial, where.tp) + all_reduce(partial + tied, where.dp_cp);
  if (tied > 0) stage.norm_seconds += all_reduce(tied, where.embedding);
  if (last) stage.norm_seconds += all_reduce(2, where.dp_cp);  // the loss, one fp64
  stage.memory_bytes = memory_of(plan, index, schedule, stage);
  return stage;
}

SolverOutput Estimator::State::solve(const Plan& plan, const program::Schedule& schedule,
                                     const std::vector<Stage>& all, const Layout& where) {
  SolverInput input;
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
  for (std::size_t s = 0; s < all.size(); ++s) {
    input.stages.push_back({.ready = all[s].load_seconds + all[s].update_seconds,
                            .chunks = {},
                            .host = where.host[s],
                            .cores = where.cores[s] * core_share(all[s])});
    for (const ChunkCost& chunk : all[s].chunks)
      input.stages.back().chunks.push_back({.forward = chunk.tasks.forward.seconds,
                                            .backward_first = chunk.tasks.backward_first.seconds,
                                            .backward = chunk.tasks.backward.seconds,
                                            .input = chunk.tasks.input.seconds,
                                            .weight_first = chunk.tasks.weight_first.seconds,
                                            .weight = chunk.tasks.weight.seconds,
                                            .overlap_saves = chunk.tasks.overlap_saves,
                                            .prelude = chunk.prelude});
  }
  const int m = plan.num_microbatches();
  const int pp = plan.parallel.pp;
  const int few = num_microbatches_of(schedule);
  if (m == few) return solve_tasks(schedule, input);
  // Beyond the fill, every pp micro-batches add the same: many are solved as two smaller numbers.
  const auto fewer_tasks = program::make_schedule(plan.schedule, pp, few - pp, plan.parallel.vpp);
  const SolverOutput fewer = solve_tasks(fewer_tasks, input);
  SolverOutput solved = solve_tasks(schedule, input);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const double steps = static_cast<double>(m - few) / pp;
    const double shift = (solved.end[s] - fewer.end[s]) * steps;
    for (double& begin : solved.last_gradient_begin[s]) begin += shift;
    solved.end[s] += shift;
    solved.busy[s] += (solved.busy[s] - fewer.busy[s]) * steps;
  }
  return solved;
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

Estimate Estimator::State::estimate(const Plan& plan) {
  if (plan.parallel.world_size() != cluster.num_ranks())
    throw ConfigError(fmt::format("the plan ({}) has {} ranks, but cluster '{}' has {}",
                                  to_string(plan.parallel), plan.parallel.world_size(),
                                  cluster.name, cluster.num_ranks()));
  if (!model || !(*model == plan.model)) {
    model = plan.model;
    stages.clear();
    flops.clear();
  }
  const Layout& where = layout(plan);
  const int pp = plan.parallel.pp;
  const program::Schedule schedule = short_schedule(plan);
  const bool split = mix_of(schedule) != TaskMix::Full;
  std::vector<Stage> all;
  for (int stage = 0; stage < pp; ++stage) all.push_back(stage_of(plan, stage, schedule, where));
  const SolverOutput solved = solve(plan, schedule, all, where);

  Estimate estimate;
  double synchronized = 0, operations = 0;
  std::vector<double> reduced(all.size());
  std::size_t slowest = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    const Reduction reduction = reduction_of(plan, all[s], solved.last_gradient_begin[s], where);
    reduced[s] = stage_end(solved.end[s], reduction);
    synchronized = std::max(synchronized, reduced[s] + all[s].norm_seconds);
    operations = std::max(operations, total_of(plan, all[s], split).operations);
    if (solved.busy[s] > solved.busy[slowest]) slowest = s;
    if (all[s].memory_bytes <= estimate.peak_memory_bytes) continue;
    estimate.peak_memory_bytes = all[s].memory_bytes;
    estimate.largest_stage = static_cast<int>(s);
  }
  const double norm = all_reduce(4, where.tp_pp);  // loss sum and squared norm, fp64
  const double issue = operations * cluster.device.host_issue_us / kMicroseconds;
  const double period = std::max(synchronized + norm, one_thread() ? 0.0 : issue);
  estimate.step_time_s = with_step_effects(cluster, period);

  estimate.seconds = seconds_of(plan, all[slowest], solved, slowest, reduced[slowest], split);
  const double waited = period - estimate.seconds.total();
  estimate.seconds[pp > 1 ? Category::Bubble : Category::Other] = waited;
  estimate.seconds[Category::Other] += estimate.step_time_s - period;

  estimate.capacity_bytes = memory_capacity_bytes(cluster);
  estimate.mfu = flops_per_sequence(plan) * static_cast<double>(plan.workload.global_batch_size) /
                 (estimate.step_time_s * plan.parallel.world_size() *
                  peak_flop_per_s(cluster, plan.workload.precision));
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
