#include "device/column_sums.cuh"
#include "device/reduce.cuh"
#include "embeddings/rotation.cuh"
#include "norms/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

using Group = RowGroup<kWarp>;  // heads have 64 to 256 elements: a warp each

template <int width, class T>
__device__ void rotate_packs(T* head, const float* cosine, std::int64_t half, float sign) {
  for (std::int64_t i = std::int64_t{Group::thread()} * width; i < half; i += kWarp * width)
    rotate_pairs<width>(head, cosine, half, i, sign);
}

/// Rotates a head where it lies, which this warp has just written or is to read: it is in L1.
/// @param wide  whether packs of `width` elements divide the rotated halves
template <int width, class T>
__device__ void rotate_head(T* head, std::int64_t t, const HeadRotation& rotation, bool wide,
                            float sign) {
  if (rotation.table == nullptr) return;
  const std::int64_t half = rotation.rope_size / 2;
  const float* cosine = rotation.table + rotation.positions.of(t) * rotation.rope_size;
  __syncwarp();  // its elements are other lanes'
  if (wide)
    rotate_packs<width>(head, cosine, half, sign);
  else
    rotate_packs<1>(head, cosine, half, sign);
  __syncwarp();
}

/// A head of a token per warp; those of the values are copied.
template <class T, int width>
__global__ void forward_kernel(const HeadRmsNormForward op, bool wide_rotation) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t all = heads + 2 * kv_heads;
  const std::int64_t item = std::int64_t{blockIdx.x} * Group::kRowsPerBlock + Group::group();
  const std::int64_t t = item / all;
  const std::int64_t head = item - t * all;
  if (t >= tokens) return;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride + head * size;
  T* y = static_cast<T*>(op.y) + t * op.x_stride + head * size;
  if (head >= heads + kv_heads) {
    for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
      store_pack(y + i, load_pack<decltype(n)::value>(x + i));
    });
    return;
  }
  const T* weight = static_cast<const T*>(head < heads ? op.q_weight : op.k_weight);
  float squares = 0.0F;
  for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto value = load_pack<kN>(x + i);
    for (int j = 0; j < kN; ++j) squares += value[j] * value[j];
  });
  const float mean_square = warp_reduce(squares, Sum()) / static_cast<float>(size);
  const float inv_rms = 1.0F / sqrtf(mean_square + op.epsilon);
  if (Group::thread() == 0) op.inv_rms[head * tokens + t] = inv_rms;
  for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) value[j] = value[j] * inv_rms * w[j];
    store_pack(y + i, value);
  });
  rotate_head<width>(y, t, op.rotation, wide_rotation, 1.0F);
}

/// dx of one head, in place; adds its dweight to `column_sums`. Once dy is rotated back, a lane
/// reads and writes its own columns only.
template <class T, int width>
__device__ void backward_head(const HeadRmsNormBackward& op, std::int64_t t, std::int64_t head,
                              bool wide_rotation, float* column_sums) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  T* gradient = static_cast<T*>(op.gradient) + t * op.gradient_stride + head * size;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride + head * size;
  const T* weight = static_cast<const T*>(head < heads ? op.q_weight : op.k_weight);
  const float inv_rms = op.inv_rms[head * tokens + t];
  rotate_head<width>(gradient, t, op.rotation, wide_rotation, -1.0F);
  float products = 0.0F;
  for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(gradient + i);
    const auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) {
      column_sums[i + j] += grad[j] * (value[j] * inv_rms);
      products += grad[j] * w[j] * value[j];
    }
  });
  // mean(g n) inv_rms^2, so that dx = inv_rms g - x factor
  const float factor =
      warp_reduce(products, Sum()) / static_cast<float>(size) * inv_rms * inv_rms * inv_rms;
  for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto grad = load_pack<kN>(gradient + i);
    const auto value = load_pack<kN>(x + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) grad[j] = grad[j] * w[j] * inv_rms - value[j] * factor;
    store_pack(gradient + i, grad);
  });
}

