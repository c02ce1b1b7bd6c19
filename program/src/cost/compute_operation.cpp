#include "cost/compute_operation.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"
#include "memory/attention_workspace.hpp"

namespace meshplan::program {

namespace {

/// Sizes of a product (M, K) times (N, K) in FP8, whose operands were laid out for its phase.
LinearSizes scaled_linear_sizes(const ComputeOperation& op) {
  const Operation& operation = op.operation;
  const ValueId a = operation.inputs[0], b = operation.inputs[2];
  const std::int64_t rows = op.size(a, 0), columns = op.size(a, 1), others = op.size(b, 0);
  if (operation.phase == Phase::WeightGrad) return {.tokens = columns, .out = rows, .in = others};
  if (operation.phase == Phase::InputGrad) return {.tokens = rows, .out = columns, .in = others};
  return {.tokens = rows, .out = others, .in = columns};
}

}  // namespace

models::SymbolValues counted_sizes(const Program& program) {
  models::SymbolValues sizes = program.sizes;
  sizes.routed_tokens = std::min(sizes.routed_tokens, busiest_rows(program.plan));
  sizes.forwarded_tokens = std::min(sizes.forwarded_tokens, busiest_forwarded(program.plan));
  return sizes;
}

std::int64_t counted_elements(const Value& value, const models::SymbolValues& sizes) {
  std::int64_t elements = 1;
  for (const models::Dim& dim : value.shape) elements *= models::evaluate(dim, sizes);
  return elements;
}

const Value& value_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const LayerInstance& layer = layer_of(program, instance);
  const Block& block = program.blocks[at(layer.block)];
  return block.values[at(id)];
}

std::int64_t ComputeOperation::size(ValueId id, std::size_t axis) const {
  return models::evaluate(value(id).shape[axis], sizes);
}

LinearSizes ComputeOperation::linear_sizes() const {
  if (work.kind == ComputeKind::ScaledLinear) return scaled_linear_sizes(*this);
  // Forward and input gradient read (activation, weight); the weight gradient writes the weight's
  // shape.
  const ValueId weight =
      operation.phase == Phase::WeightGrad ? operation.outputs[0] : operation.inputs[1];
  if (work.kind == ComputeKind::GroupedLinear)
    return {.tokens = sizes.routed_tokens,
            .out = size(weight, 1),
            .in = size(weight, 2),
            .experts = size(weight, 0)};
  return {.tokens = size(operation.inputs[0], 0), .out = size(weight, 0), .in = size(weight, 1)};
}

std::vector<AttentionTile> ComputeOperation::attention_tiles() const {
  const std::int64_t seq_len = program.plan.workload.seq_len;
  const int cp = program.plan.parallel.cp;
  if (work.ring_step) return {ring_tile(seq_len, cp, 0, *work.ring_step)};
  if (attention_inputs().keys_values) return gathered_tiles(seq_len, cp, 0);
  const std::int64_t length = size(operation.inputs[0], 0) / program.sizes.sequences;
  return {{.num_queries = length, .num_keys = length, .causal = work.attributes.causal}};
}

AttentionInputs ComputeOperation::attention_inputs() const {
  const LayerInstance& layer = layer_of(program, instance);
  const Block& block = program.blocks[at(layer.block)];
  return program::attention_inputs(block.values, operation);
}

bool ComputeOperation::stores_score_gradient() const {
  const Block& block = program.blocks[at(layer_of(program, instance).block)];
  return program::stores_score_gradient(program, block, operation);
}

double ComputeOperation::document_pairs() const {
  const auto found = std::ranges::find_if(program.document_pairs, [&](const DocumentPairs& entry) {
    return entry.ring_step == work.ring_step.value_or(0) && entry.window == work.attributes.window;
  });
  require_invariant(found != program.document_pairs.end(), "attention of unexpected documents");
  return found->pairs;
}

}  // namespace meshplan::program
