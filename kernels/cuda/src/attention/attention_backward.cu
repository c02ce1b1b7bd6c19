// Flash attention, backward: Dao et al. 2022, algorithm 4, in two passes instead of atomic sums:
// one block owns a tile of dq, another one a tile of dk and dv.
#include "attention/attention_launch.cuh"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kDeltaThreads = 128;  // 4 rows at a time: one warp a row of a head

/// delta, laid out as statistics: sum of do * o over the head.
template <class T>
__global__ void delta_kernel(const AttentionBackward op, float* delta) {
  const AttentionShape& shape = op.shape;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t index =
      (std::int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) / kWarp;  // row * heads + head
  if (index >= shape.num_sequences * shape.query_len * shape.heads) return;
  const std::int64_t begin =
      index / shape.heads * op.o_stride + index % shape.heads * value_size_of(shape);
  const T* o = static_cast<const T*>(op.o) + begin;
  const T* output_grad = static_cast<const T*>(op.output_grad) + begin;
  float sum = 0.0F;
  for (int e = lane; e < value_size_of(shape); e += kWarp)
    sum += to_float(o[e]) * to_float(output_grad[e]);
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (lane != 0) return;
  const std::int64_t row = index / shape.heads;
  delta[statistic_index(shape, 0, row / shape.query_len, index % shape.heads,
                        row % shape.query_len)] = sum;
}

/// p = exp(scale s - lse), zero where not visible; ds = p (dp - delta), with a soft cap times its
/// slope, without the scale.
__device__ inline float probability(float score, float scale_log2, float lse, bool visible) {
  return visible ? exp2f(score * scale_log2 - lse * kLog2e) : 0.0F;
}

template <class T, int kHead>
__global__ void __launch_bounds__(AttentionTiles<T, kHead>::kWarps* kWarp)
    attention_dq_kernel(const AttentionBackward op, const float* delta, bool aligned) {
  constexpr int kQueries = AttentionTiles<T, kHead>::kOuter;
  constexpr int kKeys = AttentionTiles<T, kHead>::kBackwardInner;
  constexpr int kStride = kTileStride<T, kHead>;
  T* q_tile = dynamic_shared<T>();
  T* do_tile = q_tile + kQueries * kStride;
  T* k_tile = do_tile + kQueries * kStride;
  T* v_tile = k_tile + kKeys * kStride;

  const AttentionShape& shape = op.shape;
  const HeadPlace at(shape, blockIdx.y, blockIdx.z);
  const Visibility visibility(op, at.sequence);
  const HeadRows<T> k =
      at.rows<T>(op.k, op.kv_stride, at.kv_head, at.head_size, shape.key_len, aligned);
  const HeadRows<T> v =
      at.rows<T>(op.v, op.kv_stride, at.kv_head, at.value_size, shape.key_len, aligned);
  const std::int64_t first_query = std::int64_t{gridDim.x - 1 - blockIdx.x} * kQueries;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const std::int64_t query = first_query + warp_row;
  const float scale_log2 = exponent_scale(shape);
  load_tile<kQueries, kHead>(
      q_tile, at.rows<T>(op.q, op.q_stride, at.head, at.head_size, shape.query_len, aligned),
      first_query, shape.query_len);
  load_tile<kQueries, kHead>(
      do_tile,
      at.rows<T>(op.output_grad, op.o_stride, at.head, at.value_size, shape.query_len, aligned),
      first_query, shape.query_len);
  float row_lse[2];
  float row_delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = query + lane_row() + 8 * half;
    const bool exists = row < shape.query_len;
    const auto index = [&](std::int64_t stride) {
      return statistic_index(shape, stride, at.sequence, at.head, row);
    };
    row_lse[half] = exists ? op.lse[index(op.lse_stride)] : 0.0F;
    row_delta[half] = exists ? delta[index(0)] : 0.0F;
  }

  float dq[kHead / 8][4] = {};
  const Span keys = visibility.keys_of(first_query, kQueries);
  const auto next_tile = [&](std::int64_t key) {
    return visibility.next_tile(key, keys.end, kKeys, first_query, kQueries);
  };
  for (std::int64_t key = next_tile(keys.begin); key < keys.end; key = next_tile(key + kKeys)) {
    __syncthreads();  // everyone is done with the tiles before
    load_tile<kKeys, kHead>(k_tile, k, key, keys.end);
    load_tile<kKeys, kHead>(v_tile, v, key, keys.end);
    wait_for_copies();
    __syncthreads();
    float scores[kKeys / 8][4];
    float dp[kKeys / 8][4];
    multiply_rows<kKeys, kHead>(scores, q_tile + warp_row * kStride, k_tile);
    multiply_rows<kKeys, kHead>(dp, do_tile + warp_row * kStride, v_tile);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Span visible = visibility.keys_of(query + lane_row() + 8 * half);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          const int i = 2 * half + j;
          const float score = capped_score(shape, scores[n][i]);
          const float p = probability(score, scale_log2, row_lse[half],
                                      visible.contains(key + 8 * n + lane_column() + j));
          dp[n][i] = p * (dp[n][i] - row_delta[half]) * soft_cap_slope(score, shape.softcap);
        }
      }
    }
    accumulate_rows<kKeys, kHead, kHead>(dq, dp, k_tile);
  }
  const float factor[2] = {shape.scale, shape.scale};
  store_rows<kHead>(at.rows_to<T>(op.dq, op.dq_stride, at.head, at.head_size, shape.query_len),
                    op.dq_stride, shape.head_size, query, shape.query_len, dq, factor);
}

