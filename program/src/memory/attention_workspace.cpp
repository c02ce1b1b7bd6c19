#include "memory/attention_workspace.hpp"

#include <algorithm>
#include <optional>

#include "core/index.hpp"
#include "program/attention_inputs.hpp"
#include "program/context/context.hpp"

namespace meshplan::program {
namespace {

constexpr std::int64_t kTile = 128;  // the largest that queries and keys are filled up to
constexpr std::int64_t kFew = 4096;  // alignment, and the 128 to 384 bytes that kernels ask for

constexpr std::int64_t in_tiles(std::int64_t length) {
  return (length + kTile - 1) / kTile * kTile;
}

/// One fp32 number for each query of each head: row sums of do * o.
std::int64_t row_sum_bytes(const AttentionSizes& s) {
  return size_of(DType::F32) * s.sequences * s.heads * s.queries;
}

/// What cuDNN's graph takes of an attention; cudnn_attention_graph.cpp of kernels/cuda says why.
bool is_for_cudnn(const Plan& plan, const ComputeOp& op) {
  const models::OpAttributes& a = op.attributes;
  return plan.attention != AttentionKernels::Own && plan.workload.precision != DType::F32 &&
         a.head_size % 8 == 0 && a.head_size <= 128 && a.value_head_size == a.head_size &&
         a.softcap == 0 && !op.documents;
}

/// Sizes of the call on the rank with the longest tile.
AttentionSizes sizes_of(const Program& program, const Block& block, const Operation& operation) {
  const auto& op = std::get<ComputeOp>(operation.work);
  const ParallelConfig& parallel = program.plan.parallel;
  const Value& output_grad = block.values[at(operation.inputs.at(0))];
  const std::int64_t length = local_shape(program, output_grad)[0] / program.sizes.sequences;
  AttentionSizes sizes{.sequences = program.sizes.sequences,
                       .queries = length,
                       .keys = length,
                       .heads = op.attributes.heads,
                       .kv_heads = op.attributes.kv_heads,
                       .head_size = op.attributes.head_size};
  if (op.ring_step) {
    const AttentionTile tile =
        ring_tile(program.plan.workload.seq_len, parallel.cp, 0, *op.ring_step);
    sizes.sequences = 1;
    sizes.queries = tile.num_queries;
    sizes.keys = tile.num_keys;
  } else if (attention_inputs(block.values, operation).keys_values) {
    sizes.sequences = 1;
    sizes.queries = length / 2;  // a chunk of the two that a rank holds
    sizes.keys = program.plan.workload.seq_len;
  }
  return sizes;
}

/// The first of the parts that sequences, and then groups of heads, are halved to, which needs no
/// more than `most`; the smallest if none does. As kernels/cuda/src/attention does it.
std::int64_t part_workspace_bytes(AttentionSizes part, bool deterministic, std::int64_t most) {
  const int group = part.heads / part.kv_heads;
  while (true) {
    const std::int64_t bytes = cudnn_workspace_bytes(part, deterministic);
    if (bytes <= most || part.sequences * part.kv_heads == 1) return bytes;
    if (part.sequences > 1) {
      part.sequences = (part.sequences + 1) / 2;
    } else {
      part.kv_heads = (part.kv_heads + 1) / 2;
      part.heads = part.kv_heads * group;
    }
  }
}

/// Of a backward pass, what cuDNN needs at once; absent where our own kernel runs.
std::optional<std::int64_t> workspace_of_cudnn(const Plan& plan, const ComputeOp& op,
                                               const AttentionSizes& sizes) {
  if (!is_for_cudnn(plan, op)) return std::nullopt;
  const std::int64_t most = plan.attention_workspace_bytes;
  const std::int64_t bytes = part_workspace_bytes(sizes, plan.deterministic, most);
  const bool allowed = plan.attention == AttentionKernels::Cudnn || bytes <= most;
  return allowed ? std::optional(bytes) : std::nullopt;
}

std::int64_t workspace_bytes(const Program& program, const Block& block,
                             const Operation& operation) {
  const AttentionSizes sizes = sizes_of(program, block, operation);
  const auto& op = std::get<ComputeOp>(operation.work);
  return std::max(row_sum_bytes(sizes), workspace_of_cudnn(program.plan, op, sizes).value_or(0));
}

const ComputeOp* attention_of(const Operation& operation) {
  const auto* op = std::get_if<ComputeOp>(&operation.work);
  return op != nullptr && op->kind == ComputeKind::Attention ? op : nullptr;
}

}  // namespace

std::int64_t cudnn_workspace_bytes(const AttentionSizes& s, bool deterministic) {
  const std::int64_t heads = s.sequences * s.heads;
  const std::int64_t queries = in_tiles(s.queries);
  const std::int64_t keys = in_tiles(s.keys);
  std::int64_t bytes = 2 * row_sum_bytes(s) + kFew;  // and statistics, if they must be moved
  bytes += deterministic ? size_of(DType::BF16) * heads * queries * keys
                         : 2 * size_of(DType::F32) * heads * queries * s.head_size;
  if (s.heads != s.kv_heads) bytes += 2 * size_of(DType::BF16) * heads * keys * s.head_size;
  return bytes;
}

bool stores_score_gradient(const Program& program, const Block& block, const Operation& operation) {
  const ComputeOp* op = attention_of(operation);
  return op != nullptr && operation.phase == Phase::InputGrad && program.plan.deterministic &&
         workspace_of_cudnn(program.plan, *op, sizes_of(program, block, operation));
}

std::int64_t attention_workspace_bytes(const Program& program) {
  std::int64_t most = 0;
  for (const Block& block : program.blocks) {
    for (const Operation& operation : block.forward)
      if (const ComputeOp* op = attention_of(operation); op && is_for_cudnn(program.plan, *op))
        most = std::max(most, kFew);
    for (const Operation& operation : block.backward)
      if (attention_of(operation) && operation.phase == Phase::InputGrad)
        most = std::max(most, workspace_bytes(program, block, operation));
  }
  return most;
}

}  // namespace meshplan::program
