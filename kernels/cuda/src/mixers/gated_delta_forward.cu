#include "device/dispatch.hpp"
#include "mixers/gated_delta.cuh"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// Walks the chunks of a sequence for a tile of columns of one head's state: columns do not depend
/// on each other. Leaves updates, and states at the beginnings of chunks.
template <class T>
__global__ void state_kernel(const DeltaInputs in, const DeltaScratch scratch,
                             const float* initial_state, float* states, float* final_state) {
  DeltaTiles& tiles = *dynamic_shared<DeltaTiles>();
  const std::int64_t keys = in.shape.key_size;
  const std::int64_t values = in.shape.value_size;
  const std::int64_t first = std::int64_t{blockIdx.x} * kDeltaTile;
  const std::int64_t columns = values - first < kDeltaTile ? values - first : kDeltaTile;
  {
    const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, 0);
    const float* from = initial_state == nullptr ? nullptr : s.state_of_sequence(initial_state);
    for (std::int64_t at = threadIdx.x; at < keys * columns; at += kDeltaThreads) {
      const std::int64_t element = at / columns * values + first + at % columns;
      s.state(states)[element] = from == nullptr ? 0.0F : from[element];
    }
  }
  __syncthreads();
  for (std::int64_t chunk = 0; chunk < in.shape.chunks(); ++chunk) {
    const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, chunk);
    const float* state = s.state(states);
    slot_updates(s, tiles, state, first, columns);
    const bool last = chunk + 1 == in.shape.chunks();
    if (last && final_state == nullptr) return;
    float* next = last ? s.state_of_sequence(final_state) : s.state(states) + keys * values;
    const float* updates = s.value_rows(scratch.updates) + first;
    const float decay = *s.of_tokens(OfToken::StateDecay);
    block_product(
        tiles, keys, columns, s.count, [&](std::int64_t e, std::int64_t i) { return s.key(i, e); },
        [&](std::int64_t i, std::int64_t j) {
          return updates[i * values + j] * s.of_token(OfToken::ToEnd, i);
        },
        [&](std::int64_t e, std::int64_t j, float sum) {
          next[e * values + first + j] = decay * state[e * values + first + j] + sum;
        });
  }
}

/// o = decay S^T q + scores u of each chunk, as one product: its depth is Ek, then the tokens.
template <class T>
__global__ void output_kernel(const DeltaInputs in, const DeltaScratch scratch, const float* states,
                              T* o, std::int64_t o_stride) {
  const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, blockIdx.x);
  const std::int64_t keys = in.shape.key_size;
  const std::int64_t values = in.shape.value_size;
  const float* state = s.state(states);
  const float* scores = s.square(scratch.scores);
  const float* updates = s.value_rows(scratch.updates);
  T* rows = o + s.row * o_stride + s.head * values;
  block_product(
      *dynamic_shared<DeltaTiles>(), s.count, values, keys + s.count,
      [&](std::int64_t i, std::int64_t k) {
        return k < keys ? s.query(i, k) * s.of_token(OfToken::FromBegin, i)
                        : scores[i * in.shape.chunk_len + k - keys];
      },
      [&](std::int64_t k, std::int64_t j) {
        return k < keys ? state[k * values + j] : updates[(k - keys) * values + j];
      },
      [&](std::int64_t i, std::int64_t j, float sum) {
        rows[i * o_stride + j] = from_float<T>(sum);
      });
}

}  // namespace

std::int64_t scratch_bytes(const GatedDeltaForward& op) {
  return delta_scratch(op, nullptr).bytes;
}

void enqueue(const Context& context, const GatedDeltaForward& op) {
  require_scratch(context, scratch_bytes(op));
  const DeltaScratch scratch = delta_scratch(op, context.scratch.data());
  const DeltaInputs in = delta_inputs(op);
  float* states = op.states != nullptr ? op.states : scratch.states;
  enqueue_delta_chunks(context, in, scratch);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, scan_shape(op.shape), state_kernel<T>, in, scratch, op.initial_state, states,
           op.final_state);
    launch(context, slot_shape(op.shape), output_kernel<T>, in, scratch, states,
           static_cast<T*>(op.o), op.o_stride);
  });
}

}  // namespace meshplan::kernels::cuda