/// Columns of dk and dv that one block sums: both sets of accumulators stay in registers.
template <int kHead>
constexpr int kGradColumns = kHead < 128 ? kHead : 128;

/// Shared memory of a block of attention_dkv_kernel.
template <class T, int kHead>
constexpr std::size_t kDkvSharedBytes =
    tile_bytes<T, kHead>(2 * AttentionTiles<T, kHead>::kOuter +
                         2 * AttentionTiles<T, kHead>::kBackwardInner) +
    2 * AttentionTiles<T, kHead>::kBackwardInner * sizeof(float);

/// Rows are keys here and columns queries: everything is the transpose of attention_dq_kernel. The
/// query heads of a key head follow each other, queries ascend: a fixed order of summation.
/// blockIdx.y = key head * parts + part, where a part is kGradColumns of the head.
template <class T, int kHead>
__global__ void __launch_bounds__(AttentionTiles<T, kHead>::kWarps* kWarp)
    attention_dkv_kernel(const AttentionBackward op, const float* delta, bool aligned) {
  constexpr int kKeys = AttentionTiles<T, kHead>::kOuter;
  constexpr int kQueries = AttentionTiles<T, kHead>::kBackwardInner;
  constexpr int kStride = kTileStride<T, kHead>;
  constexpr int kOut = kGradColumns<kHead>;
  constexpr int kParts = kHead / kOut;
  T* k_tile = dynamic_shared<T>();
  T* v_tile = k_tile + kKeys * kStride;
  T* q_tile = v_tile + kKeys * kStride;
  T* do_tile = q_tile + kQueries * kStride;
  float* lse = reinterpret_cast<float*>(do_tile + kQueries * kStride);
  float* row_delta = lse + kQueries;

  const AttentionShape& shape = op.shape;
  const int group = shape.heads / shape.kv_heads;
  const int kv_head = static_cast<int>(blockIdx.y) / kParts;
  const int first_column = static_cast<int>(blockIdx.y) % kParts * kOut;
  const HeadPlace at(shape, static_cast<unsigned>(kv_head * group), blockIdx.z);
  const Visibility visibility(op, at.sequence);
  const std::int64_t first_key = std::int64_t{blockIdx.x} * kKeys;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
  const std::int64_t key = first_key + warp_row;
  const float scale_log2 = exponent_scale(shape);
  load_tile<kKeys, kHead>(
      k_tile, at.rows<T>(op.k, op.kv_stride, kv_head, at.head_size, shape.key_len, aligned),
      first_key, visibility.num_keys);
  load_tile<kKeys, kHead>(
      v_tile, at.rows<T>(op.v, op.kv_stride, kv_head, at.value_size, shape.key_len, aligned),
      first_key, visibility.num_keys);

  float dk[kOut / 8][4] = {};
  float dv[kOut / 8][4] = {};
  const Span queries = visibility.queries_of(first_key, kKeys);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const HeadRows<T> q =
        at.rows<T>(op.q, op.q_stride, head, at.head_size, shape.query_len, aligned);
    const HeadRows<T> output_grad =
        at.rows<T>(op.output_grad, op.o_stride, head, at.value_size, shape.query_len, aligned);
    for (std::int64_t query = queries.begin; query < queries.end; query += kQueries) {
      __syncthreads();  // everyone is done with the tiles before
      load_tile<kQueries, kHead>(q_tile, q, query, queries.end);
      load_tile<kQueries, kHead>(do_tile, output_grad, query, queries.end);
      for (int i = static_cast<int>(threadIdx.x); i < kQueries; i += static_cast<int>(blockDim.x)) {
        const bool exists = query + i < queries.end;
        const auto index = [&](std::int64_t stride) {
          return statistic_index(shape, stride, at.sequence, head, query + i);
        };
        lse[i] = exists ? op.lse[index(op.lse_stride)] : 0.0F;
        row_delta[i] = exists ? delta[index(0)] : 0.0F;
      }
      wait_for_copies();
      __syncthreads();
      float p[kQueries / 8][4];
      float ds[kQueries / 8][4];
      multiply_rows<kQueries, kHead>(p, k_tile + warp_row * kStride, q_tile);
      multiply_rows<kQueries, kHead>(ds, v_tile + warp_row * kStride, do_tile);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n) {
        for (int j = 0; j < 2; ++j) {
          const int column = 8 * n + lane_column() + j;
          const Span visible = visibility.keys_of(query + column);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int i = 2 * half + j;
            const bool seen =
                query + column < queries.end && visible.contains(key + lane_row() + 8 * half);
            const float score = capped_score(shape, p[n][i]);
            p[n][i] = probability(score, scale_log2, lse[column], seen);
            ds[n][i] =
                p[n][i] * (ds[n][i] - row_delta[column]) * soft_cap_slope(score, shape.softcap);
          }
        }
      }
      accumulate_rows<kQueries, kHead, kOut>(dv, p, do_tile + first_column);
      accumulate_rows<kQueries, kHead, kOut>(dk, ds, q_tile + first_column);
    }
  }
  wait_for_copies();
  const float scale[2] = {shape.scale, shape.scale};
  const float one[2] = {1.0F, 1.0F};
  // A part beyond the head's own size has no columns: nothing is written.
  store_rows<kOut>(
      at.rows_to<T>(op.dk, op.dkv_stride, kv_head, at.head_size, shape.key_len) + first_column,
      op.dkv_stride, at.head_size - first_column, key, shape.key_len, dk, scale);
  store_rows<kOut>(
      at.rows_to<T>(op.dv, op.dkv_stride, kv_head, at.value_size, shape.key_len) + first_column,
      op.dkv_stride, at.value_size - first_column, key, shape.key_len, dv, one);
}

