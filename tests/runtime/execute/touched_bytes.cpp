#include "runtime/execute/touched_bytes.hpp"

#include "core/float8_rows.hpp"

namespace meshplan::test {

using namespace kernels;  // NOLINT: one overload for each of its operators

Touched touched(const LinearForward& op) {
  const auto [t, i, o] = op.shape;
  return Touched()
      .read_rows(op.x, t, i, op.x_stride, op.dtype)
      .read_rows(op.weight, o, i, op.weight_stride, op.dtype)
      .read(op.bias, o, op.dtype)
      .read_rows(op.residual, t, o, op.y_stride, op.dtype)
      .write_rows(op.pre_activation, t, o, op.pre_activation_stride, op.dtype)
      .write_rows(op.y, t, o, op.y_stride, op.dtype);
}
Touched touched(const LinearInputGrad& op) {
  const auto [t, i, o] = op.shape;
  return Touched()
      .read_rows(op.dy, t, o, op.dy_stride, op.dtype)
      .read_rows(op.weight, o, i, op.weight_stride, op.dtype)
      .read_rows(op.pre_activation, t, i, op.pre_activation_stride, op.dtype)
      .write_rows(op.dx, t, i, op.dx_stride, op.dtype);
}
Touched touched(const LinearWeightGrad& op) {
  const auto [t, i, o] = op.shape;
  Touched result;
  result.read_rows(op.dy, t, o, op.dy_stride, op.dtype);
  if (op.dweight != nullptr) {
    result.read_rows(op.x, t, i, op.x_stride, op.dtype);
    result.update(op.dweight, (o - 1) * op.dweight_stride + i, DType::F32, op.accumulate);
  }
  return result.update(op.dbias, o, DType::F32, op.accumulate);
}
Touched touched(const RmsNormForward& op) {
  return Touched()
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .read_rows(op.residual, op.tokens, op.size, op.x_stride, op.dtype)
      .read(op.weight, op.size, op.dtype)
      .write_rows(op.sum, op.tokens, op.size, op.x_stride, op.dtype)
      .write_rows(op.y, op.tokens, op.size, op.y_stride, op.dtype)
      .write(op.inv_rms, op.tokens, DType::F32)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const RmsNormBackward& op) {
  return Touched()
      .read_rows(op.dy, op.tokens, op.size, op.dy_stride, op.dtype)
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .read(op.weight, op.size, op.dtype)
      .read(op.inv_rms, op.tokens, DType::F32)
      .read_rows(op.residual, op.tokens, op.size, op.dx_stride, op.dtype)
      .write_rows(op.dx, op.tokens, op.size, op.dx_stride, op.dtype)
      .update(op.dweight, op.size, DType::F32, op.accumulate)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const LayerNormForward& op) {
  return Touched()
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .read_rows(op.residual, op.tokens, op.size, op.x_stride, op.dtype)
      .read(op.weight, op.size, op.dtype)
      .read(op.bias, op.size, op.dtype)
      .write_rows(op.sum, op.tokens, op.size, op.x_stride, op.dtype)
      .write_rows(op.y, op.tokens, op.size, op.y_stride, op.dtype)
      .write(op.mean, op.tokens, DType::F32)
      .write(op.inv_std, op.tokens, DType::F32)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const LayerNormBackward& op) {
  return Touched()
      .read_rows(op.dy, op.tokens, op.size, op.dy_stride, op.dtype)
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .read(op.weight, op.size, op.dtype)
      .read(op.mean, op.tokens, DType::F32)
      .read(op.inv_std, op.tokens, DType::F32)
      .read_rows(op.residual, op.tokens, op.size, op.dx_stride, op.dtype)
      .write_rows(op.dx, op.tokens, op.size, op.dx_stride, op.dtype)
      .update(op.dweight, op.size, DType::F32, op.accumulate)
      .update(op.dbias, op.size, DType::F32, op.accumulate)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const HeadRmsNormForward& op) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t width = (heads + 2 * kv_heads) * size;
  return Touched()
      .read_rows(op.x, tokens, width, op.x_stride, op.dtype)
      .read(op.q_weight, size, op.dtype)
      .read(op.k_weight, size, op.dtype)
      .read(op.rotation.table, op.rotation.positions.seq_len * op.rotation.rope_size, DType::F32)
      .read(op.rotation.positions.rows, op.rotation.positions.first_row + tokens, DType::I32)
      .write_rows(op.y, tokens, width, op.x_stride, op.dtype)
      .write(op.inv_rms, (heads + kv_heads) * tokens, DType::F32);
}
Touched touched(const HeadRmsNormBackward& op) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t width = (heads + kv_heads) * size;  // the values' gradients stay
  return Touched()
      .read_rows(op.gradient, tokens, width, op.gradient_stride, op.dtype)
      .read_rows(op.x, tokens, width, op.x_stride, op.dtype)
      .read(op.q_weight, size, op.dtype)
      .read(op.k_weight, size, op.dtype)
      .read(op.inv_rms, (heads + kv_heads) * tokens, DType::F32)
      .read(op.rotation.table, op.rotation.positions.seq_len * op.rotation.rope_size, DType::F32)
      .read(op.rotation.positions.rows, op.rotation.positions.first_row + tokens, DType::I32)
      .write_rows(op.gradient, tokens, width, op.gradient_stride, op.dtype)
      .update(op.dq_weight, size, DType::F32, op.accumulate)
      .update(op.dk_weight, size, DType::F32, op.accumulate);
}
Touched touched(const Rope& op) {
  const std::int64_t width = std::int64_t{op.heads} * op.head_size;
  return Touched()
      .read_rows(op.x, op.tokens, width, op.x_stride, op.dtype)
      .read(op.table, op.positions.seq_len * op.rope_size, DType::F32)
      .read(op.positions.rows, op.positions.first_row + op.tokens, DType::I32)
      .write_rows(op.x, op.tokens, width, op.x_stride, op.dtype);
}
Touched touched(const ActivationForward& op) {
  return Touched()
      .read(op.x, op.count, op.dtype)
      .write(op.y, op.count, op.dtype)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const ActivationBackward& op) {
  return Touched()
      .read(op.dy, op.count, op.dtype)
      .read(op.x, op.count, op.dtype)
      .write(op.dx, op.count, op.dtype)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const GatedActivationForward& op) {
  return Touched()
      .read_rows(op.x, op.tokens, 2 * op.size, op.x_stride, op.dtype)
      .write_rows(op.y, op.tokens, op.size, op.y_stride, op.dtype)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const GatedActivationBackward& op) {
  return Touched()
      .read_rows(op.dy, op.tokens, op.size, op.dy_stride, op.dtype)
      .read_rows(op.x, op.tokens, 2 * op.size, op.x_stride, op.dtype)
      .write_rows(op.dx, op.tokens, 2 * op.size, op.dx_stride, op.dtype)
      .write(op.largest, 1, DType::F32);
}
Touched touched(const SigmoidGateForward& op) {
  return Touched()
      .read(op.x, op.tokens * op.size, op.dtype)
      .read(op.gate, op.tokens * op.gates, op.dtype)
      .write(op.y, op.tokens * op.size, op.dtype);
}
Touched touched(const SigmoidGateBackward& op) {
  return Touched()
      .read(op.dy, op.tokens * op.size, op.dtype)
      .read(op.x, op.tokens * op.size, op.dtype)
      .read(op.gate, op.tokens * op.gates, op.dtype)
      .write(op.dx, op.tokens * op.size, op.dtype)
      .write(op.dgate, op.tokens * op.gates, op.dtype);
}
Touched touched(const Add& op) {
  return Touched()
      .read(op.a, op.count, op.dtype)
      .read(op.b, op.count, op.dtype)
      .write(op.sum, op.count, op.dtype);
}
Touched touched(const Accumulate& op) {
  return Touched()
      .read(op.value, op.count, op.value_dtype)
      .update(op.sum, op.count, op.sum_dtype, true);
}
Touched touched(const Scale& op) {
  return Touched().read(op.x, op.count, op.dtype).write(op.y, op.count, op.dtype);
}
Touched touched(const Fill& op) {
  return Touched().write(op.x, op.count, op.dtype);
}
Touched touched(const Convert& op) {
  return Touched().read(op.from, op.count, op.from_dtype).write(op.to, op.count, op.to_dtype);
}
/// What lies between the rows is not touched: it may be another copy's.
Touched touched(const CopyRows& op) {
  Touched result;
  for (std::int64_t row = 0; row < op.rows; ++row)
    result
        .read(static_cast<const std::byte*>(op.x) + row * op.x_stride_bytes, op.row_bytes,
              DType::U8)
        .write(static_cast<std::byte*>(op.y) + row * op.y_stride_bytes, op.row_bytes, DType::U8);
  return result;
}
Touched touched(const EmbeddingForward& op) {
  return Touched()
      .read(op.ids, op.tokens, DType::I32)
      .read(op.weight, (op.vocab_end - op.vocab_begin) * op.size, op.dtype)
      .write_rows(op.out, op.tokens, op.size, op.out_stride, op.dtype);
}
Touched touched(const EmbeddingBackward& op) {
  return Touched()
      .read(op.ids, op.tokens, DType::I32)
      .read_rows(op.dout, op.tokens, op.size, op.dout_stride, op.dtype)
      .update(op.dweight, (op.vocab_end - op.vocab_begin) * op.size, DType::F32, op.accumulate);
}
Touched touched(const PositionEmbeddingForward& op) {
  return Touched()
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .read(op.weight, op.positions.seq_len * op.size, op.dtype)
      .read(op.positions.rows, op.positions.first_row + op.tokens, DType::I32)
      .write_rows(op.out, op.tokens, op.size, op.out_stride, op.dtype);
}
Touched touched(const PositionEmbeddingBackward& op) {
  return Touched()
      .read_rows(op.dout, op.tokens, op.size, op.dout_stride, op.dtype)
      .read(op.positions.rows, op.positions.first_row + op.tokens, DType::I32)
      .update(op.dweight, op.num_positions * op.size, DType::F32, op.accumulate);
}
Touched touched(const CrossEntropyLocal& op) {
  return Touched()
      .read_rows(op.logits, op.tokens, op.columns, op.logits_stride, op.dtype)
      .read(op.targets, op.tokens, DType::I32)
      .write(op.stats, op.tokens * kCrossEntropyStats, DType::F32);
}
Touched touched(const CrossEntropyCombine& op) {
  return Touched()
      .read(op.stats, op.num_shards * op.tokens * kCrossEntropyStats, DType::F32)
      .read(op.targets, op.tokens, DType::I32)
      .write(op.loss, op.tokens, DType::F32)
      .write(op.lse, op.tokens, DType::F32);
}
Touched touched(const CrossEntropyBackward& op) {
  return Touched()
      .read_rows(op.logits, op.tokens, op.columns, op.logits_stride, op.dtype)
      .read(op.targets, op.tokens, DType::I32)
      .read(op.lse, op.tokens, DType::F32)
      .read(op.scale, 1, DType::F32)
      .write_rows(op.dlogits, op.tokens, op.columns, op.logits_stride, op.dtype);
}
Touched touched(const SumLoss& op) {
  return Touched()
      .read(op.loss, op.tokens, DType::F32)
      .update(op.sum, 1, DType::F64, op.accumulate);
}
Touched touched(const AdamStep& op) {
  return Touched()
      .read(op.gradient, op.count, DType::F32)
      .read(op.gradient_scale, 1, DType::F32)
      .read(op.step_at, 1, DType::I64)
      .read(op.learning_rate_at, 1, DType::F32)
      .update(op.master, op.count, DType::F32, true)
      .update(op.m, op.count, DType::F32, true)
      .update(op.v, op.count, DType::F32, true)
      .write(op.weight, op.count, op.weight_dtype);
}
Touched touched(const SgdStep& op) {
  return Touched()
      .read(op.gradient, op.count, DType::F32)
      .read(op.gradient_scale, 1, DType::F32)
      .read(op.learning_rate_at, 1, DType::F32)
      .update(op.master, op.count, DType::F32, true)
      .update(op.velocity, op.count, DType::F32, true)
      .write(op.weight, op.count, op.weight_dtype);
}
Touched touched(const QuantizeInt8& op) {
  return Touched()
      .read(op.gradient, op.count, DType::F32)
      .read(op.unit.applied, 1, DType::F32)
      .read(op.unit.wanted, 1, DType::F32)
      .update(op.error, op.count, DType::F32, true)
      .write(op.quantized, op.count, DType::I8)
      .write(op.scales, (op.count + op.block - 1) / op.block, DType::F32);
}
Touched touched(const DequantizeInt8& op) {
  return Touched()
      .read(op.quantized, op.count, DType::I8)
      .read(op.scales, (op.count + op.block - 1) / op.block, DType::F32)
      .update(op.out, op.count, DType::F32, op.accumulate);
}
Touched touched(const TopKSelect& op) {
  const std::int64_t entries = (op.count + op.block - 1) / op.block * op.keep;
  return Touched()
      .read(op.gradient, op.count, DType::F32)
      .read(op.unit.applied, 1, DType::F32)
      .read(op.unit.wanted, 1, DType::F32)
      .update(op.error, op.count, DType::F32, true)
      .write(op.indices, entries, DType::I32)
      .write(op.values, entries, DType::F32);
}
/// Which elements it adds to is in the indices: any of the range.
Touched touched(const TopKScatterAdd& op) {
  return Touched()
      .read(op.indices, op.entries, DType::I32)
      .read(op.values, op.entries, DType::F32)
      .update(op.out, op.count, DType::F32, true);
}
Touched touched(const SettleErrors& op) {
  return Touched()
      .read(op.gradient_scale, 1, DType::F32)
      .update(op.error, op.count, DType::F32, true)
      .update(op.settled, op.count, DType::F32, true);
}
Touched touched(const QuantizeFloat8& op) {
  const std::int64_t count = op.rows * op.columns;
  Touched result = Touched()
                       .read(op.x, count, op.dtype)
                       .read(op.largest, 1, DType::F32)
                       .write(op.scale, 1, DType::F32);
  for (std::uint8_t* codes : {op.quantized, op.transposed})
    if (codes != nullptr) result.write(codes, count, DType::U8);
  return result;
}
Touched touched(const ScaledProduct& op) {
  Touched result = Touched()
                       .read(op.a, op.m * op.k, DType::U8)
                       .read(op.b, op.n * op.k, DType::U8)
                       .read(op.a_scale, 1, DType::F32)
                       .read(op.b_scale, 1, DType::F32)
                       .update(op.out, op.m * op.n, op.out_dtype, op.accumulate);
  if (op.bias != nullptr) result.read(op.bias, op.n, op.out_dtype);
  return result;
}
Touched touched(const SquaredNorm& op) {
  return Touched().read(op.x, op.count, DType::F32).update(op.sum, 1, DType::F64, op.accumulate);
}
Touched touched(const ClipCoefficient& op) {
  return Touched()
      .read(op.sum_of_squares, 1, DType::F64)
      .write(op.coefficient, 1, DType::F32)
      .write(op.norm, 1, DType::F32);
}
Touched touched(const RandomNormal& op) {
  return Touched().write_rows(op.out, op.rows, op.columns, op.out_stride, DType::F32);
}

