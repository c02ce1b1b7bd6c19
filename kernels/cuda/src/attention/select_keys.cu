#include "attention/indexer_scores.cuh"
#include "attention/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr std::int64_t kSelectBlocks = 264;  // 2 for each of the 132 SMs of an H100

std::int64_t blocks_of(const SelectKeysForward& op) {
  return std::min(tokens_of(op.indexer), kSelectBlocks);
}

/// An integer that orders as the score does; a NaN is above all, -0 equals 0.
__device__ inline unsigned order_of(float score) {
  if (isnan(score)) return 0xffffffffU;
  const unsigned bits = __float_as_uint(score == 0.0F ? 0.0F : score);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// How many of the orders are at least `threshold`; all threads get it.
__device__ inline int count_from(const unsigned* order, int count, unsigned threshold) {
  int reaching = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kRowThreads)
    reaching += order[i] >= threshold ? 1 : 0;
  return group_reduce<kRowThreads>(reaching, Sum());
}

/// The `keep` largest of `count` > keep orders: the keep-th largest bit by bit, then those above it
/// and the first of those equal to it, ascending. @param first  position of order[0]
__device__ inline void select_largest(const unsigned* order, int count, int keep,
                                      std::int64_t first, std::int32_t* choices) {
  unsigned threshold = 0;  // the largest one that at least `keep` orders reach
  for (int bit = 31; bit >= 0; --bit) {
    const unsigned higher = threshold | 1U << bit;
    if (count_from(order, count, higher) >= keep) threshold = higher;
  }
  const int above = threshold < 0xffffffffU ? count_from(order, count, threshold + 1) : 0;
  int ties_seen = 0;
  int written = 0;
  for (int start = 0; start < count; start += kRowThreads) {
    const int i = start + static_cast<int>(threadIdx.x);
    const bool tie = i < count && order[i] == threshold;
    int ties = 0;
    const int tie_rank = ties_seen + block_exclusive_sum<kRowThreads>(tie ? 1 : 0, ties);
    const bool chosen = i < count && (order[i] > threshold || (tie && tie_rank < keep - above));
    int here = 0;
    const int place = written + block_exclusive_sum<kRowThreads>(chosen ? 1 : 0, here);
    if (chosen) choices[place] = static_cast<std::int32_t>(first + i);
    ties_seen += ties;
    written += here;
  }
}

/// Blocks take queries in turn; `orders` has a row of S for each block.
template <class T>
__global__ void select_kernel(const SelectKeysForward op, unsigned* orders) {
  const AttentionShape& shape = op.indexer.shape;
  unsigned* order = orders + std::int64_t{blockIdx.x} * shape.key_len;
  const std::int64_t tokens = shape.num_sequences * shape.query_len;
  for (std::int64_t token = blockIdx.x; token < tokens; token += gridDim.x) {
    const std::int64_t sequence = token / shape.query_len;
    const Span keys = Visibility(op.indexer, sequence).keys_of(token - sequence * shape.query_len);
    const bool counted = sequence < shape.num_sequences - op.uncounted_sequences;
    const int visible =
        counted && keys.end > keys.begin ? static_cast<int>(keys.end - keys.begin) : 0;
    std::int32_t* choices = op.choices + token * op.top_k;
    if (visible <= op.top_k) {
      for (int c = static_cast<int>(threadIdx.x); c < op.top_k; c += kRowThreads)
        choices[c] = c < visible ? static_cast<std::int32_t>(keys.begin + c) : -1;
      continue;
    }
    const std::int64_t first = sequence * shape.key_len + keys.begin;
    score_keys<T>(
        op.indexer, token, visible, dynamic_shared<float>(),
        [&](std::int64_t i) { return first + i; },
        [&](std::int64_t i, float score) { order[i] = order_of(score); });
    select_largest(order, visible, op.top_k, keys.begin, choices);
  }
}

}  // namespace

std::int64_t scratch_bytes(const SelectKeysForward& op) {
  return blocks_of(op) * op.indexer.shape.key_len * size_of(DType::I32);
}

void enqueue(const Context& context, const SelectKeysForward& op) {
  require_indexer(op.indexer, op.top_k);
  require_scratch(context, scratch_bytes(op));
  auto* orders = reinterpret_cast<unsigned*>(context.scratch.data());
  with_float_type(op.indexer.dtype, [&](auto type) {
    launch(context,
           indexer_blocks(context, op.indexer, blocks_of(op), 1, scoring_floats(op.indexer.shape)),
           select_kernel<typename decltype(type)::type>, op, orders);
  });
}

}  // namespace meshplan::kernels::cuda
