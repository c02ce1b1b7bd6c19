#include "attention/cudnn_attention_graph.hpp"

#include <limits>

#include "core/error.hpp"

namespace meshplan::kernels::cuda {

namespace {

using Tensor = CudnnGraph::Tensor;

constexpr int kRows = 2;     // dim of queries in the scores
constexpr int kColumns = 3;  // and of keys

cudnnDataType_t data_type(DType dtype) {
  require_invariant(dtype == DType::BF16 || dtype == DType::F16, "cuDNN attends in bf16 or fp16");
  return dtype == DType::BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/// Rows of the heads of a row-major operand, as (sequences, heads, rows, head size).
struct Operand {
  Dims dims;
  Dims strides;
};
Operand rows_of(const AttentionShape& s, std::int64_t rows, int heads, std::int64_t stride) {
  return {{s.num_sequences, heads, rows, s.head_size}, {rows * stride, s.head_size, stride, 1}};
}
Operand transposed(const Operand& x) {
  return {{x.dims[0], x.dims[1], x.dims[3], x.dims[2]},
          {x.strides[0], x.strides[1], x.strides[3], x.strides[2]}};
}

/// Scores that a query does not see become -infinity.
Tensor masked(CudnnGraph& graph, const AttentionShape& s, Tensor scores) {
  const auto hide_unless = [&](cudnnPointwiseMode_t comparison, const Tensor& a, const Tensor& b) {
    const Tensor visible = graph.binary(comparison, a, b, CUDNN_DATA_BOOLEAN);
    scores = graph.select(scores, graph.constant(-std::numeric_limits<float>::infinity()), visible);
  };
  if (s.causal) {
    Tensor row = graph.index(scores, kRows);
    const Tensor column = graph.index(scores, kColumns);
    if (s.query_offset != 0)
      row =
          graph.binary(CUDNN_POINTWISE_ADD, row,
                       graph.constant(static_cast<std::int32_t>(s.query_offset)), CUDNN_DATA_INT32);
    hide_unless(CUDNN_POINTWISE_CMP_GE, row, column);
  }
  if (s.window > 0) {
    const Tensor row = graph.index(scores, kRows);
    const Tensor reach =
        graph.binary(CUDNN_POINTWISE_ADD, graph.index(scores, kColumns),
                     graph.constant(static_cast<float>(s.window - s.query_offset)));
    hide_unless(CUDNN_POINTWISE_CMP_GT, reach, row);
  }
  return scores;
}

std::string shape_refusal(const AttentionShape& s, DType dtype,
                          std::initializer_list<std::int64_t> strides, bool key_lengths,
                          bool key_ranges) {
  if (dtype != DType::BF16 && dtype != DType::F16) return "cuDNN attends in bf16 and fp16 only";
  if (s.head_size % 8 != 0 || s.head_size > 128) return "its head size is not 8, 16, ... 128";
  if (s.value_size() != s.head_size) return "its value heads have a size of their own";
  for (const std::int64_t stride : strides)
    if (stride % 8 != 0) return "its rows are not aligned to 16 bytes";
  if (s.softcap > 0) return "its scores have a soft cap";
  if (key_lengths) return "sequences without keys are NaN in cuDNN and zero here";
  if (key_ranges) return "documents are packed into its sequences";
  if (s.window > 0 && !s.causal) return "cuDNN's windows are causal";
  if ((s.causal || s.window > 0) &&
      (s.query_offset < 0 || s.query_offset + s.query_len > s.key_len))
    return "its queries do not lie within its keys";
  return "";
}

}  // namespace

std::string graph_refusal(const AttentionForward& op) {
  if (op.sinks != nullptr) return "a sink joins each of its softmaxes";
  return shape_refusal(op.shape, op.dtype, {op.q_stride, op.kv_stride, op.o_stride},
                       op.key_lengths != nullptr, op.key_ranges != nullptr);
}
std::string graph_refusal(const AttentionBackward& op) {
  return shape_refusal(op.shape, op.dtype,
                       {op.q_stride, op.kv_stride, op.o_stride, op.dq_stride, op.dkv_stride},
                       op.key_lengths != nullptr, op.key_ranges != nullptr);
}

std::unique_ptr<AttentionGraph> attention_graph(const AttentionForward& op) {
  auto result = std::make_unique<AttentionGraph>();
  CudnnGraph& graph = result->graph;
  const AttentionShape& s = op.shape;
  const cudnnDataType_t type = data_type(op.dtype);
  const Dims row_dims = {s.num_sequences, s.heads, s.query_len, 1};
  const auto in_memory = [&](const Operand& x) { return graph.memory(x.dims, x.strides, type); };
  const Tensor q = in_memory(rows_of(s, s.query_len, s.heads, op.q_stride));
  const Tensor k = in_memory(transposed(rows_of(s, s.key_len, s.kv_heads, op.kv_stride)));
  const Tensor v = in_memory(rows_of(s, s.key_len, s.kv_heads, op.kv_stride));
  const Tensor o = in_memory(rows_of(s, s.query_len, s.heads, op.o_stride));
  const Tensor stats = graph.memory(row_dims, dense_strides(row_dims), CUDNN_DATA_FLOAT);

  const Tensor scores = masked(
      graph, s, graph.binary(CUDNN_POINTWISE_MUL, graph.matmul(q, k), graph.constant(s.scale)));
  const Tensor max = graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, row_dims);
  const Tensor exp =
      graph.unary(CUDNN_POINTWISE_EXP, graph.binary(CUDNN_POINTWISE_SUB, scores, max));
  const Tensor sum = graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exp, row_dims);
  graph.binary_into(CUDNN_POINTWISE_ADD, max, graph.unary(CUDNN_POINTWISE_LOG, sum), stats);
  graph.matmul_into(graph.rounded_binary(CUDNN_POINTWISE_DIV, exp, sum, type), v, o);

