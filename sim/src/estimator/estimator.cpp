#include "sim/estimator/estimator.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "core/error.hpp"
#include "core/units.hpp"
#include "estimator/node_stages.hpp"
#include "estimator/stage_memory.hpp"
#include "prices/element_bytes.hpp"
#include "program/cost/cost.hpp"
#include "program/cost/model_flops.hpp"
#include "schedules/host_thread.hpp"
#include "schedules/plan_keys.hpp"
#include "schedules/planned_schedule.hpp"
#include "schedules/wave_solver.hpp"
#include "sim/engine/memory.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;

/// Where a stage's time goes, as far as it is not waiting.
Breakdown seconds_of(const Plan& plan, const StageCost& stage, const SolverOutput& solved,
                     std::size_t index, double reduced) {
  const TaskTime& alone = stage.total;
  const double stretch =
      alone.seconds > 0 ? solved.busy[index] / alone.seconds : 1;  // by shared cores
  Breakdown seconds;
  seconds[Category::Forward] = stretch * alone.forward;
  seconds[Category::Recompute] = stretch * alone.recompute;
  seconds[Category::Backward] = stretch * alone.backward;
  seconds[Category::Host] = stretch * alone.host;
  const double streamed = stretch * stage.streamed;
  const double exposed = solved.busy[index] - seconds.total() - streamed;
  const double each = alone.moving > 0 ? exposed / alone.moving : 0;
  seconds[Category::Cp] = each * alone.context;
  seconds[Category::Ep] = each * alone.experts;
  seconds[plan.parallel.sp ? Category::Sp : Category::Tp] =
      exposed - each * (alone.context + alone.experts);
  seconds[Category::Dp] = reduced - solved.end[index] + streamed;
  seconds[Category::Optimizer] = stage.sums.update_seconds + stage.sums.norm_seconds;
  seconds[Category::Host] += stage.load_seconds;
  seconds[Category::Forward] += stage.sums.once_seconds;
  return seconds;
}

BusyTime mean_busy(const NodeStages& stages) {
  BusyTime mean;
  const double share = 1 / static_cast<double>(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const TaskTime& total = stages[s].total;
    const double computing = total.forward + total.recompute + total.backward;
    mean.computing += share * computing;
    mean.forward += share * total.forward;
    mean.recompute += share * total.recompute;
    mean.moving += share * (total.seconds - computing);
    mean.link += share * total.link;
  }
  return mean;
}

/// Not followed operation by operation:
/// - what ZeRO-2 and 3 stream delays one task as it does another, and a pipeline's first and last
///   ones as those in between;
/// - tasks that a schedule overlaps take turns in two steps, in the engine at every operation;
/// - what is reduced beside the last backwards of an interleaved pipeline delays its own stage, not
///   those that wait for it;
/// - copies of offloaded activations delay one forward as they do another;
/// - what moves for two purposes at once does not share a link.
bool is_rough(const Plan& plan, const Cluster& cluster) {
  using program::ScheduleKind;
  const program::ParallelConfig& p = plan.parallel;
  const int purposes = (p.tp > 1) + (p.cp > 1) + (p.ep * p.etp > 1) + (p.pp > 1) + (p.dp > 1);
  const bool shares_link = cluster.fabric.size() == 1 && purposes > 1;
  const bool reduces_between_chunks = plan.schedule == ScheduleKind::Interleaved && p.dp * p.cp > 1;
  return plan.zero_stage >= 2 || program::overlaps_tasks(plan.schedule) ||
         plan.offload_activations > 0 || reduces_between_chunks || shares_link;
}

}  // namespace

struct Estimator::State {
  explicit State(Cluster given) : cluster(std::move(given)), stages(cluster) {}

  StepPrediction estimate(const Plan& plan, const Wanted& wanted);
  MemoryNeed host_need(const Plan& plan, PlannedSchedule& planned, std::size_t s,
                       const Cluster& own) const;
  void add_memory(const Plan& plan, PlannedSchedule& planned, StepPrediction& estimate) const;
  double least_step_s(const Plan& plan, const PlannedSchedule& planned) const;
  void set_task(const Plan& plan);

  double agreement_seconds(const Plan& plan, PlanLayout& where) const;
  Reduction reduction_of(std::size_t stage);
  double slowdown(std::size_t stage, const Reduction& reduction) const;
  double stage_end(std::size_t stage, const Reduction& reduction) const;
  double hidden_squares(std::size_t stage, const Reduction& reduction) const;
  void delay_last_backwards();
  double gathers_in_first_task() const;
  bool one_thread() const { return waits; }

