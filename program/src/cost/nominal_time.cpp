#include "cost/nominal_time.hpp"

#include <algorithm>
#include <utility>

#include "cost/compute_operation.hpp"
#include "memory/stage_memory.hpp"

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

/// Bytes that a rank sends, or receives: of a gather and a scatter the whole.
double moved_bytes(const Program& program, const OperationInstance& instance,
                   const CollectiveOp& collective) {
  const models::SymbolValues sizes = counted_sizes(program);
  const Value& made = value_of(program, instance, operation_of(program, instance).outputs.front());
  const double whole = static_cast<double>(std::max(
      message_bytes(program, instance), counted_elements(made, sizes) * size_of(made.dtype)));
  return collective.collective == Collective::AllReduce ? 2 * whole : whole;
}

double nominal_seconds(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
    return kShortestCollective +
           moved_bytes(program, instance, *collective) /
               (is_near(collective->group) ? kNearBytesPerSecond : kFarBytesPerSecond);
  const OperationCost cost = operation_cost(program, instance);
  return std::max({kShortestKernel, cost.flops / kFlopsPerSecond,
                   static_cast<double>(cost.bytes) / kMemoryBytesPerSecond});
}

}  // namespace

NominalTimes::NominalTimes(const Program& of, std::vector<Block> blocks) {
  program_.plan = of.plan;
  program_.plan.micro_batch_size = 1;
  program_.sizes = sizes_of(program_.plan);
  program_.document_pairs = of.document_pairs;  // of a sequence
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
