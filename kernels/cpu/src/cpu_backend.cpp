#include "cpu_backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "attention/attention_layout.hpp"
#include "core/error.hpp"
#include "device/threads.hpp"

namespace meshplan::kernels {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kElementGrain = 4096;  // elements below which a second thread costs more
constexpr std::int64_t kColumnGrain = 64;     // columns: whole cache lines for each thread

void require_float(DType dtype) {
  require_invariant(dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16,
                    "kernels compute in fp32, bf16 or fp16");
}

void require_shape(const AttentionShape& shape) {
  require_invariant(shape.heads > 0 && shape.kv_heads > 0 && shape.head_size > 0,
                    "attention has heads");
  require_invariant(shape.heads % shape.kv_heads == 0, "query heads are a multiple of key heads");
}

/// The matrix product of a layer: it goes to where the activation's input is kept.
LinearForward product_of(const LinearForward& op) {
  LinearForward product = op;
  if (op.activation && op.pre_activation != nullptr) {
    product.y = op.pre_activation;
    product.y_stride = op.pre_activation_stride;
  }
  return product;
}

/// Rows below which a second thread costs more.
std::int64_t row_grain(std::int64_t row_size) {
  return kElementGrain / std::max<std::int64_t>(row_size, 1) + 1;
}

void* offset(void* pointer, std::int64_t bytes) {
  return static_cast<std::byte*>(pointer) + bytes;
}
const void* offset(const void* pointer, std::int64_t bytes) {
  return static_cast<const std::byte*>(pointer) + bytes;
}

}  // namespace

std::string CpuBackend::name() const {
  return fmt::format("cpu {} {} thread{}", name_of(isa_), num_threads_,
                     num_threads_ == 1 ? "" : "s");
}

void* CpuBackend::allocate(std::int64_t bytes) {
  const std::int64_t size = std::max(round_up(bytes, kPage), kPage);
  void* memory = std::aligned_alloc(kPage, static_cast<std::size_t>(size));
  if (memory == nullptr)
    throw IoError(fmt::format("cannot allocate {} bytes of host memory", size));
  zero(memory, size);  // first touch is slow in a virtual machine: pay it here, not in a step
  return memory;
}

void CpuBackend::free(void* memory) noexcept {
  std::free(memory);
}

void CpuBackend::copy(void* to, const void* from, std::int64_t bytes) {
  parallel_for(num_threads_, bytes, 4 * kElementGrain, [&](Range range, int /*thread*/) {
    std::memcpy(static_cast<char*>(to) + range.begin, static_cast<const char*>(from) + range.begin,
                static_cast<std::size_t>(range.end - range.begin));
  });
}
void CpuBackend::copy_to_device(void* to, const void* from_host, std::int64_t bytes) {
  copy(to, from_host, bytes);
}
void CpuBackend::copy_to_host(void* to_host, const void* from, std::int64_t bytes) {
  copy(to_host, from, bytes);
}
void CpuBackend::zero(void* memory, std::int64_t bytes) {
  parallel_for(num_threads_, bytes, 4 * kElementGrain, [&](Range range, int /*thread*/) {
    std::memset(static_cast<char*>(memory) + range.begin, 0,
                static_cast<std::size_t>(range.end - range.begin));
  });
}

std::int64_t CpuBackend::scratch_bytes(const LinearForward& op) {
  return matmul_.scratch_bytes(product_of(op));
}
std::int64_t CpuBackend::scratch_bytes(const LinearInputGrad& op) {
  return matmul_.scratch_bytes(op);
}
std::int64_t CpuBackend::scratch_bytes(const LinearWeightGrad& op) {
  return matmul_.scratch_bytes(op);
}
std::int64_t CpuBackend::scratch_bytes(const AttentionForward& op) {
  return attention_forward_layout(op.shape).size * num_threads_ * size_of(DType::F32);
}
std::int64_t CpuBackend::scratch_bytes(const AttentionBackward& op) {
  return attention_backward_layout(op.shape).size * num_threads_ * size_of(DType::F32);
}
std::int64_t CpuBackend::scratch_bytes(const SquaredNorm& op) {
  return (op.count + kNormBlock - 1) / kNormBlock * size_of(DType::F64);
}

