#include "sim/estimator.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <unordered_map>

#include "block_prices.hpp"
#include "core/error.hpp"
#include "core/units.hpp"
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
  GroupPlacement tp, dp_cp, tp_pp, embedding, kv_copies, neighbours;
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

/// A stage of the plan: the small pipeline's stage, with the layers that it really has.
struct Stage {
  TaskTime forward, backward_first, backward;
  double prelude = 0;
  double update_seconds = 0;
  double norm_seconds = 0;
  double load_seconds = 0;
  double gradient_seconds = 0;      // of all buckets, alone
  double gradient_first_ready = 0;  // from the begin of the last backward
  double gradient_end = 0;          // the same, if the lane has nothing else to do
  double memory_bytes = 0;
};

/// Where a stage's time goes, as far as it is not waiting.
Breakdown seconds_of(const Plan& plan, const Stage& stage, const SolverOutput& solved,
                     std::size_t index, double reduced) {
  const int m = plan.num_microbatches();
  const auto total = [&](double TaskTime::*part) {
    return stage.forward.*part * m + stage.backward_first.*part + stage.backward.*part * (m - 1);
  };
  const double alone = total(&TaskTime::seconds);
  const double stretch = alone > 0 ? solved.busy[index] / alone : 1;  // by shared cores
  Breakdown seconds;
  seconds[Category::Forward] = stretch * total(&TaskTime::forward);
  seconds[Category::Recompute] = stretch * total(&TaskTime::recompute);
  seconds[Category::Backward] = stretch * total(&TaskTime::backward);
  const double exposed = solved.busy[index] - seconds.total();
  seconds[plan.parallel.sp ? Category::Sp : Category::Tp] = exposed;
  seconds[Category::Dp] = reduced - solved.end[index];
  seconds[Category::Optimizer] = stage.update_seconds + stage.norm_seconds;
  seconds[Category::Host] = stage.load_seconds;
  return seconds;
}

/// Part of its tasks' time in which a CPU rank holds its core.
double core_share(const Stage& stage) {
  const double seconds = stage.forward.seconds + stage.backward.seconds;
  return seconds > 0 ? 1 - (stage.forward.idle + stage.backward.idle) / seconds : 1;
}

}  // namespace

struct Estimator::State {
  explicit State(Cluster given) : cluster(std::move(given)), table(cluster) {}

  Estimate estimate(const Plan& plan);

  const Layout& layout(const Plan& plan);
  /// Stages of the small pipeline, remembered.
  const std::vector<StagePrices>& blocks(const Plan& plan, RecomputeKind recompute,
                                         const Layout& where);
  double flops_per_sequence(const Plan& plan);

