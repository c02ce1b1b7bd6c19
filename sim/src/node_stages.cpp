#include "node_stages.hpp"

#include <algorithm>

#include "core/units.hpp"
#include "program/mesh.hpp"
#include "sim/memory.hpp"

namespace meshplan::sim {

NodeStages::NodeStages(const Cluster& cluster) : cluster_(cluster) {
  for (int type = 0; type < num_node_types(cluster); ++type)
    types_.push_back(std::make_unique<Type>(as_if_all(cluster, type)));
}

void NodeStages::set_task(const program::Plan& plan) {
  known_types_.clear();
  for (const auto& type : types_) {
    type->layouts.clear();
    type->stages.set_task(plan);
  }
}

PlanLayout& NodeStages::layout_of_type(Type& type, const program::Plan& plan,
                                       const PlanKeys& keys) {
  const auto found = type.layouts.find(keys.layout);
  if (found != type.layouts.end()) return found->second;
  return type.layouts.emplace(keys.layout, layout_of(plan, type.cluster)).first->second;
}

void NodeStages::make(const program::Plan& plan, const PlanKeys& keys,
                      const CompiledSchedule& schedule) {
  for (const auto& type : types_)
    type->stages.make(plan, keys, schedule, layout_of_type(*type, plan, keys));
  layout_ = &layout_of_type(*types_.front(), plan, keys);
  if (types_.size() == 1) return;
  const auto [entry, fresh] = known_types_.try_emplace(keys.layout);
  if (fresh) entry->second = node_types(cluster_, program::mesh_of(plan));
  types_of_ = &entry->second;
  choose_slowest();
}

void NodeStages::choose_slowest() {
  const auto seconds = [&](int type, std::size_t stage) {
    const StageCost& cost = types_[static_cast<std::size_t>(type)]->stages[stage];
    return cost.total.seconds + cost.update_seconds + cost.norm_seconds;
  };
  input_ = types_.front()->stages.solver_input();
  slowest_.clear();
  for (std::size_t stage = 0; stage < size(); ++stage) {
    const int slowest =
        std::ranges::max(types_of_->at(stage), {}, [&](int type) { return seconds(type, stage); });
    slowest_.push_back(static_cast<std::size_t>(slowest));
    input_.stages[stage] = type_of(stage).stages.solver_input().stages[stage];
  }
  for (const auto& type : types_) {
    input_.transfer = std::max(input_.transfer, type->stages.solver_input().transfer);
    input_.wrap_transfer =
        std::max(input_.wrap_transfer, type->stages.solver_input().wrap_transfer);
  }
}

const Cluster& NodeStages::smallest_of(std::size_t stage) const {
  if (types_.size() == 1) return types_.front()->cluster;
  const int smallest = std::ranges::min(types_of_->at(stage), {}, [&](int type) {
    const Cluster& cluster = types_[static_cast<std::size_t>(type)]->cluster;
    return memory_capacity_bytes(cluster) - cluster.device.runtime_base_mib * kMib;
  });
  return types_[static_cast<std::size_t>(smallest)]->cluster;
}

}  // namespace meshplan::sim
