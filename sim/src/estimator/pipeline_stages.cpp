#include "estimator/pipeline_stages.hpp"

#include <algorithm>
#include <utility>

#include "core/index.hpp"
#include "core/units.hpp"
#include "schedules/host_thread.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;

/// Bytes of the activations that a stage sends to the next one.
std::int64_t boundary_bytes(const Plan& plan) {
  const std::int64_t parts = plan.parallel.sp ? plan.parallel.tp : 1;
  return plan.tokens_per_microbatch() / parts * plan.model.hidden_size *
         size_of(plan.workload.precision);
}

/// @param streamed  with what ZeRO-2 and 3 make of its tasks; may be null
SolverChunk solver_chunk(const ChunkCost& chunk, const StreamedTasks* streamed) {
  const TaskTimes& tasks = chunk.tasks;
  SolverChunk result{.forward = tasks.forward.seconds,
                     .backward_first = tasks.backward_first.seconds,
                     .backward = tasks.backward.seconds,
                     .input = tasks.input.seconds,
                     .weight_first = tasks.weight_first.seconds,
                     .weight = tasks.weight.seconds,
                     .overlap_saves = tasks.overlap_saves,
                     .prelude = chunk.prelude,
                     .has_backward = chunk.has_backward};
  if (!streamed) return result;
  result.forward = streamed->forward;
  result.backward_first = result.backward = streamed->backward;
  return result;
}

}  // namespace

void PipelineStages::set_task(const Plan& plan) {
  costs_.set_task(plan);
  forget_last();
}

void PipelineStages::forget_last() {
  for (Pipeline& pipeline : last_) pipeline.key = {};
}

/// In a V one rank holds both ends, and one copy of a tied embedding, reduced with the layers.
const ChunkCost* PipelineStages::at_end_of_v(const ChunkCost& chunk, bool first) {
  if (chunk.tied_elements + chunk.frozen_tied_elements <= 0) return &chunk;
  ChunkCost& cost = current_->adjusted.emplace_back(chunk);
  if (!first) cost.sums.frozen_elements -= cost.frozen_tied_elements;
  if (cost.tied_elements <= 0) return &cost;
  if (first) {
    ReadyGradients tied = cost.ready.empty() ? ReadyGradients{} : cost.ready.back();
    tied.seconds = std::max(tied.seconds, cost.tasks.backward.seconds);
    tied.seconds_of_single = std::max(tied.seconds_of_single, cost.tasks.backward_first.seconds);
    tied.elements = cost.tied_elements;
    tied.needed = 0;
    tied.expert = false;
    cost.ready.push_back(tied);
    cost.gradient_shape = costs_.shape_of(cost.ready);
    cost.shared_elements += cost.tied_elements;
  } else {
    const double others = (cost.sums.elements - cost.tied_elements) / cost.sums.elements;
    cost.sums.update_seconds *= others;
    cost.sums.norm_seconds *= others;
    cost.sums.elements -= cost.tied_elements;
  }
  cost.tied_elements = 0;
  return &cost;
}

/// The chunks of every stage.
void PipelineStages::list_chunks(const Plan& plan, const PlanKeys& keys,
                                 const CompiledSchedule& schedule, const PlanLayout& where) {
  const int pp = plan.parallel.pp, vpp = plan.parallel.vpp;
  const program::RecomputedPart part = program::recomputed_part(plan.recompute);
  const bool recomputes = !part.empty();
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  const std::vector<int> recomputed =
      recomputes ? program::recomputed_layers_per_stage(plan) : std::vector<int>();
  ChunkCosts::Set& set = costs_.set_of(plan, keys, part, schedule.mix(), where.tasks);
  ChunkCosts::Set* plain = !recomputes || recomputed == layers
                               ? nullptr
                               : &costs_.set_of(plan, keys, {}, schedule.mix(), where.tasks);
  const bool is_v = schedule.schedule().placement == program::ChunkPlacement::V;
  current_->adjusted.clear();
  current_->chunks.resize(at(pp));
  first_layer_.assign(1, 0);
  for (const int count : layers) first_layer_.push_back(first_layer_.back() + count);
  for (int stage = 0; stage < pp; ++stage) {
    current_->chunks[at(stage)].clear();
    for (int chunk = 0; chunk < vpp; ++chunk) {
      const int number = program::virtual_stage(schedule.schedule().placement, pp, {stage, chunk});
      const int own = layers[at(number)];
      const int plain_layers = recomputes ? own - recomputed[at(number)] : 0;
      const ChunkCost& cost = costs_.chunk_of(plan, set, plain,
                                              {.number = number,
                                               .first_layer = first_layer_[at(number)],
                                               .num_layers = own,
                                               .plain_layers = plain_layers});
      current_->chunks[at(stage)].push_back(is_v ? at_end_of_v(cost, number == 0) : &cost);
    }
  }
}