  Cluster cluster;
  bool waits = false;                // moves_only_in_waits() of the plan that is being priced
  int microbatches = 0;              // of that plan
  bool squares_in_runs = false;      // rather than of all gradients at once: see step_end.cpp
  std::optional<TrainingTask> task;  // that the memory below is of
  PlanKeys keys;                     // of the plan that is being priced
  KnownSchedules schedules;
  double flops = 0;        // of a step
  double expert_load = 0;  // elements

  // Results for the plan that is being priced; their memory is used again.
  NodeStages stages;
  SolverOutput solved;
  std::vector<double> reduced;
  GradientLane lane;
};

void Estimator::State::set_task(const Plan& plan) {
  task.reset();  // whatever happens below
  stages.set_task(plan);
  flops = program::model_flops_per_step(plan);
  expert_load = static_cast<double>(program::expert_load_elements(plan));
  task = {plan.model, plan.workload, plan.frozen};
}

/// When and how long the stage's gradients are reduced: those of one chunk whenever it is done.
Reduction Estimator::State::reduction_of(std::size_t stage) {
  if (!stages[stage].reduced_in_task.empty()) return {};
  const std::vector<double>& begin = solved.last_gradient_begin[stage];
  if (begin.size() == 1) return stages[stage].reduction.later_by(begin.front());
  return lane.play(*stages[stage].buckets, stages[stage].chunks, begin, microbatches == 1);
}

/// What moves beside computation takes its share of the device from it. Where the last gradients of
/// several chunks are reduced, the stage waits in between, as often as in the whole step.
double Estimator::State::slowdown(std::size_t stage, const Reduction& reduction) const {
  const double computed = solved.end[stage];
  const double exposed = std::max(0.0, reduction.end - computed);
  const double overlap = std::max(0.0, reduction.seconds - exposed);
  const bool chunks = stages[stage].chunks.size() > 1;
  const double since_ready = computed - stages.solver_input().stages[stage].ready;
  const double busy = chunks && since_ready > 0 ? solved.busy[stage] / since_ready : 1;
  return cluster.communication.device_share * overlap * std::min(1.0, busy);
}

/// When a stage's gradients are reduced over the replicas.
double Estimator::State::stage_end(std::size_t stage, const Reduction& reduction) const {
  const double computed = solved.end[stage];
  if (reduction.seconds <= 0) return computed;
  if (one_thread()) return computed + reduction.seconds;  // nothing moves while it computes
  return std::max(computed, reduction.end) + slowdown(stage, reduction);
}

/// Seconds by which the squares of gradients end earlier because those of all buckets but the last
/// are taken while later ones are reduced.
double Estimator::State::hidden_squares(std::size_t stage, const Reduction& reduction) const {
  const std::vector<Bucket>& buckets = stages[stage].buckets->all;
  const double exposed = reduction.seconds > 0 ? reduction.end - solved.end[stage] : 0;
  if (!squares_in_runs || one_thread() || exposed <= 0 || buckets.size() < 2) return 0;
  double elements = 0;
  for (const Bucket& bucket : buckets) elements += bucket.elements;
  const double others = 1 - buckets.back().elements / elements;
  const double hidden = std::min(exposed, others * stages[stage].square_seconds);
  return (1 - cluster.communication.device_share) * hidden;
}

/// The last backward of a 1F1B or GPipe runs beside the reduction of what it completes, and the
/// stage before waits for its gradient.
void Estimator::State::delay_last_backwards() {
  const SolverInput& input = stages.solver_input();
  double arrives = -kNever;  // what the stage behind sends
  for (std::size_t s = stages.size(); s-- > 0;) {
    const SolverChunk& chunk = input.stages[s].chunks.front();
    double& begin = solved.last_gradient_begin[s].front();
    if (chunk.has_backward) {
      const double later = std::max(0.0, arrives - chunk.prelude - begin);
      begin += later;
      solved.end[s] += later;
    }
    if (s == 0) return;
    arrives = solved.end[s] + slowdown(s, reduction_of(s)) + input.transfers[s - 1];
  }
}