void CpuBackend::set_scratch(void* memory, std::int64_t bytes) {
  require_invariant(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0,
                    "scratch is aligned to 64 bytes");
  scratch_ = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

void CpuBackend::require_scratch(std::int64_t bytes) const {
  if (static_cast<std::int64_t>(scratch_.size()) >= bytes) return;  // format only what is thrown
  throw InvariantError(fmt::format("the operation needs {} bytes of scratch, set_scratch gave {}",
                                   bytes, scratch_.size()));
}

float* CpuBackend::thread_scratch(int thread, std::int64_t floats) const {
  return reinterpret_cast<float*>(scratch_.data()) + thread * floats;
}

template <class Op>
void CpuBackend::for_rows(void (*kernel)(const Op&, Range), const Op& op, std::int64_t rows,
                          std::int64_t row_size) const {
  parallel_for(num_threads_, rows, row_grain(row_size),
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

template <class Body>
void CpuBackend::for_each_row(std::int64_t rows, std::int64_t row_size, const Body& body) const {
  parallel_for(num_threads_, rows, row_grain(row_size), [&](Range range, int /*thread*/) {
    for (std::int64_t row = range.begin; row < range.end; ++row) body(row);
  });
}

template <class Op>
void CpuBackend::for_columns(void (*kernel)(const Op&, Range), const Op& op,
                             std::int64_t columns) const {
  parallel_for(num_threads_, columns, kColumnGrain,
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

template <class Op>
void CpuBackend::for_elements(void (*kernel)(const Op&, Range), const Op& op) const {
  parallel_for(num_threads_, op.count, kElementGrain,
               [&](Range range, int /*thread*/) { kernel(op, range); });
}

template <class Op>
void CpuBackend::run_linear(const Op& op) {
  require_invariant(op.shape.in_features > 0 && op.shape.out_features > 0, "a layer has features");
  if (op.shape.tokens > 0) matmul_.run(op, scratch_);
}

/// y += residual.
void CpuBackend::add_residual(const LinearForward& op) const {
  const std::int64_t row = op.y_stride * size_of(op.dtype);
  for_each_row(op.shape.tokens, op.shape.out_features, [&](std::int64_t t) {
    void* y = offset(op.y, t * row);
    table_.add({.count = op.shape.out_features,
                .dtype = op.dtype,
                .a = offset(op.residual, t * row),
                .b = y,
                .sum = y},
               {0, op.shape.out_features});
  });
}

void CpuBackend::run(const LinearForward& op) {
  const LinearForward product = product_of(op);
  require_invariant(op.residual == nullptr || !op.activation,
                    "a product ends in an activation or in a sum");
  run_linear(product);
  if (op.residual != nullptr) add_residual(op);
  if (!op.activation) return;
  const std::int64_t element = size_of(op.dtype);
  for_each_row(op.shape.tokens, op.shape.out_features, [&](std::int64_t row) {
    const ActivationForward part{.kind = *op.activation,
                                 .count = op.shape.out_features,
                                 .dtype = op.dtype,
                                 .x = offset(product.y, row * product.y_stride * element),
                                 .y = offset(op.y, row * op.y_stride * element)};
    table_.activation_forward(part, {0, part.count});
  });
}
void CpuBackend::run(const LinearInputGrad& op) {
  run_linear(op);
  if (!op.activation) return;
  require_invariant(op.pre_activation != nullptr, "an activation's gradient needs its input");
  const std::int64_t element = size_of(op.dtype);
  for_each_row(op.shape.tokens, op.shape.in_features, [&](std::int64_t row) {
    void* dx = offset(op.dx, row * op.dx_stride * element);
    const ActivationBackward part{
        .kind = *op.activation,
        .count = op.shape.in_features,
        .dtype = op.dtype,
        .dy = dx,
        .x = offset(op.pre_activation, row * op.pre_activation_stride * element),
        .dx = dx};
    table_.activation_backward(part, {0, part.count});
  });
}
void CpuBackend::run(const LinearWeightGrad& op) {
  require_float(op.dtype);
  const auto [tokens, in_features, out_features] = op.shape;
  if (op.dweight != nullptr && tokens > 0) run_linear(op);
  if (op.dweight != nullptr && tokens == 0 && !op.accumulate) {
    for (std::int64_t row = 0; row < out_features; ++row)
      std::fill_n(op.dweight + row * op.dweight_stride, in_features, 0.0F);
  }
  if (op.dbias != nullptr) for_columns(table_.bias_grad, op, out_features);
}

template <class Op>
void CpuBackend::run_attention(void (*kernel)(const Op&, Range, float*), const Op& op,
                               std::int64_t thread_floats) const {
  require_float(op.dtype);
  require_shape(op.shape);
  require_scratch(thread_floats * num_threads_ * size_of(DType::F32));
  parallel_for(
      num_threads_, op.shape.num_sequences * op.shape.kv_heads, 1,
      [&](Range pairs, int thread) { kernel(op, pairs, thread_scratch(thread, thread_floats)); });
}

void CpuBackend::run(const AttentionForward& op) {
  run_attention(table_.attention_forward, op, attention_forward_layout(op.shape).size);
}
void CpuBackend::run(const AttentionBackward& op) {
  run_attention(table_.attention_backward, op, attention_backward_layout(op.shape).size);
}

void CpuBackend::run(const CopyRows& op) {
  for_each_row(op.rows, op.row_bytes / size_of(DType::F32), [&](std::int64_t row) {
    std::memcpy(offset(op.y, row * op.y_stride_bytes), offset(op.x, row * op.x_stride_bytes),
                static_cast<std::size_t>(op.row_bytes));
  });
}

void CpuBackend::run(const RmsNormForward& op) {
  require_float(op.dtype);
  for_rows(table_.rms_norm_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const RmsNormBackward& op) {
  require_float(op.dtype);
  if (op.dweight != nullptr) for_columns(table_.rms_norm_weight_grad, op, op.size);
  if (op.dx != nullptr) for_rows(table_.rms_norm_input_grad, op, op.tokens, op.size);
}
void CpuBackend::run(const LayerNormForward& op) {
  require_float(op.dtype);
  for_rows(table_.layer_norm_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const LayerNormBackward& op) {
  require_float(op.dtype);
  if (op.dweight != nullptr || op.dbias != nullptr)
    for_columns(table_.layer_norm_weight_grad, op, op.size);
  if (op.dx != nullptr) for_rows(table_.layer_norm_input_grad, op, op.tokens, op.size);
}

void CpuBackend::run(const Rope& op) {
  require_float(op.dtype);
  require_invariant(op.rope_size % 2 == 0 && op.rope_size <= op.head_size,
                    "rope_size is even and at most the head size");
  for_rows(table_.rope, op, op.tokens, std::int64_t{op.heads} * op.rope_size);
}

void CpuBackend::run(const ActivationForward& op) {
  require_float(op.dtype);
  for_elements(table_.activation_forward, op);
}
void CpuBackend::run(const ActivationBackward& op) {
  require_float(op.dtype);
  for_elements(table_.activation_backward, op);
}
void CpuBackend::run(const GatedActivationForward& op) {
  require_float(op.dtype);
  for_rows(table_.gated_activation_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const GatedActivationBackward& op) {
  require_float(op.dtype);
  for_rows(table_.gated_activation_backward, op, op.tokens, op.size);
}

void CpuBackend::run(const LatentHeadsForward& op) {
  require_float(op.dtype);
  for_rows(table_.latent_heads_forward, op, op.shape.tokens, op.shape.columns());
}
void CpuBackend::run(const LatentHeadsBackward& op) {
  require_float(op.dtype);
  for_rows(table_.latent_heads_backward, op, op.shape.tokens, op.shape.columns());
}
void CpuBackend::run(const SigmoidGateForward& op) {
  require_float(op.dtype);
  require_invariant(op.gates == 1 || op.gates == op.size,
                    "a gate is for a row or for each element");
  for_rows(table_.sigmoid_gate_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const SigmoidGateBackward& op) {
  require_float(op.dtype);
  require_invariant(op.gates == 1 || op.gates == op.size,
                    "a gate is for a row or for each element");
  for_rows(table_.sigmoid_gate_backward, op, op.tokens, op.size);
}

void CpuBackend::run(const Add& op) {
  require_float(op.dtype);
  for_elements(table_.add, op);
}
void CpuBackend::run(const Accumulate& op) {
  require_float(op.sum_dtype);
  require_float(op.value_dtype);
  for_elements(table_.accumulate, op);
}
void CpuBackend::run(const Scale& op) {
  require_float(op.dtype);
  for_elements(table_.scale, op);
}
void CpuBackend::run(const Fill& op) {
  require_float(op.dtype);
  for_elements(table_.fill, op);
}
void CpuBackend::run(const Convert& op) {
  require_float(op.from_dtype);
  require_float(op.to_dtype);
  for_elements(table_.convert, op);
}

void CpuBackend::run(const EmbeddingForward& op) {
  require_float(op.dtype);
  for_rows(table_.embedding_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const EmbeddingBackward& op) {
  require_float(op.dtype);
  for_columns(table_.embedding_backward, op, op.size);
}
void CpuBackend::run(const PositionEmbeddingForward& op) {
  require_float(op.dtype);
  for_rows(table_.position_embedding_forward, op, op.tokens, op.size);
}
void CpuBackend::run(const PositionEmbeddingBackward& op) {
  require_float(op.dtype);
  for_columns(table_.position_embedding_backward, op, op.size);
}

void CpuBackend::run(const CrossEntropyLocal& op) {
  require_float(op.dtype);
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  for_rows(table_.cross_entropy_local, op, op.tokens, op.columns);
}

void CpuBackend::run(const CrossEntropyCombine& op) {
  for (std::int64_t t = 0; t < op.tokens; ++t) {
    const auto stat = [&](std::int64_t shard, int which) {
      return op.stats[(shard * op.tokens + t) * kCrossEntropyStats + which];
    };
    float maximum = -std::numeric_limits<float>::infinity();
    for (std::int64_t s = 0; s < op.num_shards; ++s) maximum = std::max(maximum, stat(s, 0));
    double sum = 0.0;
    double target_logit = 0.0;
    for (std::int64_t s = 0; s < op.num_shards; ++s) {
      sum += double{stat(s, 1)} * std::exp(double{stat(s, 0)} - double{maximum});
      target_logit += double{stat(s, 2)};
    }
    const double lse = double{maximum} + std::log(sum);
    op.lse[t] = static_cast<float>(lse);
    op.loss[t] = op.targets[t] < 0 ? 0.0F : static_cast<float>(lse - target_logit);
  }
}

void CpuBackend::run(const CrossEntropyBackward& op) {
  require_float(op.dtype);
  require_invariant(op.valid <= op.columns, "valid columns are among the columns");
  for_rows(table_.cross_entropy_backward, op, op.tokens, op.columns);
}

void CpuBackend::run(const SumLoss& op) {
  double sum = op.accumulate ? *op.sum : 0.0;
  for (std::int64_t t = 0; t < op.tokens; ++t) sum += double{op.loss[t]};
  *op.sum = sum;
}

void CpuBackend::run(const AdamStep& op) {
  require_float(op.weight_dtype);
  AdamStep now = op;
  if (op.step_at != nullptr) now.step = *op.step_at;
  if (op.learning_rate_at != nullptr) now.learning_rate = *op.learning_rate_at;
  require_invariant(now.step >= 1, "Adam's step counts from 1");
  for_elements(table_.adam, now);
}
void CpuBackend::run(const SgdStep& op) {
  require_float(op.weight_dtype);
  SgdStep now = op;
  if (op.learning_rate_at != nullptr) now.learning_rate = *op.learning_rate_at;
  for_elements(table_.sgd, now);
}

void CpuBackend::run(const SquaredNorm& op) {
  const std::int64_t blocks = (op.count + kNormBlock - 1) / kNormBlock;
  require_scratch(blocks * size_of(DType::F64));
  double* sums = reinterpret_cast<double*>(scratch_.data());
  parallel_for(num_threads_, blocks, 1, [&](Range range, int /*thread*/) {
    for (std::int64_t block = range.begin; block < range.end; ++block) {
      const std::int64_t begin = block * kNormBlock;
      sums[block] = table_.sum_of_squares(op.x + begin, std::min(kNormBlock, op.count - begin));
    }
  });
  double sum = op.accumulate ? *op.sum : 0.0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += sums[block];
  *op.sum = sum;
}

void CpuBackend::run(const ClipCoefficient& op) {
  const double wanted = op.wanted_scale != nullptr ? *op.wanted_scale : 1.0;
  const double undo = op.applied_scale != nullptr ? wanted / double{*op.applied_scale} : 1.0;
  const double norm = std::sqrt(*op.sum_of_squares) * undo;
  if (op.norm != nullptr) *op.norm = static_cast<float>(norm);
  const double clip = std::min(1.0, double{op.max_norm} / (norm + 1e-6));
  *op.coefficient = std::isfinite(norm) ? static_cast<float>(clip * undo)
                                        : std::numeric_limits<float>::quiet_NaN();
}

void CpuBackend::run(const RandomNormal& op) {
  for_rows(table_.random_normal, op, op.rows, op.columns);
}

std::unique_ptr<Backend> make_cpu_backend(int num_threads, std::optional<CpuIsa> isa) {
  if (num_threads < 1)
    throw ConfigError(fmt::format("num_threads = {}: at least 1 thread computes", num_threads));
  const CpuIsa best = best_cpu_isa();
  const CpuIsa wanted = isa.value_or(best);
  if (wanted > best)
    throw ConfigError(fmt::format("this CPU lacks {}; it has {}", name_of(wanted), name_of(best)));
  return std::make_unique<CpuBackend>(num_threads, wanted);
}

}  // namespace meshplan::kernels
