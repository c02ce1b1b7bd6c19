// A plan's stages on the nodes that they lie on, which may be of several types.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "estimator/pipeline_stages.hpp"
#include "estimator/plan_layout.hpp"

namespace meshplan::sim {

/// Prices every stage as nodes of each type would run it. A stage whose ranks are on several types
/// goes at the pace of the slowest: its ranks wait for each other within every micro-batch, or at
/// the end of the step. On nodes of one type, a stage whose groups lie otherwise in the fabric's
/// domains than another's is priced by itself.
class NodeStages {
 public:
  explicit NodeStages(const Cluster& cluster);

  /// Forgets everything: plans of another task follow.
  void set_task(const program::Plan& plan);

  /// @param part  of the stages that is to be priced at least
  void make(const program::Plan& plan, const PlanKeys& keys, const CompiledSchedule& schedule,
            PricedPart part);

  const SolverInput& solver_input() const {
    return chosen_.empty() ? types_.front()->stages.solver_input() : input_;
  }
  std::size_t size() const { return type_of(0).stages.size(); }
  const StageCost& operator[](std::size_t stage) const { return type_of(stage).stages[stage]; }
  /// Has a stage the chunks of the one before, on nodes of the same type?
  bool repeats(std::size_t stage) const {
    return type_of(stage).stages.repeats(stage) &&
           (chosen_.empty() || chosen_[stage] == chosen_[stage - 1]) &&
           (types_.size() == 1 || types_of_->at(stage) == types_of_->at(stage - 1));
  }
  /// As if all nodes were like the slowest of the stage.
  const Cluster& cluster_of(std::size_t stage) const { return type_of(stage).cluster; }
  /// As if they were like those of the stage that have the least memory.
  const Cluster& smallest_of(std::size_t stage) const;
  PlanLayout& layout() { return *layout_; }

 private:
  struct Type {
    explicit Type(Cluster given)
        : cluster(std::move(given)), table(cluster), stages(cluster, table) {}
    Cluster cluster;
    OperatorTable table;
    PipelineStages stages;
    std::unordered_map<CacheKey, PlanLayout, CacheKey::Hash> layouts;
  };

  const Type& type_of(std::size_t stage) const {
    return chosen_.empty() ? *types_.front() : *chosen_[stage];
  }
  PlanLayout& layout_of_type(Type& type, const program::Plan& plan, const PlanKeys& keys);
  void choose_slowest();
  void make_places(const program::Plan& plan, const PlanKeys& keys,
                   const CompiledSchedule& schedule, StageLayouts& layouts, PricedPart part);
  void merge_inputs();

  const Cluster& cluster_;
  std::vector<std::unique_ptr<Type>> types_;
  std::vector<std::unique_ptr<Type>> places_;  // of the only type, by how stages lie
  std::unordered_map<CacheKey, StageLayouts, CacheKey::Hash> known_places_;
  std::unordered_map<CacheKey, std::vector<std::vector<int>>, CacheKey::Hash> known_types_;
  const std::vector<std::vector<int>>* types_of_ = nullptr;  // of each stage; if there are several
  std::vector<const Type*> chosen_;  // what each stage is priced on; empty = all on the first type
  SolverInput input_;
  program::Plan task_;  // that set_task() was given
  PlanLayout* layout_ = nullptr;
};

}  // namespace meshplan::sim