/// One thread gathers layer by layer while it runs the first forward: of stages that wait for it,
/// all but the first gather come after their wait.
double Estimator::State::gathers_in_first_task() const {
  if (!one_thread()) return 0;
  double most = 0;
  for (std::size_t s = 1; s < stages.size(); ++s)
    most = std::max(most, stages[s].zero.gathers - stages[s].zero.first_gather);
  return most;
}

/// What all ranks agree on at the end of a step: loss and squared norm in fp64, with experts their
/// losses and load, too.
double Estimator::State::agreement_seconds(const Plan& plan, PlanLayout& where) const {
  const bool experts = plan.model.moe.has_value();
  PricedGroup& all = experts || plan.zero_stage > 0 ? where.world : where.replica;
  const auto sum = [&](double elements) {
    return all.seconds(program::Collective::AllReduce, elements * kFp32Bytes, cluster);
  };
  return sum(experts ? 8 : 4) + sum(expert_load);
}

MemoryNeed Estimator::State::host_need(const Plan& plan, PlannedSchedule& planned, std::size_t s,
                                       const Cluster& own) const {
  MemoryNeed need{.capacity_bytes = host_capacity_bytes(own), .of_host = true};
  if (plan.offload_activations == 0 && !plan.offload_optimizer) return need;
  const double activations =
      plan.offload_activations == 0
          ? 0
          : planned.compiled()
                .activations(static_cast<int>(s), stages[s].host_kept, plan.num_microbatches())
                .bytes;
  need.bytes = stage_host_bytes(plan, stages[s], activations, own);
  return need;
}

/// Memory of the stage that has the least room.
void Estimator::State::add_memory(const Plan& plan, PlannedSchedule& planned,
                                  StepPrediction& estimate) const {
  double least_room = std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    // The first of several stages alike keeps the most micro-batches in 1F1B and GPipe.
    if (stages.repeats(s) && has_waves(plan.schedule, plan.parallel.vpp)) continue;
    const StageActivations activations = planned.compiled().activations(
        static_cast<int>(s), stages[s].kept, plan.num_microbatches());
    const Cluster& smallest = stages.smallest_of(s);
    const MemoryNeed device{
        .bytes = stage_memory_bytes(plan, stages[s], activations, expert_load, smallest),
        .capacity_bytes = memory_capacity_bytes(smallest)};
    const MemoryNeed need = deciding(device, host_need(plan, planned, s, smallest));
    if (need.room_bytes() >= least_room) continue;
    least_room = need.room_bytes();
    estimate.peak_memory_bytes = need.bytes;
    estimate.capacity_bytes = need.capacity_bytes;
    estimate.of_host = need.of_host;
    estimate.kept_bytes = need.of_host ? 0 : activations.bytes;
    estimate.largest_stage = static_cast<int>(s);
  }
  const auto largest = static_cast<std::size_t>(estimate.largest_stage);
  const Cluster& smallest = stages.smallest_of(largest);
  estimate.state_bytes = estimate.of_host ? stage_host_bytes(plan, stages[largest], 0, smallest)
                                          : stage_state_bytes(plan, stages[largest], smallest);
}

/// No stage ends before it has done its work, which it begins when the first micro-batch arrives.
double Estimator::State::least_step_s(const Plan& plan, const PlannedSchedule& planned) const {
  constexpr double kRounding = 1e-9;
  const std::vector<double> ends =
      planned.least_ends(plan.num_microbatches(), stages.solver_input());
  double least = 0;
  for (std::size_t s = 0; s < stages.size(); ++s)
    least = std::max(least, ends[s] + stages[s].sums.norm_seconds);
  return (1 - kRounding) * with_step_effects(cluster, least);
}

