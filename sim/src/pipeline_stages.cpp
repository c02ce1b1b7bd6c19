#include "pipeline_stages.hpp"

#include <bit>

namespace meshplan::sim {
namespace {

using program::Plan;
using program::RecomputeKind;

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

}  // namespace

void PipelineStages::set_model(const Plan& plan) {
  costs_.set_model(plan);
  for (Known& stages : filled_) stages.count = 0;
}

/// In a V one rank holds both ends, and one copy of a tied embedding, reduced with the layers.
const ChunkCost* PipelineStages::at_end_of_v(const ChunkCost& chunk, bool first) {
  if (chunk.tied_elements + chunk.frozen_tied_elements <= 0) return &chunk;
  ChunkCost& cost = adjusted_.emplace_back(chunk);
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
void PipelineStages::list_chunks(const Plan& plan, const CompiledSchedule& schedule,
                                 const PlanLayout& where) {
  const int pp = plan.parallel.pp, vpp = plan.parallel.vpp;
  const bool recomputes = plan.recompute.kind != RecomputeKind::None;
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  const std::vector<int> recomputed =
      recomputes ? program::recomputed_layers_per_stage(plan) : std::vector<int>();
  ChunkCosts::Set& set = costs_.set_of(plan, plan.recompute.kind, schedule.mix(), where.tasks);
  ChunkCosts::Set* plain =
      !recomputes || recomputed == layers
          ? nullptr
          : &costs_.set_of(plan, RecomputeKind::None, schedule.mix(), where.tasks);
  const bool is_v = schedule.schedule().placement == program::ChunkPlacement::V;
  adjusted_.clear();
  chunks_.resize(at(pp));
  first_layer_.assign(1, 0);
  for (const int count : layers) first_layer_.push_back(first_layer_.back() + count);
  for (int stage = 0; stage < pp; ++stage) {
    chunks_[at(stage)].clear();
    for (int chunk = 0; chunk < vpp; ++chunk) {
      const int number = program::virtual_stage(schedule.schedule().placement, pp, {stage, chunk});
      const int own = layers[at(number)];
      const int plain_layers = recomputes ? own - recomputed[at(number)] : 0;
      const ChunkCost& cost = costs_.chunk_of(plan, set, plain,
                                              {.number = number,
                                               .first_layer = first_layer_[at(number)],
                                               .num_layers = own,
                                               .plain_layers = plain_layers});
      chunks_[at(stage)].push_back(is_v ? at_end_of_v(cost, number == 0) : &cost);
    }
  }
}

void PipelineStages::make(const Plan& plan, const CompiledSchedule& schedule, PlanLayout& where) {
  list_chunks(plan, schedule, where);
  const int pp = plan.parallel.pp;
  const auto placement = schedule.schedule().placement;
  const program::ChunkPlace end = program::place_of(placement, pp, pp * plan.parallel.vpp - 1);
  current_ = &filled_[at(plan.zero_stage)];
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
  const bool split = schedule.mix() != TaskMix::Full;
  const StagePricing pricing{plan, where, cluster_, table_};
  // Chunks of a V are made anew for every plan, where others lay before.
  const bool keeps = placement == program::ChunkPlacement::Loop;
  const std::size_t known = keeps && same == current_->plan ? current_->count : 0;
  current_->count = 0;
  std::size_t num_distinct = 0;
  kind_.clear();
  for (int s = 0; s < pp; ++s) {
    const bool last = s == end.stage;
    const bool repeats =
        s > 0 && !last && s - 1 != end.stage && chunks_[at(s)] == chunks_[at(s - 1)];
    if (!repeats) {
      if (num_distinct == current_->stages.size()) current_->stages.emplace_back();
      StageCost& own = current_->stages[num_distinct];
      if (num_distinct >= known || own.last != last || own.chunks != chunks_[at(s)])
        price_stage_cost(pricing, chunks_[at(s)], last, split, own);
      ++num_distinct;
    }
    kind_.push_back(num_distinct - 1);
  }
  current_->plan = same;
  current_->count = keeps ? num_distinct : 0;
}

}  // namespace meshplan::sim
