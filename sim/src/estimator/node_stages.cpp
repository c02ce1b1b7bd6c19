#include "estimator/node_stages.hpp"

#include <algorithm>

#include "clusters/node_types.hpp"
#include "core/index.hpp"
#include "core/units.hpp"
#include "program/plan/mesh.hpp"
#include "sim/engine/memory.hpp"

namespace meshplan::sim {

NodeStages::NodeStages(const Cluster& cluster) : cluster_(cluster) {
  for (Cluster& uniform : by_node_type(cluster))
    types_.push_back(std::make_unique<Type>(std::move(uniform)));
}

void NodeStages::set_task(const program::Plan& plan) {
  known_types_.clear();
  known_places_.clear();
  for (const auto& type : types_) {
    type->layouts.clear();
    type->stages.set_task(plan);
  }
  for (const auto& place : places_) place->stages.set_task(plan);
  task_ = plan;
}

PlanLayout& NodeStages::layout_of_type(Type& type, const program::Plan& plan,
                                       const PlanKeys& keys) {
  const auto found = type.layouts.find(keys.layout);
  if (found != type.layouts.end()) return found->second;
  return type.layouts.emplace(keys.layout, layout_of(plan, type.cluster)).first->second;
}

void NodeStages::make(const program::Plan& plan, const PlanKeys& keys,
                      const CompiledSchedule& schedule, PricedPart part) {
  chosen_.clear();
  layout_ = &layout_of_type(*types_.front(), plan, keys);
  if (types_.size() == 1) {
    const auto [entry, fresh] = known_places_.try_emplace(keys.layout);
    if (fresh) entry->second = layouts_of_stages(plan, types_.front()->cluster);
    if (entry->second.different.empty())
      types_.front()->stages.make(plan, keys, schedule, *layout_, part);
    else
      make_places(plan, keys, schedule, entry->second, part);
    return;
  }
  // The slowest are told by all that they take.
  for (const auto& type : types_)
    type->stages.make(plan, keys, schedule, layout_of_type(*type, plan, keys), PricedPart::Step);
  const auto [entry, fresh] = known_types_.try_emplace(keys.layout);
  if (fresh) entry->second = node_types(cluster_, program::mesh_of(plan));
  types_of_ = &entry->second;
  choose_slowest();
}

void NodeStages::make_places(const program::Plan& plan, const PlanKeys& keys,
                             const CompiledSchedule& schedule, StageLayouts& layouts,
                             PricedPart part) {
  while (places_.size() < layouts.different.size()) {
    places_.push_back(std::make_unique<Type>(types_.front()->cluster));
    places_.back()->stages.set_task(task_);
  }
  for (std::size_t i = 0; i < layouts.different.size(); ++i)
    places_[i]->stages.make(plan, keys, schedule, layouts.different[i], part);
  for (const std::size_t place : layouts.of_stage) chosen_.push_back(places_[place].get());
  if (part >= PricedPart::Step) merge_inputs();
}

void NodeStages::choose_slowest() {
  const auto seconds = [&](int type, std::size_t stage) {
    const StageCost& cost = types_[at(type)]->stages[stage];
    return cost.total.seconds + cost.sums.update_seconds + cost.sums.norm_seconds;
  };
  for (std::size_t stage = 0; stage < types_.front()->stages.size(); ++stage) {
    const int slowest =
        std::ranges::max(types_of_->at(stage), {}, [&](int type) { return seconds(type, stage); });
    chosen_.push_back(types_[at(slowest)].get());
  }
  merge_inputs();
  for (const auto& type : types_) {
    const SolverInput& other = type->stages.solver_input();
    input_.wrap_transfer = std::max(input_.wrap_transfer, other.wrap_transfer);
    std::ranges::transform(input_.transfers, other.transfers, input_.transfers.begin(),
                           [](double a, double b) { return std::max(a, b); });
  }
}

void NodeStages::merge_inputs() {
  input_ = chosen_.front()->stages.solver_input();
  for (std::size_t stage = 0; stage < chosen_.size(); ++stage)
    input_.stages[stage] = chosen_[stage]->stages.solver_input().stages[stage];
}

const Cluster& NodeStages::smallest_of(std::size_t stage) const {
  if (types_.size() == 1) return types_.front()->cluster;
  const int smallest = std::ranges::min(types_of_->at(stage), {}, [&](int type) {
    const Cluster& cluster = types_[at(type)]->cluster;
    return memory_capacity_bytes(cluster) - cluster.device.runtime_base_mib * kMib;
  });
  return types_[at(smallest)]->cluster;
}

}  // namespace meshplan::sim