StepPrediction Estimator::State::estimate(const Plan& plan, const Wanted& wanted) {
  if (plan.parallel.world_size() != cluster.num_ranks())
    throw ConfigError(fmt::format("the plan ({}) has {} ranks, but cluster '{}' has {}",
                                  to_string(plan.parallel), plan.parallel.world_size(),
                                  cluster.name, cluster.num_ranks()));
  if (!task || !task->is_of(plan)) set_task(plan);
  keys.set(plan);
  waits = moves_only_in_waits(plan, cluster);
  microbatches = plan.num_microbatches();
  squares_in_runs = plan.zero_stage > 0 || (plan.parallel.tp > 1 && !plan.parallel.sp);
  const int pp = plan.parallel.pp;
  const bool waves = solves_waves(plan, cluster);
  PlannedSchedule& planned = schedules.of(plan, keys, waves);
  const bool timed = wanted.step_time_s > 0;
  stages.make(plan, keys, planned.compiled(),
              timed         ? PricedPart::Step
              : wanted.busy ? PricedPart::Tasks
                            : PricedPart::Memory);
  StepPrediction estimate;
  add_memory(plan, planned, estimate);
  estimate.rough = is_rough(plan, cluster);
  if (timed || wanted.busy) estimate.busy = mean_busy(stages);
  estimate.at_least = !timed;
  if (!timed) return estimate;
  if (!waves) {
    estimate.step_time_s = least_step_s(plan, planned);
    estimate.at_least = estimate.step_time_s > wanted.step_time_s ||
                        (wanted.memory_reserve && !estimate.fits(*wanted.memory_reserve));
    if (estimate.at_least) return estimate;
  }

  planned.solve(plan, waves, stages.solver_input(), solved);
  if (waves && plan.parallel.pp > 1) delay_last_backwards();
  double synchronized = 0, issue = 0;
  reduced.resize(stages.size());
  const double first_gathers = gathers_in_first_task();
  std::size_t slowest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Reduction reduction = reduction_of(s);
    reduced[s] = stage_end(s, reduction) + first_gathers - hidden_squares(s, reduction);
    if (!stages[s].zero.tasks.empty()) reduced[s] += stages[s].zero.tasks.front().tail;
    synchronized = std::max(synchronized, reduced[s] + stages[s].sums.norm_seconds);
    issue = std::max(issue, stages[s].total.operations * stages.cluster_of(s).device.host_issue_us /
                                kMicroseconds);
    if (solved.busy[s] > solved.busy[slowest]) slowest = s;
  }
  const double norm = agreement_seconds(plan, stages.layout());
  const double period = std::max(synchronized + norm, one_thread() ? 0.0 : issue);
  estimate.step_time_s = with_step_effects(cluster, period);

  estimate.seconds = seconds_of(plan, stages[slowest], solved, slowest, reduced[slowest]);
  const double waited = period - estimate.seconds.total();
  estimate.seconds[pp > 1 ? Category::Bubble : Category::Other] = waited;
  estimate.seconds[Category::Other] += estimate.step_time_s - period;

  estimate.mfu = flops / (estimate.step_time_s * plan.parallel.world_size() *
                          peak_flop_per_s(cluster, plan.workload));
  return estimate;
}

/// Runs of other software: their work is not lowered, but walked through with that software's
/// habits.
struct Estimator::Other {
  Cluster data_sheet;
  std::shared_ptr<const Adjustment> adjustment = nullptr;
  Constants constants = constants_of(fitted_constants());
  std::optional<models::ModelSpec> model = {};  // of the plan before
  models::ModelGraph graph = {};                // of it

  StepPrediction estimate(const Plan& plan, const Wanted& wanted) {
    if (model != plan.model) {
      graph = models::build_graph(plan.model);
      model = plan.model;
    }
    const PreparedRun run(run_of(plan, data_sheet.name), graph, data_sheet);
    if (!adjustment) return step_of(run.predict(constants, wanted), plan, data_sheet);
    // A bound of the time is none once it is corrected.
    const RunPrediction prediction =
        run.predict(constants, Wanted{.memory_reserve = wanted.memory_reserve});
    return step_of(prediction.at_least ? prediction : predicted(run, adjustment.get()), plan,
                   data_sheet);
  }
};

Estimator::Estimator(Cluster cluster, std::string_view software,
                     std::shared_ptr<const Adjustment> adjustment) {
  if (software == kOwnSoftware) {
    state_ = std::make_unique<State>(std::move(cluster));
    return;
  }
  load_execution_profile(software);  // there is such software
  other_ = std::make_unique<Other>(
      Other{.data_sheet = data_sheet_of(cluster), .adjustment = std::move(adjustment)});
}
Estimator::~Estimator() = default;
Estimator::Estimator(Estimator&&) noexcept = default;
Estimator& Estimator::operator=(Estimator&&) noexcept = default;

StepPrediction Estimator::estimate(const Plan& plan, const Wanted& wanted) {
  return other_ ? other_->estimate(plan, wanted) : state_->estimate(plan, wanted);
}

}  // namespace meshplan::sim