/// A range of (token, head). Shared: sums of dq_weight and dk_weight for every warp.
template <class T, int width>
__global__ void backward_kernel(const HeadRmsNormBackward op, std::int64_t items_per_block,
                                bool wide_rotation, float* partials, unsigned* tickets) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  float* all_sums = dynamic_shared<float>();
  float* own_sums = all_sums + Group::group() * 2 * size;
  // As for_each_column_pack deals columns out, so that no lane needs another's zeros.
  for (const std::int64_t of_k : {std::int64_t{0}, size})
    for_each_column_pack<width>(size, Group::thread(), kWarp, [&](std::int64_t i, auto n) {
      for (int j = 0; j < decltype(n)::value; ++j) own_sums[of_k + i + j] = 0.0F;
    });
  const std::int64_t normed = heads + kv_heads;
  const std::int64_t items = tokens * normed;
  const std::int64_t first = std::int64_t{blockIdx.x} * items_per_block;
  const std::int64_t end = first + items_per_block < items ? first + items_per_block : items;
  for (std::int64_t item = first + Group::group(); item < end; item += Group::kRowsPerBlock) {
    const std::int64_t t = item / normed;
    const std::int64_t head = item - t * normed;
    backward_head<T, width>(op, t, head, wide_rotation, own_sums + (head < heads ? 0 : size));
  }
  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < 2 * size; i += blockDim.x) {
    float sum = 0.0F;
    for (int group = 0; group < Group::kRowsPerBlock; ++group)
      sum += all_sums[group * 2 * size + i];
    partials[std::int64_t{blockIdx.x} * 2 * size + i] = sum;
  }
  sum_over_blocks<1>(
      partials, 2 * size, tickets,
      {.first = op.dq_weight, .second = op.dk_weight, .split = size, .accumulate = op.accumulate});
}

/// Whether packs of `width` elements divide the rotated halves.
bool is_wide(int width, const HeadRotation& rotation) {
  require_invariant(rotation.rope_size % 2 == 0, "rope_size is even");
  const std::int64_t half = rotation.rope_size / 2;
  return rotation.table != nullptr && half % width == 0 &&
         allows_packs(width,
                      {{rotation.table, rotation.rope_size, 4}, {rotation.table + half, 0, 4}});
}

RowRanges ranges_of(const HeadRmsNormBackward& op) {
  return head_norm_ranges(op.shape.tokens, op.shape.heads + op.shape.kv_heads);
}

}  // namespace

void enqueue(const Context& context, const HeadRmsNormForward& op) {
  const auto& [tokens, heads, kv_heads, size] = op.shape;
  const std::int64_t blocks = ceil_div(tokens * (heads + 2 * kv_heads), Group::kRowsPerBlock);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kRowThreads)};
  const std::int64_t head_size = size;
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const std::int64_t bytes = sizeof(T);
    const bool aligned =
        head_size % kWide == 0 && allows_packs(kWide, {{op.x, op.x_stride, bytes},
                                                       {op.q_weight, 0, bytes},
                                                       {op.k_weight, 0, bytes},
                                                       {op.y, op.x_stride, bytes}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      launch(context, shape, forward_kernel<T, decltype(width)::value>, op,
             is_wide(kWide, op.rotation));
    });
  });
}

std::int64_t scratch_bytes(const HeadRmsNormBackward& op) {
  return ranges_of(op).num_blocks * 2 * op.shape.head_size * size_of(DType::F32);
}

void enqueue(const Context& context, const HeadRmsNormBackward& op) {
  require_scratch(context, scratch_bytes(op));
  auto* partials = reinterpret_cast<float*>(context.scratch.data());
  const RowRanges ranges = ranges_of(op);
  const std::int64_t size = op.shape.head_size;
  if (op.shape.tokens == 0)
    for (float* out : {op.dq_weight, op.dk_weight})
      if (out != nullptr)
        enqueue_sum_partials(context, partials, 0, size, size, out, op.accumulate);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ranges.num_blocks)),
      .block = dim3(kRowThreads),
      .shared_bytes = shared_for_sums(context, Group::kRowsPerBlock * 2 * size)};
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const std::int64_t bytes = sizeof(T);
    const bool aligned =
        size % kWide == 0 && allows_packs(kWide, {{op.gradient, op.gradient_stride, bytes},
                                                  {op.x, op.x_stride, bytes},
                                                  {op.q_weight, 0, bytes},
                                                  {op.k_weight, 0, bytes}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      launch(context, shape, backward_kernel<T, decltype(width)::value>, op, ranges.rows_per_block,
             is_wide(kWide, op.rotation), partials, context.tickets);
    });
  });
}

}  // namespace meshplan::kernels::cuda
