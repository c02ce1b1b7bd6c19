#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "estimator/stage_costs.hpp"
#include "schedules/compiled_schedule.hpp"

namespace meshplan::sim {

/// The stages of the plan that is being priced. Those with the same chunks are priced once, and a
/// plan that differs from one before in nothing that they depend on finds them as that left them.
class PipelineStages {
 public:
  /// @param cluster, table  must outlive it
  PipelineStages(const Cluster& cluster, const OperatorTable& table)
      : cluster_(cluster), table_(table), costs_(cluster, table) {}

  /// Forgets everything: plans of another task follow.
  void set_task(const program::Plan& plan);

  /// @param part  of the stages that is to be priced at least
  void make(const program::Plan& plan, const PlanKeys& keys, const CompiledSchedule& schedule,
            PlanLayout& where, PricedPart part);

  /// Of steps that are priced.
  const SolverInput& solver_input() const { return current_->input; }

  std::size_t size() const { return current_->kind.size(); }
  const StageCost& operator[](std::size_t stage) const {
    return current_->stages[current_->kind[stage]];
  }
  /// Has a stage the chunks of the one before?
  bool repeats(std::size_t stage) const {
    return stage > 0 && current_->kind[stage] == current_->kind[stage - 1];
  }

 private:
  /// The stages of a plan.
  struct Pipeline {
    CacheKey key;                                       // everything that they depend on
    PricedPart part = PricedPart::Step;                 // of them that is priced
    std::vector<std::vector<const ChunkCost*>> chunks;  // by stage
    std::deque<ChunkCost> adjusted;                     // copies of chunks, for the ends of a V
    std::vector<StageCost> stages;                      // different ones, the first of them
    std::vector<std::size_t> kind;                      // of each stage, into `stages`
    SolverInput input;
  };

  void list_chunks(const program::Plan& plan, const PlanKeys& keys,
                   const CompiledSchedule& schedule, const PlanLayout& where);
  void forget_last();
  const ChunkCost* at_end_of_v(const ChunkCost& chunk, bool first);
  void price_different(const StagePricing& pricing, const CompiledSchedule& schedule);
  void fill_input(const program::Plan& plan, const PlanLayout& where);

  const Cluster& cluster_;
  const OperatorTable& table_;
  ChunkCosts costs_;
  std::vector<int> first_layer_;        // of each virtual stage
  std::array<Pipeline, 4> last_;        // by ZeRO stage, between which a search alternates
  Pipeline* current_ = &last_.front();  // of this plan
  CacheKey key_;
  GradientLane lane_;
};

}  // namespace meshplan::sim
