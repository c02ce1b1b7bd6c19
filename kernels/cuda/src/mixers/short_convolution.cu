#include "device/column_sums.cuh"
#include "elementwise/activation_functions.cuh"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kChannelThreads = 128;

/// Calls body(Count<taps>{}) for the run-time number, on the host.
template <class Body>
void with_taps(const ShortConvolutionShape& shape, const Body& body) {
  static_assert(kMaxConvolutionTaps == 4);
  require_invariant(shape.taps >= 1 && shape.taps <= kMaxConvolutionTaps,
                    "a short convolution has 1 to 4 taps");
  require_invariant(shape.seq_len > 0, "a short convolution is over sequences");
  if (shape.taps == 1)
    body(Count<1>{});
  else if (shape.taps == 2)
    body(Count<2>{});
  else if (shape.taps == 3)
    body(Count<3>{});
  else
    body(Count<4>{});
}

/// The number of taps on tokens before its own that token t has.
template <int taps, class Op>
__device__ int taps_before(const Op& op, std::int64_t t) {
  const std::int64_t before = tokens_before(t, op.shape.seq_len, op.positions);
  return static_cast<int>(before < taps - 1 ? before : taps - 1);
}

template <class T, int taps, int width>
__global__ void forward_kernel(const ShortConvolutionForward op) {
  const std::int64_t t = blockIdx.x;
  const T* weight = static_cast<const T*>(op.weight);
  const int before = taps_before<taps>(op, t);
  for_each_tile_pack<width>(op.shape.channels, [&](std::int64_t c, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> sum{};
    if (op.bias != nullptr) sum = load_pack<kN>(static_cast<const T*>(op.bias) + c);
    for (int d = 0; d <= before; ++d) {
      const auto x = load_pack<kN>(static_cast<const T*>(op.x) + (t - d) * op.x_stride + c);
      for (int j = 0; j < kN; ++j) sum[j] += to_float(weight[(c + j) * taps + taps - 1 - d]) * x[j];
    }
    if (op.shape.silu)
      for (int j = 0; j < kN; ++j) sum[j] = evaluate<ActivationKind::Silu>(sum[j]).value;
    store_pack(static_cast<T*>(op.y) + t * op.y_stride + c, sum);
  });
}

/// One channel at one token: x[d] and dx[d] are of the token d before.
template <int taps>
struct Channel {
  float weights[taps];
  float bias;
  float x[taps];
  float dx[taps];
  float dweights[taps];
  float dbias;

  __device__ void advance(float next) {
#pragma unroll
    for (int d = taps - 1; d > 0; --d) {
      x[d] = x[d - 1];
      dx[d] = dx[d - 1];
    }
    x[0] = next;
    dx[0] = 0.0F;
  }
  __device__ float pre_activation(int before) const {
    float sum = bias;
#pragma unroll
    for (int d = 0; d < taps; ++d)
      if (d <= before) sum += weights[d] * x[d];
    return sum;
  }
  __device__ void add_input_grads(float dpre, int before) {
#pragma unroll
    for (int d = 0; d < taps; ++d)
      if (d <= before) dx[d] += dpre * weights[d];
  }
  __device__ void add_weight_grads(float dpre, int before) {
#pragma unroll
    for (int d = 0; d < taps; ++d)
      if (d <= before) dweights[d] += dpre * x[d];
    dbias += dpre;
  }
};

template <class T, int taps>
__device__ Channel<taps> channel_of(const ShortConvolutionBackward& op, std::int64_t c) {
  Channel<taps> channel{};
  const T* weight = static_cast<const T*>(op.weight) + c * taps;
  for (int d = 0; d < taps; ++d) channel.weights[d] = to_float(weight[taps - 1 - d]);
  if (op.bias != nullptr) channel.bias = to_float(static_cast<const T*>(op.bias)[c]);
  return channel;
}