  Stage stage_of(const Plan& plan, int stage, const Layout& where);
  void add_gradients(const Plan& plan, const StagePrices& prices, int extra_layers,
                     const Layout& where, Stage& stage);
  double memory_of(const Plan& plan, int stage, const StagePrices& prices, double saved_bytes,
                   double elements) const;
  double all_reduce(double elements, const GroupPlacement& group);
  SolverOutput solve(const Plan& plan, const std::vector<Stage>& stages, const Layout& where);
  double stage_end(const Plan& plan, int index, const Stage& stage,
                   const SolverOutput& solved) const;
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
                                                         const Layout& where) {
  constexpr int kLayersPerStage = 2;  // the second says what one more costs
  constexpr int kMicrobatches = 2;    // the first writes gradients, the second adds
  const bool alike = layers_are_alike(plan.model);
  const auto& p = plan.parallel;
  const int pp = alike ? std::min(p.pp, 3) : p.pp;
  const auto layers =
      alike ? std::vector<int>(at(pp), kLayersPerStage) : program::resolved_layers_per_stage(plan);
  const auto& workload = plan.workload;
  auto key = fmt::format("{} {} {} {} {} {} {} {} {} {}", p.tp, p.sp, pp, plan.micro_batch_size,
                         workload.seq_len, static_cast<int>(workload.precision),
                         static_cast<int>(workload.optimizer.kind), static_cast<int>(recompute),
                         fmt::join(where.tp.domains, "/"), fmt::join(layers, "/"));
  const auto found = stages.find(key);
  if (found != stages.end()) return found->second;
  Plan small = plan;
  small.cluster_json.clear();
  small.prediction.reset();
  small.parallel = {.tp = p.tp, .pp = pp, .sp = p.sp};
  small.rank_order = program::Mesh::kDefaultOrder;
  small.schedule = program::ScheduleKind::GPipe;
  small.workload.global_batch_size = kMicrobatches * plan.micro_batch_size;
  small.recompute = {.kind = recompute, .num_layers = std::nullopt};
  small.layers_per_stage = layers;
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

/// Fills buckets in the order of the backward pass, as lowering does, and plays the gradient lane:
/// a bucket starts when its last gradient is there and the one before it is over.
void Estimator::State::add_gradients(const Plan& plan, const StagePrices& prices, int extra_layers,
                                     const Layout& where, Stage& stage) {
  const double layer = prices.layer_backward.seconds;
  const double layers = layer * (prices.num_layers + extra_layers);
  const bool has_head = prices.first_layer_part + 1 > at(prices.num_layers);
  const double others = std::max(0.0, stage.backward.seconds - layers);  // head, else embedding
  double ready = 0, lane = 0, filled = 0;
  stage.gradient_first_ready = -1;
  const auto flush = [&] {
    if (filled <= 0) return;
    const double seconds = all_reduce(filled, where.dp_cp);
    if (stage.gradient_first_ready < 0) stage.gradient_first_ready = ready;
    lane = std::max(lane, ready) + seconds;
    stage.gradient_seconds += seconds;
    filled = 0;
  };
  const auto add_part = [&](const BucketParts& part, double seconds) {
    ready += seconds;
    for (const std::int64_t elements : part) {
      if (filled * kFp32Bytes >= static_cast<double>(plan.bucket_bytes)) flush();
      filled += static_cast<double>(elements);
    }
  };
  for (std::size_t i = 0; i < prices.parts.size(); ++i) {
    const bool is_layer =
        i + at(prices.num_layers) > prices.first_layer_part && i <= prices.first_layer_part;
    add_part(prices.parts[i], is_layer ? layer : (has_head == (i == 0) ? others : 0));
    if (i == prices.first_layer_part)
      for (int more = 0; more < extra_layers; ++more) add_part(prices.parts[i], layer);
  }
  flush();
  stage.gradient_first_ready = std::max(0.0, stage.gradient_first_ready);
  stage.gradient_end = lane;
}

double Estimator::State::memory_of(const Plan& plan, int stage, const StagePrices& prices,
                                   double saved_bytes, double elements) const {
  const auto& p = plan.parallel;
  const int m = plan.num_microbatches();
  const bool sgd = plan.workload.optimizer.kind == program::OptimizerKind::Sgd;
  const bool master = plan.workload.precision != DType::F32;
  const double per_element = static_cast<double>(size_of(plan.workload.precision)) +
                             kFp32Bytes * (2 + (sgd ? 0 : 1) + (master ? 1 : 0));
  const int in_flight =
      plan.schedule == program::ScheduleKind::GPipe ? m : std::min(m, p.pp - stage);
  const double batch = 2.0 * static_cast<double>(plan.tokens_per_microbatch()) * m * kFp32Bytes;
  const int communicators = (p.tp > 1) + (p.tp * p.pp > 1) + (p.dp * p.cp > 1) + (p.pp > 1) +
                            (program::kv_copies(plan) > 1) + (prices.tied_elements > 0 ? 1 : 0);
  return elements * per_element + saved_bytes * in_flight + prices.transient_bytes +
         prices.boundary_bytes + prices.scalar_bytes + batch +
         communicators * cluster.communication.buffer_mib * kMib +
         cluster.device.runtime_base_mib * kMib;
}

Stage Estimator::State::stage_of(const Plan& plan, int index, const Layout& where) {
  const int num_layers = program::resolved_layers_per_stage(plan)[at(index)];
  const int limit = plan.recompute.num_layers.value_or(num_layers);
  const bool mixed = plan.recompute.kind != RecomputeKind::None && limit < num_layers;
  const auto& all = blocks(plan, plan.recompute.kind, where);
  const bool last = index + 1 == plan.parallel.pp;
  const std::size_t small = index == 0 ? 0
                            : last     ? all.size() - 1
                                       : std::min(at(index), all.size() - 2);
  const std::size_t which = layers_are_alike(plan.model) ? small : at(index);
  const StagePrices& prices = all[which];
  const int extra = num_layers - prices.num_layers;
  const auto with_layers = [&](const TaskTime& whole, const TaskTime& layer,
                               const TaskTime& plain) {
    const int plain_layers = mixed ? num_layers - limit : 0;
    return whole.plus(extra - plain_layers, layer).plus(plain_layers, plain);
  };
  const StagePrices& plain = mixed ? blocks(plan, RecomputeKind::None, where)[which] : prices;
  Stage stage;
  stage.forward = with_layers(prices.forward, prices.layer_forward, plain.layer_forward);
  stage.backward = with_layers(prices.backward, prices.layer_backward, plain.layer_backward);
  stage.backward_first =
      with_layers(prices.backward_first, prices.layer_backward_first, plain.layer_backward_first);
  stage.prelude = prices.prelude;
  const double elements =
      static_cast<double>(prices.parameter_elements + extra * prices.layer_elements);
  const double partial =
      static_cast<double>(prices.partial_elements + extra * prices.layer_partial_elements);
  const double tied = static_cast<double>(prices.tied_elements);
  stage.load_seconds = prices.load_seconds;
  stage.update_seconds = turns() * (prices.update_seconds + extra * prices.layer_update_seconds);
  stage.norm_seconds = turns() * (prices.norm_seconds + extra * prices.layer_norm_seconds);
  stage.norm_seconds += all_reduce(partial, where.tp) + all_reduce(partial + tied, where.dp_cp);
  if (tied > 0) stage.norm_seconds += all_reduce(tied, where.embedding);
  for (const std::int64_t part : prices.layer_copied_parts)
    stage.norm_seconds += num_layers * all_reduce(static_cast<double>(part), where.kv_copies);
  if (last) stage.norm_seconds += all_reduce(2, where.dp_cp);  // the loss, one fp64
  if (where.dp_cp.size > 1) add_gradients(plan, prices, extra, where, stage);
  const int plain_layers = mixed ? num_layers - limit : 0;
  const double saved = prices.saved_bytes + (extra - plain_layers) * prices.layer_saved_bytes +
                       plain_layers * plain.layer_saved_bytes;
  stage.memory_bytes = memory_of(plan, index, prices, saved, elements);
  return stage;
}

SolverOutput Estimator::State::solve(const Plan& plan, const std::vector<Stage>& all,
                                     const Layout& where) {
  SolverInput input;
  const std::int64_t parts = plan.parallel.sp ? plan.parallel.tp : 1;
  const std::int64_t message = plan.tokens_per_microbatch() / parts * plan.model.hidden_size *
                               size_of(plan.workload.precision);
  if (plan.parallel.pp > 1)
    input.transfer = price_transfer(message, where.neighbours, cluster).seconds;
  input.receiver_copies = one_thread();
  if (cluster.oversubscribed())
    input.wake = cluster.communication.oversubscription_wake_us / kMicroseconds;
  if (cluster.device.kind == DeviceKind::Cpu) input.host_cores = cluster.cores_per_host;
  for (std::size_t s = 0; s < all.size(); ++s)
    input.stages.push_back({.ready = all[s].load_seconds + all[s].update_seconds,
                            .forward = all[s].forward.seconds,
                            .backward_first = all[s].backward_first.seconds,
                            .backward = all[s].backward.seconds,
                            .prelude = all[s].prelude,
                            .host = where.host[s],
                            .cores = where.cores[s] * core_share(all[s])});
  const int m = plan.num_microbatches();
  const int pp = plan.parallel.pp;
  const auto solved_for = [&](int count) {
    return solve_tasks(program::make_schedule(plan.schedule, pp, count), input);
  };
  // Beyond the fill, every micro-batch adds the same: many are solved as two smaller numbers.
  const int many = std::max(64, 8 * pp);
  if (m <= many) return solved_for(m);
  const SolverOutput fewer = solved_for(many - pp);
  SolverOutput solved = solved_for(many);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const double steps = static_cast<double>(m - many) / pp;
    const double shift = (solved.end[s] - fewer.end[s]) * steps;
    solved.last_backward_begin[s] += shift;
    solved.end[s] += shift;
    solved.busy[s] += (solved.busy[s] - fewer.busy[s]) * steps;
  }
  return solved;
}

