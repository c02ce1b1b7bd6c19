// Operations of the step that belong to no layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "program/program.hpp"

namespace meshplan::program {

/// Adds an operation that belongs to no block, and its only instance.
void append_step_operation(Program& program, Operation operation);

/// Stable over lowerings of the same plan; fits the 53 bits that every JSON reader keeps.
std::uint64_t instance_id(std::optional<int> task, std::optional<int> layer, std::string_view name);

/// A sum over `group` of a flat range, in place. @param bucket  FlatCollectiveOp::bucket
Operation flat_all_reduce(std::string name, Lane lane, Group group, Region region, FlatRange range,
                          std::optional<int> bucket);

}  // namespace meshplan::program
