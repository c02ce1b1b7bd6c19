// Routing of tokens to experts: the router's choice, the dispatch plan, and the order of exchanged
// rows. Moving the rows themselves is in simd/expert_dispatch.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "cpu_backend.hpp"
#include "threads.hpp"

namespace meshplan::kernels {

namespace {

constexpr std::int64_t kRowGrain = 16;  // tokens below which a second thread costs more

float element(const void* data, DType dtype, std::int64_t index) {
  if (dtype == DType::F32) return static_cast<const float*>(data)[index];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
  return std::bit_cast<float>(bits << 16);
}

void set_element(void* data, DType dtype, std::int64_t index, float value) {
  if (dtype == DType::F32) {
    static_cast<float*>(data)[index] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);  // to nearest even
  const std::uint32_t kept = std::isnan(value) ? bits | 0x400000U : rounded;
  static_cast<std::uint16_t*>(data)[index] = static_cast<std::uint16_t>(kept >> 16);
}

void require_router(int experts, int top_k, DType dtype) {
  require_invariant(top_k >= 1 && top_k <= experts, "top_k is among the experts");
  require_invariant(dtype == DType::F32 || dtype == DType::BF16, "logits are fp32 or bf16");
}

/// The scores of token t, which may lie where its logits do.
void write_scores(const RouterForward& op, std::int64_t t) {
  const auto logit = [&](int x) { return element(op.logits, op.dtype, t * op.logits_stride + x); };
  float* scores = op.scores + t * op.experts;
  if (op.score == RouterScore::Sigmoid) {
    for (int x = 0; x < op.experts; ++x) scores[x] = 1.0F / (1.0F + std::exp(-logit(x)));
    return;
  }
  float maximum = -std::numeric_limits<float>::infinity();
  for (int x = 0; x < op.experts; ++x) maximum = std::max(maximum, logit(x));
  float sum = 0.0F;
  for (int x = 0; x < op.experts; ++x) sum += scores[x] = std::exp(logit(x) - maximum);
  for (int x = 0; x < op.experts; ++x) scores[x] /= sum;
}

void choose(const RouterForward& op, std::int64_t t) {
  const float* scores = op.scores + t * op.experts;
  std::int32_t* choices = op.choices + t * op.top_k;
  float* probabilities = op.probabilities + t * op.top_k;
  const auto key = [&](std::int32_t x) {
    const float value =
        op.correction_bias == nullptr ? scores[x] : scores[x] + op.correction_bias[x];
    // NaN is chosen, so that it is seen
    return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
  };
  // Insertion into the K best so far; a later expert must be strictly better, so ties keep the
  // smaller one.
  int held = 0;
  for (std::int32_t x = 0; x < op.experts; ++x) {
    const float own = key(x);
    if (held == op.top_k && !(own > key(choices[held - 1]))) continue;
    int place = held < op.top_k ? held++ : held - 1;
    for (; place > 0 && own > key(choices[place - 1]); --place) choices[place] = choices[place - 1];
    choices[place] = x;
  }
  float sum = 0.0F;
  for (int k = 0; k < op.top_k; ++k) sum += scores[choices[k]];
  const float factor = op.normalize ? op.scaling_factor / sum : op.scaling_factor;
  for (int k = 0; k < op.top_k; ++k) probabilities[k] = scores[choices[k]] * factor;
}

/// @param dscores  room for the gradients of one token's scores
void write_dlogits(const RouterBackward& op, std::int64_t t, float* dscores) {
  const float* scores = op.scores + t * op.experts;
  const std::int32_t* choices = op.choices + t * op.top_k;
  const float* dprobabilities = op.dprobabilities + t * op.top_k;
  for (int x = 0; x < op.experts; ++x)
    dscores[x] = op.dscores == nullptr ? 0.0F : op.dscores[t * op.experts + x];
  float sum = 0.0F;
  float weighted = 0.0F;  // sum of dprobability * score
  for (int k = 0; k < op.top_k; ++k) {
    sum += scores[choices[k]];
    weighted += dprobabilities[k] * scores[choices[k]];
  }
  for (int k = 0; k < op.top_k; ++k) {
    const float gradient =
        op.normalize ? (dprobabilities[k] - weighted / sum) / sum : dprobabilities[k];
    dscores[choices[k]] += op.scaling_factor * gradient;
  }
  float mean = 0.0F;  // sum of dscore * score, for softmax
  for (int x = 0; x < op.experts; ++x) mean += dscores[x] * scores[x];
  for (int x = 0; x < op.experts; ++x) {
    const float gradient = op.score == RouterScore::Softmax
                               ? scores[x] * (dscores[x] - mean)
                               : dscores[x] * scores[x] * (1.0F - scores[x]);
    set_element(op.dlogits, op.dtype, t * op.dlogits_stride + x, gradient);
  }
}

}  // namespace

void CpuBackend::run(const RouterForward& op) {
  require_router(op.experts, op.top_k, op.dtype);
  parallel_for(num_threads_, op.tokens, kRowGrain, [&](Range range, int /*thread*/) {
    for (std::int64_t t = range.begin; t < range.end; ++t) {
      write_scores(op, t);
      choose(op, t);
    }
  });
}

std::int64_t CpuBackend::scratch_bytes(const RouterBackward& op) {
  return std::int64_t{num_threads_} * op.experts * size_of(DType::F32);
}

void CpuBackend::run(const RouterBackward& op) {
  require_router(op.experts, op.top_k, op.dtype);
  require_scratch(scratch_bytes(op));
  parallel_for(num_threads_, op.tokens, kRowGrain, [&](Range range, int thread) {
    for (std::int64_t t = range.begin; t < range.end; ++t)
      write_dlogits(op, t, thread_scratch(thread, op.experts));
  });
}

/// A counting sort: stable, so rows of an expert keep the order of their choices.
void CpuBackend::run(const DispatchPlan& op) {
  const std::int64_t count = op.tokens * op.top_k;
  std::int32_t* offsets = op.offsets;
  std::fill_n(offsets, op.experts + 1, 0);
  for (std::int64_t c = 0; c < count; ++c) {
    require_invariant(op.choices[c] >= 0 && op.choices[c] < op.experts, "choices are experts");
    ++offsets[op.choices[c]];
  }
  // offsets[x]: where expert x begins, moved on by every row placed, then shifted back by one.
  std::exclusive_scan(offsets, offsets + op.experts + 1, offsets, 0);
  for (std::int64_t c = 0; c < count; ++c) {
    const std::int32_t row = offsets[op.choices[c]]++;
    op.row_of_choice[c] = row;
    op.choice_of_row[row] = static_cast<std::int32_t>(c);
  }
  std::copy_backward(offsets, offsets + op.experts, offsets + op.experts + 1);
  offsets[0] = 0;
}

void CpuBackend::run(const DispatchForward& op) {
  parallel_for(num_threads_, op.tokens * op.top_k, kRowGrain,
               [&](Range range, int /*thread*/) { table_.dispatch_forward(op, range); });
}

void CpuBackend::run(const DispatchBackward& op) {
  run(CombineForward{.tokens = op.tokens,
                     .top_k = op.top_k,
                     .size = op.size,
                     .dtype = op.dtype,
                     .row_of_choice = op.row_of_choice,
                     .probabilities = nullptr,
                     .rows = op.drows,
                     .rows_stride = op.drows_stride,
                     .y = op.dx,
                     .y_stride = op.dx_stride});
}

void CpuBackend::run(const CombineForward& op) {
  parallel_for(num_threads_, op.tokens, kRowGrain,
               [&](Range range, int /*thread*/) { table_.combine_forward(op, range); });
}

void CpuBackend::run(const CombineBackward& op) {
  parallel_for(num_threads_, op.tokens, kRowGrain,
               [&](Range range, int /*thread*/) { table_.combine_backward(op, range); });
}

void CpuBackend::run(const ExpertCounts& op) {
  std::adjacent_difference(op.offsets + 1, op.offsets + op.experts + 1, op.counts);
}

void CpuBackend::run(const ExchangeSizes& op) {
  for (int rank = 0; rank < op.ranks; ++rank) {
    const std::int64_t first = std::int64_t{rank} * op.local_experts;
    const auto total = [&](const std::int32_t* counts) {
      return std::accumulate(counts + first, counts + first + op.local_experts, 0);
    };
    op.rows[rank] = total(op.sent);
    op.rows[op.ranks + rank] = total(op.received);
  }
  op.offsets[0] = 0;
  for (int x = 0; x < op.local_experts; ++x) {
    std::int32_t rows = 0;
    for (int rank = 0; rank < op.ranks; ++rank) rows += op.received[rank * op.local_experts + x];
    op.offsets[x + 1] = op.offsets[x] + rows;
  }
}

void CpuBackend::run(const RegroupRows& op) {
  const std::int64_t row_bytes = op.size * size_of(op.dtype);
  const auto block = [&](int rank, int x) -> std::int64_t {
    return op.received[rank * op.local_experts + x];
  };
  const auto* from = static_cast<const std::byte*>(op.from);
  auto* to = static_cast<std::byte*>(op.to);
  std::int64_t by_expert = 0;  // rows before this block, in either order
  for (int x = 0; x < op.local_experts; ++x) {
    std::int64_t by_rank = 0;
    for (int rank = 0; rank < op.ranks; ++rank) {
      for (int before = 0; before < x; ++before) by_rank += block(rank, before);
      const std::int64_t rows = block(rank, x);
      const std::int64_t source = op.to_experts ? by_rank : by_expert;
      const std::int64_t target = op.to_experts ? by_expert : by_rank;
      require_invariant(std::max(by_rank, by_expert) + rows <= op.max_rows,
                        "received rows fit the buffer");
      std::memcpy(to + target * row_bytes, from + source * row_bytes,
                  static_cast<std::size_t>(rows * row_bytes));
      by_expert += rows;
      for (int after = x; after < op.local_experts; ++after) by_rank += block(rank, after);
    }
  }
}

}  // namespace meshplan::kernels
