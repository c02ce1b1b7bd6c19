// What each chunk of the gated delta rule needs before its state is known.
#include "device/dispatch.hpp"
#include "mixers/gated_delta.cuh"

namespace meshplan::kernels::cuda {

namespace {

/// Takes arrays from the scratch, one after the other.
class Taker {
 public:
  explicit Taker(std::byte* memory) : memory_(memory) {}
  float* take(std::int64_t floats) {
    auto* taken = reinterpret_cast<float*>(memory_ + bytes_);
    bytes_ += ceil_div(floats * size_of(DType::F32), 256) * 256;
    return taken;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::int64_t bytes_ = 0;
};

DeltaScratch common_scratch(const GatedDeltaShape& shape, Taker& taker) {
  const std::int64_t slots = shape.num_sequences * shape.value_heads * shape.chunks();
  const std::int64_t rows = slots * shape.chunk_len;
  return {.of_tokens = taker.take(rows * static_cast<std::int64_t>(OfToken::Count)),
          .inverse = taker.take(rows * shape.chunk_len),
          .scores = taker.take(rows * shape.chunk_len),
          .rhs = taker.take(rows * shape.value_size),
          .updates = taker.take(rows * shape.value_size)};
}

/// Gates, and decays from the chunk's begin and to its end.
template <class T>
__device__ void fill_gates(const DeltaSlot<T>& s) {
  const auto i = static_cast<int>(threadIdx.x);
  if (i < s.count) {
    const DeltaGate gate = delta_gate(s, i);
    s.of_tokens(OfToken::Beta)[i] = gate.beta;
    s.of_tokens(OfToken::Decay)[i] = gate.decay;
  }
  __syncthreads();
  if (i == 0) {
    double all = 0.0;  // fp32 would round differences of far decays
    int begin = 0;
    for (int t = 0; t < s.count; ++t) {
      if (s.in.positions != nullptr && s.in.positions[s.row + t] == 0) begin = t;
      all += double{s.of_token(OfToken::Decay, t)};
      const auto high = static_cast<float>(all);
      s.of_tokens(OfToken::DecayHigh)[t] = high;
      s.of_tokens(OfToken::DecayLow)[t] = static_cast<float>(all - double{high});
      s.of_tokens(OfToken::Begin)[t] = static_cast<float>(begin);
    }
  }
  __syncthreads();
  if (i >= s.count) return;
  bool of_before = true;  // no document has begun in the chunk
  if (s.in.positions != nullptr)
    for (int t = 0; t <= i; ++t) of_before = of_before && s.in.positions[s.row + t] != 0;
  const float from_begin = of_before ? expf(s.of_token(OfToken::DecayHigh, i)) : 0.0F;
  s.of_tokens(OfToken::FromBegin)[i] = from_begin;
  s.of_tokens(OfToken::ToEnd)[i] = s.decay(s.count - 1, i);
  if (i == s.count - 1) *s.of_tokens(OfToken::StateDecay) = from_begin;
}

/// What queries and keys are multiplied by to have length 1: a warp for each row.
template <class T>
__device__ void fill_norms(const DeltaSlot<T>& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < s.count; i += kDeltaThreads / kWarp) {
    float queries = 0.0F;
    float keys = 0.0F;
    for (std::int64_t e = lane; e < s.in.shape.key_size; e += kWarp) {
      queries += s.raw_query(i, e) * s.raw_query(i, e);
      keys += s.raw_key(i, e) * s.raw_key(i, e);
    }
    queries = warp_reduce(queries, Sum());
    keys = warp_reduce(keys, Sum());
    if (lane != 0) continue;
    s.of_tokens(OfToken::QueryNorm)[i] = 1.0F / sqrtf(queries + kDeltaNormEpsilon);
    s.of_tokens(OfToken::KeyNorm)[i] = 1.0F / sqrtf(keys + kDeltaNormEpsilon);
  }
  __syncthreads();
}

/// (I + L)^-1 by forward substitution, a column per thread; `lower` holds L.
template <class T>
__device__ void fill_inverse(const DeltaSlot<T>& s, const float* lower) {
  float* inverse = s.square(s.scratch.inverse);
  const std::int64_t stride = s.in.shape.chunk_len;
  const auto j = static_cast<int>(threadIdx.x);
  if (j >= s.count) return;
  for (int i = 0; i < s.count; ++i) {
    float sum = i == j ? 1.0F : 0.0F;
    for (int k = j; k < i; ++k) sum -= lower[i * kMaxDeltaChunk + k] * inverse[k * stride + j];
    inverse[i * stride + j] = sum;
  }
}

/// Shared: tiles of products, then L.
template <class T>
__global__ void chunk_kernel(const DeltaInputs in, const DeltaScratch scratch) {
  const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, blockIdx.x);
  DeltaTiles& tiles = *dynamic_shared<DeltaTiles>();
  auto* lower = reinterpret_cast<float*>(&tiles + 1);
  float* scores = s.square(scratch.scores);
  fill_gates(s);
  fill_norms(s);
  const auto key_transposed = [&](std::int64_t e, std::int64_t j) { return s.key(j, e); };
  block_product(
      tiles, s.count, s.count, in.shape.key_size,
      [&](std::int64_t i, std::int64_t e) { return s.query(i, e); }, key_transposed,
      [&](std::int64_t i, std::int64_t j, float sum) {
        scores[i * in.shape.chunk_len + j] = sum * s.decay(i, j);
      });
  block_product(
      tiles, s.count, s.count, in.shape.key_size,
      [&](std::int64_t i, std::int64_t e) { return s.key(i, e); }, key_transposed,
      [&](std::int64_t i, std::int64_t j, float sum) {
        lower[i * kMaxDeltaChunk + j] =
            i == j ? 0.0F : sum * s.of_token(OfToken::Beta, i) * s.decay(i, j);
      });
  fill_inverse(s, lower);
}

template <class T>
__global__ void updates_kernel(const DeltaInputs in, const DeltaScratch scratch,
                               const float* states) {
  const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, blockIdx.x);
  slot_updates(s, *dynamic_shared<DeltaTiles>(), s.state(states), 0, in.shape.value_size);
}