/// When a stage's gradients are reduced over the replicas.
double Estimator::State::stage_end(const Plan& /*plan*/, int index, const Stage& stage,
                                   const SolverOutput& solved) const {
  const double computed = solved.end[at(index)];
  if (stage.gradient_seconds <= 0) return computed;
  if (one_thread()) return computed + stage.gradient_seconds;  // nothing moves while it computes
  const double begin = solved.last_backward_begin[at(index)];
  const double window = computed - begin - stage.gradient_first_ready;
  const double overlap = std::max(0.0, std::min(window, stage.gradient_seconds));
  const double slowdown = cluster.communication.device_share * overlap;
  return std::max(computed, begin + stage.gradient_end) + slowdown;
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
  const int m = plan.num_microbatches();
  std::vector<Stage> all;
  for (int stage = 0; stage < pp; ++stage) all.push_back(stage_of(plan, stage, where));
  const SolverOutput solved = solve(plan, all, where);

  Estimate estimate;
  double synchronized = 0, operations = 0;
  std::vector<double> reduced(all.size());
  std::size_t slowest = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    reduced[s] = stage_end(plan, static_cast<int>(s), all[s], solved);
    synchronized = std::max(synchronized, reduced[s] + all[s].norm_seconds);
    operations = std::max(operations, m * (all[s].forward.operations + all[s].backward.operations));
    if (solved.busy[s] > solved.busy[slowest]) slowest = s;
    if (all[s].memory_bytes <= estimate.peak_memory_bytes) continue;
    estimate.peak_memory_bytes = all[s].memory_bytes;
    estimate.largest_stage = static_cast<int>(s);
  }
  const double norm = all_reduce(4, where.tp_pp);  // loss sum and squared norm, fp64
  const double issue = operations * cluster.device.host_issue_us / kMicroseconds;
  estimate.step_time_s = std::max(synchronized + norm, one_thread() ? 0.0 : issue);

  estimate.seconds = seconds_of(plan, all[slowest], solved, slowest, reduced[slowest]);
  const double rest = estimate.step_time_s - estimate.seconds.total();
  estimate.seconds[pp > 1 ? Category::Bubble : Category::Other] = rest;

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