/// Stages with the same chunks share one entry.
void PipelineStages::price_different(const StagePricing& pricing,
                                     const CompiledSchedule& schedule) {
  const program::ParallelConfig& p = pricing.plan.parallel;
  const auto placement = schedule.schedule().placement;
  const int end = program::place_of(placement, p.pp, p.pp * p.vpp - 1).stage;
  const bool split = splits(schedule.mix());
  const auto& chunks = current_->chunks;
  const std::vector<double> from_zero = {0};
  const bool single = pricing.plan.num_microbatches() == 1;
  std::size_t num_different = 0;
  current_->kind.clear();
  for (int s = 0; s < p.pp; ++s) {
    const bool repeats = s > 0 && s != end && s - 1 != end && chunks[at(s)] == chunks[at(s - 1)];
    if (!repeats) {
      if (num_different == current_->stages.size()) current_->stages.emplace_back();
      StageCost& stage = current_->stages[num_different++];
      price_stage_cost(pricing, chunks[at(s)], s == end, split, stage);
      if (p.vpp == 1 && pricing.part >= PricedPart::Step)
        stage.reduction = lane_.play(*stage.buckets, stage.chunks, from_zero, single);
    }
    current_->kind.push_back(num_different - 1);
  }
}

/// What the solver of schedules sees of the stages.
void PipelineStages::fill_input(const Plan& plan, const PlanLayout& where) {
  SolverInput& input = current_->input;
  const bool one_thread = moves_only_in_waits(plan, cluster_);
  input.transfers.clear();
  input.wrap_transfer = 0;
  if (plan.parallel.pp > 1) {
    const std::int64_t message = boundary_bytes(plan);
    for (const GroupPlacement& placement : where.neighbours)
      input.transfers.push_back(price_transfer(message, placement, cluster_).seconds);
    input.wrap_transfer = price_transfer(message, where.ends, cluster_).seconds;
  }
  input.receiver_copies = one_thread;
  if (cluster_.oversubscribed())
    input.wake = cluster_.communication.oversubscription_wake_us / kMicroseconds;
  if (cluster_.device.kind == DeviceKind::Cpu) input.host_cores = cluster_.cores_per_host;
  input.stages.resize(size());
  for (std::size_t s = 0; s < size(); ++s) {
    const StageCost& from = (*this)[s];
    SolverStage& to = input.stages[s];
    const double gathers = one_thread ? from.zero.gathers : from.zero.gather_delay;
    to.ready = from.load_seconds + from.sums.update_seconds + from.sums.once_seconds + gathers;
    to.host = where.host[s];
    to.cores = where.cores[s] * from.core_share;
    to.chunks.resize(from.chunks.size());
    for (std::size_t c = 0; c < from.chunks.size(); ++c) {
      to.chunks[c] =
          solver_chunk(*from.chunks[c], from.zero.tasks.empty() ? nullptr : &from.zero.tasks[c]);
      if (!from.reduced_in_task.empty()) to.chunks[c].reduction = from.reduced_in_task[c];
    }
  }
}

void PipelineStages::make(const Plan& plan, const PlanKeys& keys, const CompiledSchedule& schedule,
                          PlanLayout& where, PricedPart part) {
  current_ = &last_[at(plan.zero_stage)];
  // Forwards and backwards take turns or not: units stay gathered between them.
  const bool streams = plan.zero_stage >= 2;
  key_.set(keys.layout, keys.blocks, keys.expert_blocks, keys.division, keys.reduction,
           schedule.mix(), schedule.schedule().placement,
           streams ? std::optional(plan.schedule) : std::nullopt);
  if (key_ == current_->key && current_->part >= part) return;
  current_->key = {};  // whatever happens below
  if (costs_.is_full()) {
    costs_.forget();
    forget_last();  // which refers to chunks
  }
  list_chunks(plan, keys, schedule, where);
  price_different({plan, keys, where, cluster_, table_, part}, schedule);
  if (part >= PricedPart::Step) fill_input(plan, where);
  current_->part = part;
  std::swap(current_->key, key_);
}

}  // namespace meshplan::sim
