// Flash attention, forward: Dao et al. 2022, algorithm 1, with the loop order of Dao 2023
// (FlashAttention-2, section 3.1). One block does 64 (or 32) queries of one head and walks the keys
// that they see; K and V tiles are fetched while the other one is multiplied.
#include "attention/attention_launch.cuh"

namespace meshplan::kernels::cuda {

namespace {

/// Running softmax of rows g and g + 8, in base 2: scores are multiplied by scale * log2(e).
struct RunningSoftmax {
  float max[2] = {-kInfinity, -kInfinity};
  float sum[2] = {0.0F, 0.0F};
};

/// Before the mask: a cap would bring -infinity back.
template <int kTiles>
__device__ void cap(float (&scores)[kTiles][4], const AttentionShape& shape) {
  if (shape.softcap <= 0.0F) return;
#pragma unroll
  for (auto& tile : scores)
    for (float& score : tile) score = capped_score(shape, score);
}

/// Hides what the queries of this warp do not see.
template <int kKeys>
__device__ void mask(float (&scores)[kKeys / 8][4], const Visibility& visibility,
                     std::int64_t query, std::int64_t first_key) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Span keys = visibility.keys_of(query + lane_row() + 8 * half);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
      for (int j = 0; j < 2; ++j)
        if (!keys.contains(first_key + 8 * n + lane_column() + j))
          scores[n][2 * half + j] = -kInfinity;
  }
}

/// scores -> probabilities relative to the running maximum; what was summed before shrinks.
template <int kKeys, int kHead>
__device__ void soften(float (&scores)[kKeys / 8][4], float (&output)[kHead / 8][4],
                       RunningSoftmax& running, float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float block_max = -kInfinity;
#pragma unroll
    for (const auto& tile : scores)
      for (int j = 0; j < 2; ++j) block_max = fmaxf(block_max, tile[2 * half + j]);
    const float new_max = fmaxf(running.max[half], quad_max(block_max) * scale_log2);
    const float base = new_max == -kInfinity ? 0.0F : new_max;  // -inf - -inf is not a number
    const float shrink = exp2f(running.max[half] - base);
    float sum = 0.0F;
#pragma unroll
    for (auto& tile : scores) {
      for (int j = 0; j < 2; ++j) {
        tile[2 * half + j] = exp2f(tile[2 * half + j] * scale_log2 - base);
        sum += tile[2 * half + j];
      }
    }
    running.max[half] = new_max;
    running.sum[half] = running.sum[half] * shrink + sum;  // of this lane's columns
#pragma unroll
    for (auto& tile : output)
      for (int j = 0; j < 2; ++j) tile[2 * half + j] *= shrink;
  }
}

template <class T, int kHead>
__global__ void __launch_bounds__(AttentionTiles<T, kHead>::kWarps* kWarp)
    attention_forward_kernel(const AttentionForward op, bool aligned) {
  constexpr int kQueries = AttentionTiles<T, kHead>::kOuter;
  constexpr int kKeys = AttentionTiles<T, kHead>::kInner;
  T* q_tile = dynamic_shared<T>();
  T* k_tile = q_tile + kQueries * kTileStride<T, kHead>;
  T* v_tile = k_tile + kKeys * kTileStride<T, kHead>;

  const AttentionShape& shape = op.shape;
  const HeadPlace at(shape, blockIdx.y, blockIdx.z);
  const Visibility visibility(op, at.sequence);
  const HeadRows<T> q =
      at.rows<T>(op.q, op.q_stride, at.head, at.head_size, shape.query_len, aligned);
  const HeadRows<T> k =
      at.rows<T>(op.k, op.kv_stride, at.kv_head, at.head_size, shape.key_len, aligned);
  const HeadRows<T> v =
      at.rows<T>(op.v, op.kv_stride, at.kv_head, at.value_size, shape.key_len, aligned);
  // Late queries see more keys under a causal mask: they go first.
  const std::int64_t first_query = std::int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const std::int64_t query = first_query + warp_row;
  const Span keys = visibility.keys_of(first_query, kQueries);
  const float scale_log2 = exponent_scale(shape);

  float output[kHead / 8][4] = {};
  RunningSoftmax running;
  if (op.sinks != nullptr) {  // one more score, in one lane of the four that hold a row
    const float sink = to_float(static_cast<const T*>(op.sinks)[at.head]) * kLog2e;
    for (int half = 0; half < 2; ++half) {
      running.max[half] = sink;
      running.sum[half] = lane_column() == 0 ? 1.0F : 0.0F;
    }
  }
  load_tile<kQueries, kHead>(q_tile, q, first_query, shape.query_len);
  const auto next_tile = [&](std::int64_t key) {
    return visibility.next_tile(key, keys.end, kKeys, first_query, kQueries);
  };
  std::int64_t key = next_tile(keys.begin);
  if (key < keys.end) load_tile<kKeys, kHead>(k_tile, k, key, keys.end);
  while (key < keys.end) {
    wait_for_copies();
    __syncthreads();  // k has arrived; everyone is done with the v before
    load_tile<kKeys, kHead>(v_tile, v, key, keys.end);
    float scores[kKeys / 8][4];
    multiply_rows<kKeys, kHead>(scores, q_tile + warp_row * kTileStride<T, kHead>, k_tile);
    cap(scores, shape);
    mask<kKeys>(scores, visibility, query, key);
    soften<kKeys, kHead>(scores, output, running, scale_log2);
    wait_for_copies();
    __syncthreads();  // v has arrived; everyone is done with this k
    key = next_tile(key + kKeys);
    if (key < keys.end) load_tile<kKeys, kHead>(k_tile, k, key, keys.end);
    accumulate_rows<kKeys, kHead, kHead>(output, scores, v_tile);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(running.sum[half]);
    inverse[half] = sum > 0.0F ? 1.0F / sum : 0.0F;
    const std::int64_t row = query + lane_row() + 8 * half;
    if (lane_column() == 0 && row < shape.query_len)
      op.lse[statistic_index(shape, op.lse_stride, at.sequence, at.head, row)] =
          sum > 0.0F ? running.max[half] * kLn2 + logf(sum) : -kInfinity;
  }
  T* o = at.rows_to<T>(op.o, op.o_stride, at.head, at.value_size, shape.query_len);
  store_rows<kHead>(o, op.o_stride, at.value_size, query, shape.query_len, output, inverse);
}

template <class T, int kHead>
void enqueue_forward(const Context& context, const AttentionForward& op) {
  using Tiles = AttentionTiles<T, kHead>;
  const bool aligned =
      allows_copies<T>(op.shape, {{op.q, op.q_stride}, {op.k, op.kv_stride}, {op.v, op.kv_stride}});
  launch_attention(context, op.shape, op.shape.heads, ceil_div(op.shape.query_len, Tiles::kOuter),
                   Tiles::kWarps * kWarp, tile_bytes<T, kHead>(Tiles::kOuter + 2 * Tiles::kInner),
                   attention_forward_kernel<T, kHead>, op, aligned);
}

}  // namespace

void enqueue_flash(const Context& context, const AttentionForward& op) {
  with_attention_types(op.dtype, op.shape, [&](auto type, auto head) {
    enqueue_forward<typename decltype(type)::type, decltype(head)::value>(context, op);
  });
}

}  // namespace meshplan::kernels::cuda
