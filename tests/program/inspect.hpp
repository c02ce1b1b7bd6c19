// Questions that the tests of lowering ask a program.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::program::test {

inline const Block& block_named(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.blocks, name, &Block::name);
  require_invariant(found != program.blocks.end(), "no such block");
  return *found;
}

inline const Parameter& parameter_named(const Program& program, std::string_view name) {
  const auto found = std::ranges::find(program.parameters, name, &Parameter::name);
  require_invariant(found != program.parameters.end(), "no such parameter");
  return *found;
}

inline bool has_parameter(const Program& program, std::string_view name) {
  return std::ranges::find(program.parameters, name, &Parameter::name) != program.parameters.end();
}

inline std::vector<std::string> names_of(const std::vector<Operation>& operations) {
  std::vector<std::string> names;
  for (const Operation& operation : operations) names.push_back(operation.name);
  return names;
}

inline bool has_operation(const std::vector<Operation>& operations, std::string_view name) {
  return std::ranges::find(operations, name, &Operation::name) != operations.end();
}

/// That the operations of all layers move in a step, as they are counted.
inline double bytes_of_layers(const Program& program) {
  double total = 0;
  for (const OperationInstance& instance : program.instances)
    if (std::holds_alternative<ComputeOp>(operation_of(program, instance).work))
      total += static_cast<double>(operation_cost(program, instance).bytes);
  return total;
}

/// "all_gather 512": each tensor-parallel collective with the elements that one rank passes in.
inline std::vector<std::string> tp_collectives(const Program& program,
                                               const std::vector<Operation>& operations) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather"};
  std::vector<std::string> found;
  for (const Operation& operation : operations)
    if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
      found.push_back(std::string(kNames[static_cast<int>(collective->collective)]) + " " +
                      std::to_string(models::evaluate(collective->elements, program.sizes)));
  return found;
}

inline std::int64_t region_bytes(const Program& program, Region region) {
  return program.memory.regions[static_cast<std::size_t>(region)].bytes();
}

/// Indexes of the instances of step operations whose name begins so.
inline std::vector<std::size_t> instances_named(const Program& program, std::string_view prefix) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < program.instances.size(); ++i)
    if (operation_of(program, program.instances[i]).name.starts_with(prefix)) found.push_back(i);
  return found;
}

}  // namespace meshplan::program::test