void require_inputs(const DeltaInputs& in) {
  const GatedDeltaShape& shape = in.shape;
  require_float(in.decay_dtype);
  require_invariant(
      shape.key_heads > 0 && shape.value_heads > 0 && shape.key_size > 0 && shape.value_size > 0,
      "the gated delta rule has heads");
  require_invariant(shape.value_heads % shape.key_heads == 0,
                    "value heads are a multiple of key heads");
  require_invariant(shape.chunk_len > 0 && shape.chunk_len <= kMaxDeltaChunk,
                    "a chunk of the gated delta rule has 1 to 64 tokens");
}

}  // namespace

DeltaScratch delta_scratch(const GatedDeltaForward& op, std::byte* memory) {
  Taker taker(memory);
  DeltaScratch scratch = common_scratch(op.shape, taker);
  if (op.states == nullptr) scratch.states = taker.take(op.shape.state_size() * op.shape.chunks());
  scratch.bytes = taker.bytes();
  return scratch;
}

DeltaScratch delta_scratch(const GatedDeltaBackward& op, std::byte* memory) {
  const GatedDeltaShape& shape = op.shape;
  const std::int64_t slots = shape.num_sequences * shape.value_heads * shape.chunks();
  const std::int64_t rows = slots * shape.chunk_len;
  Taker taker(memory);
  DeltaScratch scratch = common_scratch(shape, taker);
  scratch.update_grads = taker.take(rows * shape.value_size);
  scratch.state_grads = taker.take(shape.state_size() * shape.chunks());
  scratch.state_sums = taker.take(slots * ceil_div(shape.value_size, kDeltaTile));
  scratch.pairs = taker.take(rows * shape.chunk_len);
  scratch.query_grads = taker.take(rows * shape.key_size);
  scratch.key_read_grads = taker.take(rows * shape.key_size);
  scratch.key_write_grads = taker.take(rows * shape.key_size);
  scratch.dt_bias_sums = taker.take(slots);
  scratch.a_log_sums = taker.take(slots);
  scratch.bytes = taker.bytes();
  return scratch;
}

void enqueue_delta_chunks(const Context& context, const DeltaInputs& in,
                          const DeltaScratch& scratch) {
  require_inputs(in);
  LaunchShape shape = slot_shape(in.shape);
  shape.shared_bytes += kMaxDeltaChunk * kMaxDeltaChunk * sizeof(float);
  with_float_type(in.dtype, [&](auto type) {
    launch(context, shape, chunk_kernel<typename decltype(type)::type>, in, scratch);
  });
}

void enqueue_delta_updates(const Context& context, const DeltaInputs& in,
                           const DeltaScratch& scratch, const float* states) {
  with_float_type(in.dtype, [&](auto type) {
    launch(context, slot_shape(in.shape), updates_kernel<typename decltype(type)::type>, in,
           scratch, states);
  });
}

}  // namespace meshplan::kernels::cuda
