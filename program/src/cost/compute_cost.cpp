// FLOPs and bytes of compute operations.
#include <algorithm>

#include "cost/compute_operation.hpp"

namespace meshplan::program {
namespace {

constexpr double kForwardAttentionProducts = 2;   // q k^T, p v
constexpr double kBackwardAttentionProducts = 5;  // q k^T again, do v^T, p^T do, ds k, ds^T q

/// Pairs of a query and a key that it sees: of queries at positions offset, offset + 1, ..., each
/// of which sees the keys up to its own position, but at most `window` of them.
double causal_pairs(double queries, double offset, double window) {
  const double growing = std::clamp(window - offset, 0.0, queries);  // see all keys before them
  return growing * (offset + (growing + 1) / 2) + (queries - growing) * window;
}

/// Pairs of a query head of a sequence in a tile.
double tile_pairs(const ComputeOperation& op, const AttentionTile& tile) {
  const auto queries = static_cast<double>(tile.num_queries);
  const auto keys = static_cast<double>(tile.num_keys);
  const double window = op.work.attributes.window > 0 ? op.work.attributes.window : keys;
  return tile.causal ? causal_pairs(queries, static_cast<double>(tile.query_offset), window)
                     : queries * keys;
}

/// Score entries that attention computes per query head.
double attended_pairs(const ComputeOperation& op) {
  const auto sequences = static_cast<double>(op.program.sizes.sequences);
  if (op.work.documents) return op.document_pairs() * sequences;
  double pairs = 0;
  for (const AttentionTile& tile : op.attention_tiles()) pairs += tile_pairs(op, tile);
  return pairs * sequences;
}

double attention_flops(const ComputeOperation& op, double pairs) {
  const models::OpAttributes& a = op.work.attributes;
  const double products = op.is_forward() ? kForwardAttentionProducts : kBackwardAttentionProducts;
  // q k^T; q k^T again, ds k and ds^T q are on query and key heads, the others on value heads.
  const double on_keys = op.is_forward() ? 1 : 3;
  return 2.0 * pairs * a.heads * (on_keys * a.head_size + (products - on_keys) * a.value_head_size);
}

/// Pairs of a query and a key that an indexer scores, or of these that it chose. A document of
/// fewer tokens than are chosen is counted as if it had as many.
double indexed_pairs(const ComputeOperation& op, bool chosen) {
  const auto sequences = static_cast<double>(op.program.sizes.sequences);
  const auto tokens = static_cast<double>(op.program.sizes.tokens);
  const double length = tokens / sequences;
  const double keys = chosen ? std::min(length, double(op.work.attributes.selected_keys)) : length;
  if (!chosen && op.work.documents) return op.document_pairs() * sequences;
  return sequences * (op.work.attributes.causal ? causal_pairs(length, 0, keys) : length * keys);
}

/// q k^T of all index heads; in the backward pass again, and the gradients of q, k and weights
/// (kernels/attention/indexer.hpp).
double indexer_flops(const ComputeOperation& op) {
  const models::OpAttributes& a = op.work.attributes;
  const double products = op.is_forward() ? 1 : 4;
  const bool chosen = op.work.kind == ComputeKind::IndexerLoss;
  return 2.0 * products * indexed_pairs(op, chosen) * a.heads * a.head_size;
}

/// In chunks, with K and V elements of a key and a value head: within a chunk each token meets half
/// of the others, and all meet the state (Yang et al. 2024, Gated Delta Networks, section 3.3; Dao
/// & Gu 2024, section 6). As kernels/mixers count them.
double recurrence_flops(const ComputeOperation& op) {
  const models::OpAttributes& a = op.work.attributes;
  const auto tokens = static_cast<double>(op.program.sizes.tokens);
  const double heads = a.heads, groups = a.kv_heads, k = a.head_size, v = a.value_head_size;
  const double chunk = a.chunk;
  if (op.work.kind == ComputeKind::StateSpace)
    return op.is_forward() ? tokens * (heads * v * (chunk + 4 * k) + groups * chunk * k)
                           : tokens * (2 * heads * v * (chunk + 4 * k) + 3 * groups * chunk * k);
  return op.is_forward()
             ? 2 * tokens * (heads * (3 * k * v + chunk * v) + groups * chunk * k)
             : 2 * tokens * (heads * (7 * k * v + chunk * (2 * k + 2.5 * v)) + groups * chunk * k);
}

double flops(const ComputeOperation& op) {
  switch (op.work.kind) {
    case ComputeKind::Linear:
    case ComputeKind::ScaledLinear:
    case ComputeKind::GroupedLinear: {  // each row meets one expert
      const LinearSizes sizes = op.linear_sizes();
      return 2.0 * static_cast<double>(sizes.tokens) * static_cast<double>(sizes.out) *
             static_cast<double>(sizes.in);
    }
    case ComputeKind::Router: {  // its linear layer; two products in the backward pass
      const auto pairs = static_cast<double>(op.elements(op.operation.inputs[0]));
      return op.is_forward() ? 2.0 * pairs * op.work.attributes.num_experts
                             : 2.0 * pairs * op.program.plan.model.hidden_size;
    }
    case ComputeKind::LinearAttention:
    case ComputeKind::StateSpace:
      return recurrence_flops(op);
    case ComputeKind::Attention:  // the gradient of its sinks is memory-bound
      return op.operation.phase == Phase::WeightGrad ? 0.0
                                                     : attention_flops(op, attended_pairs(op));
    case ComputeKind::SparseAttention:
      return attention_flops(op, indexed_pairs(op, true));
    case ComputeKind::SelectKeys:
    case ComputeKind::IndexerLoss:
      return indexer_flops(op);
    default:
      return 0.0;  // memory-bound: counted by bytes
  }
}

/// What a rotation passes over: its part of the query and key heads, nothing else of their rows.
std::int64_t rotated_elements(const ComputeOperation& op, ValueId id) {
  const models::OpAttributes& a = op.work.attributes;
  return op.size(id, 0) * (a.heads + a.kv_heads) * a.rope_size;
}

std::int64_t operand_bytes(const ComputeOperation& op, ValueId id) {
  const Value& value = op.value(id);
  if (op.work.kind == ComputeKind::Rope && value.storage != Storage::BatchPositions)
    return std::min(op.elements(id), rotated_elements(op, id)) * size_of(value.dtype);
  // A pool reads one row per sequence.
  if (op.work.kind == ComputeKind::Pool && op.is_forward())
    return op.elements(op.operation.outputs.front()) * size_of(value.dtype);
  // A bias that is a table (of token types) gives one row.
  if (op.work.kind == ComputeKind::BiasAdd && value.storage == Storage::Parameter)
    return value.shape.back().count * size_of(value.dtype);
  // An embedding touches one row per token, not the whole table.
  const bool table = op.work.kind == ComputeKind::Embedding &&
                     (value.storage == Storage::Parameter || value.storage == Storage::Gradient);
  const std::int64_t elements =
      table ? op.program.sizes.tokens * op.program.plan.model.hidden_size : op.elements(id);
  return elements * size_of(value.dtype);
}

/// Each operand once.
std::int64_t bytes(const ComputeOperation& op) {
  const Operation& operation = op.operation;
  std::int64_t total = 0;
  for (const ValueId id : operation.inputs) total += operand_bytes(op, id);
  if (op.work.kind == ComputeKind::Quantize && !op.work.cast->largest)  // once to find it
    total += operand_bytes(op, operation.inputs.front());
  for (const ValueId id : operation.outputs) {
    const bool added_to = op.value(id).storage == Storage::Gradient && op.instance.accumulate;
    total += operand_bytes(op, id) * (added_to ? 2 : 1);  // read as well
  }
  return total;
}

}  // namespace

double score_gradient_bytes(const ComputeOperation& op) {
  if (op.work.kind != ComputeKind::Attention || !op.stores_score_gradient()) return 0;
  const double heads = static_cast<double>(op.program.sizes.sequences) * op.work.attributes.heads;
  const double window = op.work.attributes.window;
  double bytes = 0;
  for (const AttentionTile& tile : op.attention_tiles()) {
    const auto queries = static_cast<double>(tile.num_queries);
    const auto offset = static_cast<double>(tile.query_offset);
    const double behind = window > 0 ? queries - std::clamp(window - offset, 0.0, queries) : 0;
    const double edges = tile.causal ? 1 + behind / queries : 0;
    bytes += score_gradient_bytes(heads * tile_pairs(op, tile), heads * queries,
                                  static_cast<double>(tile.num_keys), edges);
  }
  return bytes;
}

OperationCost compute_cost(const ComputeOperation& op) {
  return {.flops = flops(op), .bytes = bytes(op)};
}

}  // namespace meshplan::program
