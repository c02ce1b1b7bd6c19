#include "engine/compute_classes.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

namespace meshplan::sim {

ComputeClass compute_class(const program::Operation& operation) {
  const auto* compute = std::get_if<program::ComputeOp>(&operation.work);
  if (compute == nullptr) return ComputeClass::Streams;
  switch (compute->kind) {
    case program::ComputeKind::Linear:
    case program::ComputeKind::ScaledLinear:
    case program::ComputeKind::GroupedLinear:
      return ComputeClass::Products;
    case program::ComputeKind::Attention:
      return ComputeClass::Attention;
    default:
      return ComputeClass::Streams;
  }
}

std::vector<double> times_run(const program::Program& program) {
  using Visits = std::tuple<int, program::TaskKind, bool>;  // to a layer, in the backward pass
  const auto visits_of = [&](const program::OperationInstance& instance) {
    return Visits{*instance.layer, program.tasks[static_cast<std::size_t>(*instance.task)].kind,
                  instance.operation.backward};
  };
  std::map<Visits, int> visits, last_task;
  // By operation: those that write gradients, once a step, and those that add to them cost more.
  std::map<std::tuple<Visits, int, bool>, int> listed;
  const auto num_listed = [&](const program::OperationInstance& instance, bool accumulate) -> int& {
    return listed[{visits_of(instance), instance.operation.index, accumulate}];
  };
  int microbatches = 0;
  for (const program::OperationInstance& instance : program.instances) {
    if (instance.microbatch) microbatches = std::max(microbatches, *instance.microbatch + 1);
    if (!instance.layer) continue;
    int& last = last_task.try_emplace(visits_of(instance), -1).first->second;
    if (std::exchange(last, *instance.task) != *instance.task) ++visits[visits_of(instance)];
    if (!instance.operation.pass) ++num_listed(instance, instance.accumulate);
  }
  const double of_each =
      microbatches > 0 ? double(program.plan.num_microbatches()) / microbatches : 1;
  std::vector<double> times(program.instances.size(), 1);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const program::OperationInstance& instance = program.instances[i];
    if (!instance.microbatch || program::operation_of(program, instance).once_per_step) continue;
    times[i] = instance.operation.pass ? 0 : of_each;
    if (!instance.layer || instance.operation.pass) continue;
    const double all = of_each * visits[visits_of(instance)];
    const int first = num_listed(instance, false), others = num_listed(instance, true);
    if (first == 0 || others == 0)
      times[i] = all / (first + others);
    else
      times[i] = instance.accumulate ? (all - first) / others : 1;
  }
  return times;
}

}  // namespace meshplan::sim