  result->q = q.id;
  result->k = k.id;
  result->v = v.id;
  result->o = o.id;
  result->stats = stats.id;
  return result;
}

std::unique_ptr<AttentionGraph> attention_graph(const AttentionBackward& op, QueryGradientSum sum) {
  auto result = std::make_unique<AttentionGraph>();
  CudnnGraph& graph = result->graph;
  const AttentionShape& s = op.shape;
  const cudnnDataType_t type = data_type(op.dtype);
  const Dims row_dims = {s.num_sequences, s.heads, s.query_len, 1};
  const auto in_memory = [&](const Operand& x) { return graph.memory(x.dims, x.strides, type); };
  const Tensor q = in_memory(rows_of(s, s.query_len, s.heads, op.q_stride));
  const Tensor k = in_memory(transposed(rows_of(s, s.key_len, s.kv_heads, op.kv_stride)));
  const Tensor v = in_memory(transposed(rows_of(s, s.key_len, s.kv_heads, op.kv_stride)));
  const Tensor o = in_memory(rows_of(s, s.query_len, s.heads, op.o_stride));
  const Tensor output_grad = in_memory(rows_of(s, s.query_len, s.heads, op.o_stride));
  const Tensor dq = in_memory(rows_of(s, s.query_len, s.heads, op.dq_stride));
  const Tensor dk = in_memory(rows_of(s, s.key_len, s.kv_heads, op.dkv_stride));
  const Tensor dv = in_memory(rows_of(s, s.key_len, s.kv_heads, op.dkv_stride));
  const Tensor stats = graph.memory(row_dims, dense_strides(row_dims), CUDNN_DATA_FLOAT);
  const Tensor delta = graph.memory(row_dims, dense_strides(row_dims), CUDNN_DATA_FLOAT);
  const Tensor scale = graph.constant(s.scale);

  // Sums over the query heads that share a key head where there are several.
  const auto product_into = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    if (s.heads == s.kv_heads)
      graph.matmul_into(a, b, c);
    else
      graph.reduce_into(CUDNN_REDUCE_TENSOR_ADD, graph.matmul(a, b, type), c);
  };
  const Tensor row_sums = graph.reduce(CUDNN_REDUCE_TENSOR_ADD,
                                       graph.binary(CUDNN_POINTWISE_MUL, output_grad, o), row_dims);
  graph.binary_into(CUDNN_POINTWISE_MUL, row_sums, graph.constant(1.0F), delta);
  const Tensor scores =
      masked(graph, s,
             graph.binary(CUDNN_POINTWISE_SUB,
                          graph.binary(CUDNN_POINTWISE_MUL, graph.matmul(q, k), scale), stats));
  const Tensor p = graph.unary(CUDNN_POINTWISE_EXP, scores);
  product_into(graph.transpose(p, type), output_grad, dv);
  const Tensor dp = graph.binary(CUDNN_POINTWISE_SUB, graph.matmul(output_grad, v), delta);
  const Tensor ds =
      graph.binary(CUDNN_POINTWISE_MUL, graph.binary(CUDNN_POINTWISE_MUL, dp, p), scale);
  product_into(graph.transpose(ds, type), q, dk);
  const Tensor k_rows = graph.transpose(k, type);
  if (sum == QueryGradientSum::FromScores) {
    graph.matmul_into(ds, k_rows, dq);
  } else {  // cuDNN clears it (9.6.0 and later)
    const Tensor dq_sum = graph.memory(dq.dims, dense_strides(dq.dims), CUDNN_DATA_FLOAT);
    graph.matmul_into(ds, k_rows, dq_sum);
    graph.copy_into(dq_sum, dq);
    result->dq_sum = dq_sum.id;
  }

  result->q = q.id;
  result->k = k.id;
  result->v = v.id;
  result->o = o.id;
  result->stats = stats.id;
  result->output_grad = output_grad.id;
  result->dq = dq.id;
  result->dk = dk.id;
  result->dv = dv.id;
  result->delta = delta.id;
  return result;
}

}  // namespace meshplan::kernels::cuda
