#include "cost/nominal_time.hpp"

#include <algorithm>
#include <utility>

#include "memory/stage_memory.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::program {
namespace {

constexpr double kFlopsPerSecond = 500e12;
constexpr double kMemoryBytesPerSecond = 2.5e12;
constexpr double kNearBytesPerSecond = 350e9;
constexpr double kFarBytesPerSecond = 45e9;
constexpr double kShortestKernel = 3e-6;
constexpr double kShortestCollective = 10e-6;

/// Do the ranks of the group lie beside each other, as far as a plan can tell?
bool is_near(Group group) {
  return group == Group::Tp || group == Group::EpWithin || group == Group::Etp;
}

double nominal_seconds(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  const OperationCost cost = operation_cost(program, instance);
  const auto bytes = static_cast<double>(cost.bytes);
  if (operation.lane == Lane::Compute)
    return std::max({kShortestKernel, cost.flops / kFlopsPerSecond, bytes / kMemoryBytesPerSecond});
  const CollectiveOp* collective = collective_of(operation);
  const bool near = collective != nullptr && is_near(collective->group);
  return kShortestCollective + bytes / (near ? kNearBytesPerSecond : kFarBytesPerSecond);
}

}  // namespace

NominalTimes::NominalTimes(const Plan& plan, std::vector<Block> blocks) {
  program_.plan = plan;
  program_.plan.micro_batch_size = 1;
  set_sizes(program_);
  program_.blocks = std::move(blocks);
  for (int block = 0; block < static_cast<int>(program_.blocks.size()); ++block)
    program_.layers.push_back({.block = block});
}

double NominalTimes::seconds(const OperationRef& operation) {
  const auto [known, fresh] =
      known_.try_emplace({*operation.block, operation.backward, operation.index});
  if (fresh)
    known->second = nominal_seconds(program_, {.operation = operation, .layer = *operation.block});
  return known->second;
}

}  // namespace meshplan::program
