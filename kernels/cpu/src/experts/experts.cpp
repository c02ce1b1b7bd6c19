// Movement of tokens to experts: the dispatch plan and the order of exchanged rows. The choice of
// the experts is in router.cpp. Moving the rows themselves is in simd/expert_dispatch.cpp.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/error.hpp"
#include "device/threads.hpp"
#include "experts/operators.hpp"

namespace meshplan::kernels::cpu {

/// A counting sort: stable, so rows of an expert keep the order of their choices.
void run(const Context& /*context*/, const DispatchPlan& op) {
  const std::int64_t count = op.tokens * op.top_k;
  std::int32_t* offsets = op.offsets;
  std::fill_n(offsets, op.experts + 1, 0);
  for (std::int64_t c = 0; c < count; ++c) {
    require_invariant(op.choices[c] < op.experts, "choices are experts");
    if (op.choices[c] >= 0) ++offsets[op.choices[c]];
  }
  // offsets[x]: where expert x begins, moved on by every row placed, then shifted back by one.
  std::exclusive_scan(offsets, offsets + op.experts + 1, offsets, 0);
  std::fill(op.choice_of_row + offsets[op.experts], op.choice_of_row + count, -1);
  for (std::int64_t c = 0; c < count; ++c) {
    op.row_of_choice[c] = -1;
    if (op.choices[c] < 0) continue;
    const std::int32_t row = offsets[op.choices[c]]++;
    op.row_of_choice[c] = row;
    op.choice_of_row[row] = static_cast<std::int32_t>(c);
  }
  std::copy_backward(offsets, offsets + op.experts, offsets + op.experts + 1);
  offsets[0] = 0;
}

void run(const Context& context, const DispatchForward& op) {
  parallel_for(context.num_threads, op.tokens * op.top_k, kRowGrain,
               [&](Range range, int /*thread*/) { context.table.dispatch_forward(op, range); });
}

void run(const Context& context, const DispatchBackward& op) {
  run(context, CombineForward{.tokens = op.tokens,
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

void run(const Context& context, const CombineForward& op) {
  parallel_for(context.num_threads, op.tokens, kRowGrain,
               [&](Range range, int /*thread*/) { context.table.combine_forward(op, range); });
}

void run(const Context& context, const CombineBackward& op) {
  parallel_for(context.num_threads, op.tokens, kRowGrain,
               [&](Range range, int /*thread*/) { context.table.combine_backward(op, range); });
}

void run(const Context& /*context*/, const ExpertCounts& op) {
  std::adjacent_difference(op.offsets + 1, op.offsets + op.experts + 1, op.counts);
}

void run(const Context& /*context*/, const ExchangeSizes& op) {
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

void run(const Context& /*context*/, const RegroupRows& op) {
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

}  // namespace meshplan::kernels::cpu
