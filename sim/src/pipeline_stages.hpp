#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "compiled_schedule.hpp"
#include "stage_costs.hpp"

namespace meshplan::sim {

/// The stages of the plan that is being priced. Those with the same chunks are priced once, and a
/// plan that differs from the one before in its schedule alone finds them as that left them.
class PipelineStages {
 public:
  /// @param cluster, table  must outlive it
  PipelineStages(const Cluster& cluster, const OperatorTable& table)
      : cluster_(cluster), table_(table), costs_(cluster, table) {}

  /// Forgets everything: another model follows, or other frozen parameters.
  void set_model(const program::Plan& plan);

  void make(const program::Plan& plan, const CompiledSchedule& schedule, PlanLayout& where);

  std::size_t size() const { return kind_.size(); }
  const StageCost& operator[](std::size_t stage) const { return current_->stages[kind_[stage]]; }
  /// Has a stage the chunks of the one before?
  bool repeats(std::size_t stage) const { return stage > 0 && kind_[stage] == kind_[stage - 1]; }

 private:
  /// Stages with different chunks.
  struct Known {
    std::array<std::int64_t, 9> plan{};  // what else they depend on
    std::vector<StageCost> stages;       // the first `count`
    std::size_t count = 0;
  };

  void list_chunks(const program::Plan& plan, const CompiledSchedule& schedule,
                   const PlanLayout& where);
  const ChunkCost* at_end_of_v(const ChunkCost& chunk, bool first);

  const Cluster& cluster_;
  const OperatorTable& table_;
  ChunkCosts costs_;
  std::vector<std::vector<const ChunkCost*>> chunks_;  // by stage
  std::deque<ChunkCost> adjusted_;                     // ends of a V
  std::vector<int> first_layer_;                       // of each virtual stage
  std::array<Known, 4> filled_;                        // by ZeRO stage
  Known* current_ = &filled_.front();                  // of this plan
  std::vector<std::size_t> kind_;                      // of each stage, into `current_`
};

}  // namespace meshplan::sim