// ---------------------------------------------------------------- experts

namespace {

std::int64_t elements_of(const SequenceCounts& counts, int experts) {
  return counts.parts * counts.sequences * experts;
}

}  // namespace

Touched touched(const RouterForward& op) {
  return Touched()
      .read_rows(op.logits, op.tokens, op.experts, op.logits_stride, op.dtype)
      .read(op.correction_bias, op.experts, op.bias_dtype)
      .write(op.scores, op.tokens * op.experts, DType::F32)
      .write(op.choices, op.tokens * op.top_k, DType::I32)
      .write(op.probabilities, op.tokens * op.top_k, DType::F32)
      .write(op.lse, op.tokens, DType::F32);
}
Touched touched(const RouterBackward& op) {
  return Touched()
      .read(op.scores, op.tokens * op.experts, DType::F32)
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .read(op.dprobabilities, op.tokens * op.top_k, DType::F32)
      .read(op.dscores, op.tokens * op.experts, DType::F32)
      .read(op.counts.load, elements_of(op.counts, op.experts), DType::F32)
      .read(op.lse, op.tokens, DType::F32)
      .read(op.loss_scale, 1, DType::F32)
      .write_rows(op.dlogits, op.tokens, op.experts, op.dlogits_stride, op.dtype);
}
Touched touched(const ExpertLoad& op) {
  return Touched()
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .write(op.load, op.sequences * op.experts, DType::F32)
      .update(op.total, op.experts, DType::F32, true);
}
Touched touched(const RouterLosses& op) {
  return Touched()
      .read(op.counts.load, elements_of(op.counts, op.experts), DType::F32)
      .read(op.scores, op.tokens * op.experts, DType::F32)
      .read(op.lse, op.tokens, DType::F32)
      .update(op.balance, 1, DType::F64, true)
      .update(op.z, 1, DType::F64, true);
}
Touched touched(const BalanceExperts& op) {
  return Touched()
      .read(op.load, op.experts, DType::F32)
      .read(op.gradient_scale, 1, DType::F32)
      .update(op.bias, op.experts, DType::F32, true)
      .write(op.copy, op.experts, op.copy_dtype);
}
Touched touched(const LimitChoices& op) {
  return Touched()
      .read(op.counts.load, elements_of(op.counts, op.experts), DType::F32)
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .write(op.kept, op.tokens * op.top_k, DType::I32);
}
Touched touched(const DispatchPlan& op) {
  const std::int64_t choices = op.tokens * op.top_k;
  return Touched()
      .read(op.choices, choices, DType::I32)
      .write(op.offsets, op.experts + 1, DType::I32)
      .write(op.choice_of_row, choices, DType::I32)
      .write(op.row_of_choice, choices, DType::I32);
}
Touched touched(const DispatchForward& op) {
  const std::int64_t rows = op.tokens * op.top_k;
  return Touched()
      .read(op.choice_of_row, rows, DType::I32)
      .read_rows(op.x, op.tokens, op.size, op.x_stride, op.dtype)
      .write_rows(op.rows, rows, op.size, op.rows_stride, op.dtype);
}
Touched touched(const DispatchBackward& op) {
  const std::int64_t rows = op.tokens * op.top_k;
  return Touched()
      .read(op.row_of_choice, rows, DType::I32)
      .read_rows(op.drows, rows, op.size, op.drows_stride, op.dtype)
      .write_rows(op.dx, op.tokens, op.size, op.dx_stride, op.dtype);
}
Touched touched(const CombineForward& op) {
  const std::int64_t rows = op.tokens * op.top_k;
  return Touched()
      .read(op.row_of_choice, rows, DType::I32)
      .read(op.probabilities, rows, DType::F32)
      .read_rows(op.rows, rows, op.size, op.rows_stride, op.dtype)
      .write_rows(op.y, op.tokens, op.size, op.y_stride, op.dtype);
}
Touched touched(const CombineBackward& op) {
  const std::int64_t rows = op.tokens * op.top_k;
  return Touched()
      .read(op.row_of_choice, rows, DType::I32)
      .read(op.probabilities, rows, DType::F32)
      .read_rows(op.rows, rows, op.size, op.rows_stride, op.dtype)
      .read_rows(op.dy, op.tokens, op.size, op.dy_stride, op.dtype)
      .write_rows(op.drows, rows, op.size, op.rows_stride, op.dtype)
      .write(op.dprobabilities, rows, DType::F32);
}
Touched touched(const ExpertCounts& op) {
  return Touched()
      .read(op.offsets, op.experts + 1, DType::I32)
      .write(op.counts, op.experts, DType::I32);
}
Touched touched(const ExchangeSizes& op) {
  const std::int64_t counts = std::int64_t{op.ranks} * op.local_experts;
  return Touched()
      .read(op.sent, counts, DType::I32)
      .read(op.received, counts, DType::I32)
      .write(op.rows, 2 * std::int64_t{op.ranks}, DType::I32)
      .write(op.offsets, op.local_experts + 1, DType::I32);
}
Touched touched(const RegroupRows& op) {
  return Touched()
      .read(op.received, std::int64_t{op.ranks} * op.local_experts, DType::I32)
      .read(op.from, op.max_rows * op.size, op.dtype)
      .write(op.to, op.max_rows * op.size, op.dtype);
}
Touched touched(const NodeChoices& op) {
  return Touched()
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .write(op.node_choices, op.tokens * std::min(op.top_k, op.nodes), DType::I32);
}
Touched touched(const NodeRoutingForward& op) {
  const std::int64_t rows = op.tokens * std::min(op.top_k, op.nodes);
  return Touched()
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .read(op.probabilities, op.tokens * op.top_k, DType::F32)
      .read(op.node_choices, rows, DType::I32)
      .read(op.choice_of_row, rows, DType::I32)
      .write(op.row_choices, rows * op.top_k, DType::I32)
      .write(op.row_probabilities, rows * op.top_k, DType::F32);
}
Touched touched(const NodeRoutingBackward& op) {
  const std::int64_t rows = op.tokens * std::min(op.top_k, op.nodes);
  return Touched()
      .read(op.choices, op.tokens * op.top_k, DType::I32)
      .read(op.node_choices, rows, DType::I32)
      .read(op.row_of_choice, rows, DType::I32)
      .read(op.drow_probabilities, rows * op.top_k, DType::F32)
      .write(op.dprobabilities, op.tokens * op.top_k, DType::F32);
}
Touched touched(const PackFloat8Rows& op) {
  return Touched()
      .read(op.x, op.rows * op.size, op.dtype)
      .write(op.packed, op.rows * float8_row_words(op.size), DType::F32);
}
Touched touched(const UnpackFloat8Rows& op) {
  return Touched()
      .read(op.packed, op.rows * float8_row_words(op.size), DType::F32)
      .write(op.x, op.rows * op.size, op.dtype);
}
Touched touched(const GroupedLinearForward& op) {
  const auto [groups, rows, in, out] = op.shape;
  return Touched()
      .read(op.offsets.device, groups + 1, DType::I32)
      .read_rows(op.x, rows, in, op.x_stride, op.dtype)
      .read(op.weight, groups * out * in, op.dtype)
      .read(op.bias, groups * out, op.dtype)
      .write_rows(op.y, rows, out, op.y_stride, op.dtype);
}
Touched touched(const GroupedLinearInputGrad& op) {
  const auto [groups, rows, in, out] = op.shape;
  return Touched()
      .read(op.offsets.device, groups + 1, DType::I32)
      .read_rows(op.dy, rows, out, op.dy_stride, op.dtype)
      .read(op.weight, groups * out * in, op.dtype)
      .write_rows(op.dx, rows, in, op.dx_stride, op.dtype);
}
Touched touched(const GroupedLinearWeightGrad& op) {
  const auto [groups, rows, in, out] = op.shape;
  return Touched()
      .read(op.offsets.device, groups + 1, DType::I32)
      .read_rows(op.dy, rows, out, op.dy_stride, op.dtype)
      .read_rows(op.dweight == nullptr ? nullptr : op.x, rows, in, op.x_stride, op.dtype)
      .update(op.dweight, groups * out * in, DType::F32, op.accumulate)
      .update(op.dbias, groups * out, DType::F32, op.accumulate);
}

}  // namespace meshplan::test
