// A compute operation where it stands in a program, with the sizes of its operands: what its cost
// (compute_cost.cpp) and its signature (compute_signature.cpp) are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/attention_inputs.hpp"
#include "program/context/context.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::program {

/// Sizes of a product, (tokens, in) times (out, in); routed rows have one for each of some experts.
struct LinearSizes {
  std::int64_t tokens = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t experts = 1;
};

/// Symbols of a program as work is counted: for the rows that are expected on the busiest ep rank,
/// for which all others wait in the exchange. (Memory is for the most that may come.)
models::SymbolValues counted_sizes(const Program& program);
std::int64_t counted_elements(const Value& value, const models::SymbolValues& sizes);

/// An operand of a block's operation.
const Value& value_of(const Program& program, const OperationInstance& instance, ValueId id);

/// All that it refers to must outlive it.
struct ComputeOperation {
  const Program& program;
  const OperationInstance& instance;
  const Operation& operation;
  const ComputeOp& work = std::get<ComputeOp>(operation.work);
  const models::SymbolValues sizes = counted_sizes(program);

  /// A part of the forward pass, or the same once more.
  bool is_forward() const {
    return operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
  }
  const Value& value(ValueId id) const { return value_of(program, instance, id); }
  /// Of an operand, along an axis. A search asks for millions.
  std::int64_t size(ValueId id, std::size_t axis) const;
  std::int64_t elements(ValueId id) const { return counted_elements(value(id), sizes); }

  /// For Linear, ScaledLinear and GroupedLinear.
  LinearSizes linear_sizes() const;
  /// For an Attention, forward or its input gradient.
  AttentionInputs attention_inputs() const;
  /// What rank 0 computes of an Attention without packed documents, for one sequence. The zig-zag
  /// split gives every rank as many pairs.
  std::vector<AttentionTile> attention_tiles() const;
  /// For an Attention. @see program::stores_score_gradient
  bool stores_score_gradient() const;
  /// Pairs of a query and a key that it sees, in one sequence, for an Attention on packed documents
  /// that are as long as the workload expects.
  double document_pairs() const;
};

/// See operation_cost() and add_signature().
OperationCost compute_cost(const ComputeOperation& op);
double score_gradient_bytes(const ComputeOperation& op);
/// First words of the signatures of compute operations, up to the phase: "linear", "rope", ...
std::vector<std::string> compute_kinds();
void add_compute_signature(std::string& text, const ComputeOperation& op);

}  // namespace meshplan::program
