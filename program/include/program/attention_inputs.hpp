#pragma once

#include <optional>
#include <vector>

#include "program/program.hpp"

namespace meshplan::program {

/// What an Attention reads besides its queries, in the forward pass or of an input gradient
/// (docs/lowering.md#operands): each of them tells by where it lies what it is.
struct AttentionInputs {
  std::optional<ValueId> keys_values;  // apart from the queries: gathered, or of a step of a ring
  std::optional<ValueId> sinks;        // forward only
  std::optional<ValueId> key_ranges;   // of packed documents
};
AttentionInputs attention_inputs(const std::vector<Value>& values, const Operation& attention);

}  // namespace meshplan::program