template <class T, int kHead>
void enqueue_backward(const Context& context, const AttentionBackward& op, float* delta) {
  using Tiles = AttentionTiles<T, kHead>;
  const AttentionShape& shape = op.shape;
  const bool aligned = allows_copies<T>(shape, {{op.q, op.q_stride},
                                                {op.k, op.kv_stride},
                                                {op.v, op.kv_stride},
                                                {op.output_grad, op.o_stride}});
  const std::int64_t row_heads = shape.num_sequences * shape.query_len * shape.heads;
  launch(context,
         {.grid = dim3(static_cast<unsigned>(ceil_div(row_heads * kWarp, kDeltaThreads))),
          .block = dim3(kDeltaThreads)},
         delta_kernel<T>, op, delta);
  launch_attention(context, shape, shape.heads, ceil_div(shape.query_len, Tiles::kOuter),
                   Tiles::kWarps * kWarp,
                   tile_bytes<T, kHead>(2 * Tiles::kOuter + 2 * Tiles::kBackwardInner),
                   attention_dq_kernel<T, kHead>, op, delta, aligned);
  launch_attention(context, shape, shape.kv_heads * (kHead / kGradColumns<kHead>),
                   ceil_div(shape.key_len, Tiles::kOuter), Tiles::kWarps * kWarp,
                   kDkvSharedBytes<T, kHead>, attention_dkv_kernel<T, kHead>, op, delta, aligned);
}

}  // namespace

std::int64_t flash_scratch_bytes(const AttentionBackward& op) {
  return op.shape.num_sequences * op.shape.query_len * op.shape.heads * size_of(DType::F32);
}

void enqueue_flash(const Context& context, const AttentionBackward& op) {
  require_scratch(context, flash_scratch_bytes(op));
  auto* delta = reinterpret_cast<float*>(context.scratch.data());
  with_attention_types(op.dtype, op.shape, [&](auto type, auto head) {
    enqueue_backward<typename decltype(type)::type, decltype(head)::value>(context, op, delta);
  });
}

}  // namespace meshplan::kernels::cuda