/// A channel per thread, a range of tokens per row of blocks; reads on beyond the range for those
/// that its last inputs are tapped by. `partials` (ranges, C (K + 1)): of dweight, then of dbias.
template <class T, int taps>
__global__ void backward_kernel(const ShortConvolutionBackward op, std::int64_t tokens_per_block,
                                float* partials) {
  const std::int64_t tokens = op.shape.tokens;
  const std::int64_t channels = op.shape.channels;
  const std::int64_t c = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  const T* x = static_cast<const T*>(op.x) + c;
  const T* dy = static_cast<const T*>(op.dy) + c;
  T* dx = op.dx == nullptr ? nullptr : static_cast<T*>(op.dx) + c;
  Channel<taps> channel = channel_of<T, taps>(op, c);
  const std::int64_t first = std::int64_t{blockIdx.y} * tokens_per_block;
  const std::int64_t end = first + tokens_per_block < tokens ? first + tokens_per_block : tokens;
  const std::int64_t last = end + taps - 1 < tokens ? end + taps - 1 : tokens;
  for (std::int64_t t = first < taps ? 0 : first - taps + 1; t < first; ++t)
    channel.advance(to_float(x[t * op.x_stride]));
  const auto put = [&](std::int64_t t, float value) {
    if (dx != nullptr && t >= first && t < end) dx[t * op.dx_stride] = from_float<T>(value);
  };
  for (std::int64_t t = first; t < last; ++t) {
    const int before = taps_before<taps>(op, t);
    channel.advance(to_float(x[t * op.x_stride]));
    float dpre = to_float(dy[t * op.dy_stride]);
    if (op.shape.silu) dpre *= evaluate<ActivationKind::Silu>(channel.pre_activation(before)).slope;
    channel.add_input_grads(dpre, before);
    if (t < end) channel.add_weight_grads(dpre, before);
    put(t - taps + 1, channel.dx[taps - 1]);
  }
#pragma unroll
  for (int d = 0; d < taps - 1; ++d) put(last - 1 - d, channel.dx[d]);
  if (partials == nullptr) return;
  float* sums = partials + std::int64_t{blockIdx.y} * channels * (taps + 1);
#pragma unroll
  for (int d = 0; d < taps; ++d) sums[c * taps + taps - 1 - d] = channel.dweights[d];
  sums[channels * taps + c] = channel.dbias;
}

RowRanges ranges_of(const ShortConvolutionBackward& op) {
  constexpr int kTokensAtOnce = 16;  // 128 tokens or more, of which 3 are computed twice
  return split_rows(op.shape.tokens, kTokensAtOnce);
}

bool has_sums(const ShortConvolutionBackward& op) {
  return op.dweight != nullptr || op.dbias != nullptr;
}

}  // namespace

void enqueue(const Context& context, const ShortConvolutionForward& op) {
  const std::int64_t channels = op.shape.channels;
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const std::int64_t bytes = sizeof(T);
    const bool aligned = allows_packs(
        kWide, {{op.x, op.x_stride, bytes}, {op.bias, 0, bytes}, {op.y, op.y_stride, bytes}});
    with_taps(op.shape, [&](auto taps) {
      with_pack_width<kWide>(aligned, [&](auto width) {
        constexpr int kWidth = decltype(width)::value;
        launch(context, tile_shape(op.shape.tokens, channels, kWidth),
               forward_kernel<T, decltype(taps)::value, kWidth>, op);
      });
    });
  });
}

std::int64_t scratch_bytes(const ShortConvolutionBackward& op) {
  if (!has_sums(op)) return 0;
  return ranges_of(op).num_blocks * op.shape.channels * (op.shape.taps + 1) * size_of(DType::F32);
}

void enqueue(const Context& context, const ShortConvolutionBackward& op) {
  require_scratch(context, scratch_bytes(op));
  auto* partials = has_sums(op) ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
  const RowRanges ranges = ranges_of(op);
  const std::int64_t channels = op.shape.channels;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(channels, kChannelThreads)),
                                       static_cast<unsigned>(ranges.num_blocks)),
                          .block = dim3(kChannelThreads)};
  with_float_type(op.dtype, [&](auto type) {
    with_taps(op.shape, [&](auto taps) {
      launch(context, shape, backward_kernel<typename decltype(type)::type, decltype(taps)::value>,
             op, ranges.rows_per_block, partials);
    });
  });
  const std::int64_t weights = channels * op.shape.taps;
  const std::int64_t stride = weights + channels;
  if (op.dweight != nullptr)
    enqueue_sum_partials(context, partials, ranges.num_blocks, stride, weights, op.dweight,
                         op.accumulate);
  if (op.dbias != nullptr)
    enqueue_sum_partials(context, partials + weights, ranges.num_blocks, stride, channels, op.dbias,
                         op.accumulate);
}

}  // namespace meshplan::kernels::cuda
