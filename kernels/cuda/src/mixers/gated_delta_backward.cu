#include "device/column_sums.cuh"
#include "device/dispatch.hpp"
#include "mixers/gated_delta.cuh"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

/// A chunk's slot, and its row of the output's gradient.
template <class T>
struct GradSlot : DeltaSlot<T> {
  const GatedDeltaBackward& op;
  __device__ GradSlot(const GatedDeltaBackward& operation, const DeltaInputs& inputs,
                      const DeltaScratch& memory, std::int64_t b, std::int64_t h, std::int64_t c)
      : DeltaSlot<T>(inputs, memory, b, h, c), op(operation) {}
  __device__ float output_grad(std::int64_t i, std::int64_t j) const {
    return to_float(static_cast<const T*>(op.output_grad)[(this->row + i) * op.output_grad_stride +
                                                          this->head * op.shape.value_size + j]);
  }
};

/// Columns of a state that a block walks the chunks with.
struct StateColumns {
  std::int64_t first;
  std::int64_t count;
};

/// Gradients of u for columns of the values, scores^T do + decay to the end dS^T k, then of rhs: (I
/// + L)^-T of them; dv = beta times those.
template <class T>
__device__ void slot_update_grads(const GradSlot<T>& s, DeltaTiles& tiles, StateColumns columns) {
  const std::int64_t values = s.in.shape.value_size;
  const std::int64_t keys = s.in.shape.key_size;
  const std::int64_t stride = s.in.shape.chunk_len;
  const std::int64_t first = columns.first;
  const float* state_grad = s.state(s.scratch.state_grads);
  const float* scores = s.square(s.scratch.scores);
  const float* inverse = s.square(s.scratch.inverse);
  float* grads = s.value_rows(s.scratch.rhs) + first;
  float* update_grads = s.value_rows(s.scratch.update_grads) + first;
  T* dv = static_cast<T*>(s.op.dqkv) + s.row * s.op.dqkv_stride + s.value_column() + first;
  block_product(
      tiles, s.count, columns.count, keys + s.count,
      [&](std::int64_t i, std::int64_t k) {
        return k < keys ? s.key(i, k) * s.of_token(OfToken::ToEnd, i)
                        : scores[(k - keys) * stride + i];
      },
      [&](std::int64_t k, std::int64_t j) {
        return k < keys ? state_grad[k * values + first + j] : s.output_grad(k - keys, first + j);
      },
      [&](std::int64_t i, std::int64_t j, float sum) { grads[i * values + j] = sum; });
  block_product(
      tiles, s.count, columns.count, s.count,
      [&](std::int64_t i, std::int64_t k) { return inverse[k * stride + i]; },
      [&](std::int64_t k, std::int64_t j) { return grads[k * values + j]; },
      [&](std::int64_t i, std::int64_t j, float sum) {
        update_grads[i * values + j] = sum;
        dv[i * s.op.dqkv_stride + j] = from_float<T>(sum * s.of_token(OfToken::Beta, i));
      });
}

/// The thread's part of the gradient of the logarithm of what the whole chunk decays the state by:
/// the sum over columns of state, decayed, times gradient at the chunk's end.
template <class T>
__device__ float state_products(const GradSlot<T>& s, StateColumns columns) {
  const std::int64_t values = s.in.shape.value_size;
  const float* state = s.state(s.op.states) + columns.first;
  const float* state_grad = s.state(s.scratch.state_grads) + columns.first;
  const float decay = *s.of_tokens(OfToken::StateDecay);
  float products = 0.0F;
  for (std::int64_t at = threadIdx.x; at < s.in.shape.key_size * columns.count;
       at += kDeltaThreads) {
    const std::int64_t element = at / columns.count * values + at % columns.count;
    products += decay * state[element] * state_grad[element];
  }
  return products;
}

/// dS at the chunk's begin: decay dS + (decay q)^T do - (beta decay k)^T r, to `before`.
template <class T>
__device__ void slot_state_grad(const GradSlot<T>& s, DeltaTiles& tiles, StateColumns columns,
                                float* before) {
  const std::int64_t values = s.in.shape.value_size;
  const std::int64_t first = columns.first;
  const float* state_grad = s.state(s.scratch.state_grads);
  const float* update_grads = s.value_rows(s.scratch.update_grads);
  const float decay = *s.of_tokens(OfToken::StateDecay);
  block_product(
      tiles, s.in.shape.key_size, columns.count, 2 * s.count,
      [&](std::int64_t e, std::int64_t k) {
        const std::int64_t i = k < s.count ? k : k - s.count;
        const float from_begin = s.of_token(OfToken::FromBegin, i);
        return k < s.count ? s.query(i, e) * from_begin
                           : -s.key(i, e) * from_begin * s.of_token(OfToken::Beta, i);
      },
      [&](std::int64_t k, std::int64_t j) {
        return k < s.count ? s.output_grad(k, first + j)
                           : update_grads[(k - s.count) * values + first + j];
      },
      [&](std::int64_t e, std::int64_t j, float sum) {
        before[e * values + first + j] = decay * state_grad[e * values + first + j] + sum;
      });
}

/// Walks the chunks of a sequence backwards for a tile of columns of one head's state.
template <class T>
__global__ void state_grad_kernel(const GatedDeltaBackward op, const DeltaInputs in,
                                  const DeltaScratch scratch) {
  DeltaTiles& tiles = *dynamic_shared<DeltaTiles>();
  const std::int64_t keys = in.shape.key_size;
  const std::int64_t values = in.shape.value_size;
  const std::int64_t first = std::int64_t{blockIdx.x} * kDeltaTile;
  const StateColumns columns{first, values - first < kDeltaTile ? values - first : kDeltaTile};
  const std::int64_t chunks = in.shape.chunks();
  {
    const DeltaSlot<T> s(in, scratch, blockIdx.z, blockIdx.y, chunks - 1);
    const float* from =
        op.final_state_grad == nullptr ? nullptr : s.state_of_sequence(op.final_state_grad);
    for (std::int64_t at = threadIdx.x; at < keys * columns.count; at += kDeltaThreads) {
      const std::int64_t element = at / columns.count * values + first + at % columns.count;
      s.state(scratch.state_grads)[element] = from == nullptr ? 0.0F : from[element];
    }
  }
  __syncthreads();
  for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const GradSlot<T> s(op, in, scratch, blockIdx.z, blockIdx.y, chunk);
    slot_update_grads(s, tiles, columns);
    const float products = group_reduce<kDeltaThreads>(state_products(s, columns), Sum());
    if (threadIdx.x == 0) scratch.state_sums[s.slot * gridDim.x + blockIdx.x] = products;
    if (chunk == 0 && op.initial_state_grad == nullptr) return;
    slot_state_grad(s, tiles, columns,
                    chunk == 0 ? s.state_of_sequence(op.initial_state_grad)
                               : s.state(scratch.state_grads) - keys * values);
  }
}

/// Gradients of q k^T, and of k k^T inside L, in place of scores and inverse; in pairs, those of
/// the logarithms of decays between tokens; r u of each token.
template <class T>
__device__ void slot_score_grads(const GradSlot<T>& s, DeltaTiles& tiles) {
  const std::int64_t values = s.in.shape.value_size;
  const std::int64_t stride = s.in.shape.chunk_len;
  const float* updates = s.value_rows(s.scratch.updates);
  const float* update_grads = s.value_rows(s.scratch.update_grads);
  float* scores = s.square(s.scratch.scores);
  float* solver = s.square(s.scratch.inverse);
  float* pairs = s.square(s.scratch.pairs);
  const auto updates_transposed = [&](std::int64_t e, std::int64_t j) {
    return updates[j * values + e];
  };
  block_product(
      tiles, s.count, s.count, values,
      [&](std::int64_t i, std::int64_t e) { return s.output_grad(i, e); }, updates_transposed,
      [&](std::int64_t i, std::int64_t j, float sum) {
        pairs[i * stride + j] = sum * scores[i * stride + j];
        scores[i * stride + j] = sum * s.decay(i, j);
      });
  block_product(
      tiles, s.count, s.count, values,
      [&](std::int64_t i, std::int64_t e) { return update_grads[i * values + e]; },
      updates_transposed,
      [&](std::int64_t i, std::int64_t j, float sum) {
        if (i == j) s.of_tokens(OfToken::Products)[i] = sum;
        solver[i * stride + j] =
            i == j ? 0.0F : -sum * s.of_token(OfToken::Beta, i) * s.decay(i, j);
      });
  block_product(
      tiles, s.count, s.count, s.in.shape.key_size,
      [&](std::int64_t i, std::int64_t e) { return s.key(i, e); },
      [&](std::int64_t e, std::int64_t j) { return s.key(j, e); },
      [&](std::int64_t i, std::int64_t j, float sum) {
        pairs[i * stride + j] += sum * solver[i * stride + j];
      });
}

/// The slot's parts of the gradients of queries, and of keys that read and write the state, as far
/// as they go through the states at the chunk's ends.
template <class T>
__device__ void slot_state_parts(const GradSlot<T>& s, DeltaTiles& tiles) {
  const std::int64_t keys = s.in.shape.key_size;
  const std::int64_t values = s.in.shape.value_size;
  const float* state = s.state(s.op.states);
  const float* state_grad = s.state(s.scratch.state_grads);
  const float* updates = s.value_rows(s.scratch.updates);
  const float* update_grads = s.value_rows(s.scratch.update_grads);
  const auto put_to = [&](float* all) {
    return [rows = s.key_rows(all), keys](std::int64_t i, std::int64_t e, float sum) {
      rows[i * keys + e] = sum;
    };
  };
  const auto transposed = [values](const float* matrix) {
    return [matrix, values](std::int64_t k, std::int64_t e) { return matrix[e * values + k]; };
  };
  block_product(
      tiles, s.count, keys, values,
      [&](std::int64_t i, std::int64_t k) {
        return s.output_grad(i, k) * s.of_token(OfToken::FromBegin, i);
      },
      transposed(state), put_to(s.scratch.query_grads));
  block_product(
      tiles, s.count, keys, values,
      [&](std::int64_t i, std::int64_t k) {
        return -update_grads[i * values + k] * s.of_token(OfToken::Beta, i) *
               s.of_token(OfToken::FromBegin, i);
      },
      transposed(state), put_to(s.scratch.key_read_grads));
  block_product(
      tiles, s.count, keys, values,
      [&](std::int64_t i, std::int64_t k) {
        return updates[i * values + k] * s.of_token(OfToken::ToEnd, i);
      },
      transposed(state_grad), put_to(s.scratch.key_write_grads));
}

/// Gradients of the logarithms of each token's decays from the chunk's begin and to its end, from
/// those parts: a warp for each token.
template <class T>
__device__ void fill_state_decay_grads(const GradSlot<T>& s) {
  const std::int64_t keys = s.in.shape.key_size;
  const float* query_grads = s.key_rows(s.scratch.query_grads);
  const float* key_reads = s.key_rows(s.scratch.key_read_grads);
  const float* key_writes = s.key_rows(s.scratch.key_write_grads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < s.count; i += kDeltaThreads / kWarp) {
    float reads = 0.0F;
    float writes = 0.0F;
    for (std::int64_t e = lane; e < keys; e += kWarp) {
      const std::int64_t at = i * keys + e;
      reads += s.query(i, e) * query_grads[at] + s.key(i, e) * key_reads[at];
      writes += s.key(i, e) * key_writes[at];
    }
    reads = warp_reduce(reads, Sum());
    writes = warp_reduce(writes, Sum());
    if (lane != 0) continue;
    s.of_tokens(OfToken::Reads)[i] = reads;
    s.of_tokens(OfToken::Writes)[i] = writes;
  }
  __syncthreads();
}

/// Adds what goes between tokens of the chunk.
template <class T>
__device__ void add_token_parts(const GradSlot<T>& s, DeltaTiles& tiles) {
  const std::int64_t keys = s.in.shape.key_size;
  const std::int64_t stride = s.in.shape.chunk_len;
  const float* scores = s.square(s.scratch.scores);
  const float* solver = s.square(s.scratch.inverse);
  const auto add_to = [&](float* all) {
    return [rows = s.key_rows(all), keys](std::int64_t i, std::int64_t e, float sum) {
      rows[i * keys + e] += sum;
    };
  };
  const auto key = [&](std::int64_t k, std::int64_t e) { return s.key(k, e); };
  block_product(
      tiles, s.count, keys, s.count,
      [&](std::int64_t i, std::int64_t k) { return scores[i * stride + k]; }, key,
      add_to(s.scratch.query_grads));
  block_product(
      tiles, s.count, keys, s.count,
      [&](std::int64_t i, std::int64_t k) { return solver[i * stride + k]; }, key,
      add_to(s.scratch.key_read_grads));
  block_product(
      tiles, s.count, keys, 2 * s.count,
      [&](std::int64_t i, std::int64_t k) {
        return k < s.count ? scores[k * stride + i] : solver[(k - s.count) * stride + i];
      },
      [&](std::int64_t k, std::int64_t e) {
        return k < s.count ? s.query(k, e) : s.key(k - s.count, e);
      },
      add_to(s.scratch.key_write_grads));
}

template <class T>
__global__ void key_grad_kernel(const GatedDeltaBackward op, const DeltaInputs in,
                                const DeltaScratch scratch) {
  DeltaTiles& tiles = *dynamic_shared<DeltaTiles>();
  const GradSlot<T> s(op, in, scratch, blockIdx.z, blockIdx.y, blockIdx.x);
  slot_score_grads(s, tiles);
  slot_state_parts(s, tiles);
  fill_state_decay_grads(s);
  add_token_parts(s, tiles);
}

/// Gradients of each token's g: a plain sum of all that it decays. That is what reaches the token
/// or a later one from an earlier one or from the chunk's begin, and what reaches the chunk's end
/// from an earlier one or from the begin. A warp for each token.
template <class T>
__device__ void fill_decay_grads(const GradSlot<T>& s, std::int64_t state_tiles,
                                 float* decay_grads) {
  const float* pairs = s.square(s.scratch.pairs);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < s.count; i += kDeltaThreads / kWarp) {
    float sum = 0.0F;
    for (int at = lane; at < (s.count - i) * i; at += kWarp)
      sum += pairs[(i + at / i) * s.in.shape.chunk_len + at % i];
    for (int t = lane; t < s.count; t += kWarp)
      sum += s.of_token(t < i ? OfToken::Writes : OfToken::Reads, t);
    for (std::int64_t tile = lane; tile < state_tiles; tile += kWarp)
      sum += s.scratch.state_sums[s.slot * state_tiles + tile];
    sum = warp_reduce(sum, Sum());
    if (lane == 0) decay_grads[i] = sum;
  }
  __syncthreads();
}

/// Gradients of b, from those of beta times beta: r u, and of a, from those of g.
template <class T>
__global__ void gate_grad_kernel(const GatedDeltaBackward op, const DeltaInputs in,
                                 const DeltaScratch scratch, std::int64_t state_tiles) {
  const GradSlot<T> s(op, in, scratch, blockIdx.z, blockIdx.y, blockIdx.x);
  auto* decay_grads = dynamic_shared<float>();
  fill_decay_grads(s, state_tiles, decay_grads);
  if (threadIdx.x != 0) return;
  float of_dt_bias = 0.0F;
  float of_a_log = 0.0F;
  for (int i = 0; i < s.count; ++i) {
    const DeltaGate gate = delta_gate(s, i);
    T* dba = static_cast<T*>(op.dba) + (s.row + i) * op.dba_stride;
    const bool begins = op.positions != nullptr && op.positions[s.row + i] == 0;
    const float decay_grad = begins ? 0.0F : decay_grads[i];
    of_dt_bias += decay_grad * gate.slope;
    of_a_log += decay_grad * gate.decay;
    dba[s.head] = from_float<T>(s.of_token(OfToken::Products, i) * (1.0F - gate.beta));
    dba[in.shape.value_heads + s.head] = from_float<T>(decay_grad * gate.slope);
  }
  const std::int64_t at =
      (s.sequence * in.shape.chunks() + s.chunk) * in.shape.value_heads + s.head;
  scratch.dt_bias_sums[at] = of_dt_bias;
  scratch.a_log_sums[at] = of_a_log;
}

/// Sums over the value heads of a key head, and back through the norms: a warp for a token's query,
/// another for its key.
template <class T>
__global__ void norm_grad_kernel(const GatedDeltaBackward op, const DeltaInputs in,
                                 const DeltaScratch scratch) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t key_head = blockIdx.y;
  const std::int64_t group = in.shape.value_heads / in.shape.key_heads;
  const std::int64_t position = token % in.shape.seq_len;
  const std::int64_t i = position % in.shape.chunk_len;
  const DeltaSlot<T> s(in, scratch, token / in.shape.seq_len, key_head * group,
                       position / in.shape.chunk_len);
  const bool of_query = threadIdx.x / kWarp == 0;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t keys = in.shape.key_size;
  const std::int64_t member_rows = in.shape.chunks() * in.shape.chunk_len * keys;
  const std::int64_t at = (s.slot * in.shape.chunk_len + i) * keys;
  const auto gradient = [&](std::int64_t e) {
    float sum = 0.0F;
    for (std::int64_t member = 0; member < group; ++member) {
      const std::int64_t element = at + member * member_rows + e;
      sum += of_query ? scratch.query_grads[element]
                      : scratch.key_read_grads[element] + scratch.key_write_grads[element];
    }
    return sum;
  };
  const float scale = of_query ? s.query_scale() : 1.0F;
  const float norm = s.of_token(of_query ? OfToken::QueryNorm : OfToken::KeyNorm, i);
  const auto unit = [&](std::int64_t e) {
    return norm * (of_query ? s.raw_query(i, e) : s.raw_key(i, e));
  };
  float along = 0.0F;
  for (std::int64_t e = lane; e < keys; e += kWarp) along += gradient(e) * unit(e);
  along = warp_reduce(along, Sum());
  T* to = static_cast<T*>(op.dqkv) + token * op.dqkv_stride +
          (of_query ? key_head : in.shape.key_heads + key_head) * keys;
  for (std::int64_t e = lane; e < keys; e += kWarp)
    to[e] = from_float<T>(norm * scale * (gradient(e) - unit(e) * along));
}

}  // namespace

std::int64_t scratch_bytes(const GatedDeltaBackward& op) {
  return delta_scratch(op, nullptr).bytes;
}

void enqueue(const Context& context, const GatedDeltaBackward& op) {
  require_scratch(context, scratch_bytes(op));
  const DeltaScratch scratch = delta_scratch(op, context.scratch.data());
  const DeltaInputs in = delta_inputs(op);
  const GatedDeltaShape& shape = op.shape;
  enqueue_delta_chunks(context, in, scratch);
  enqueue_delta_updates(context, in, scratch, op.states);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(context, scan_shape(shape), state_grad_kernel<T>, op, in, scratch);
    launch(context, slot_shape(shape), key_grad_kernel<T>, op, in, scratch);
    launch(context, slot_shape(shape), gate_grad_kernel<T>, op, in, scratch,
           ceil_div(shape.value_size, kDeltaTile));
    launch(context,
           {.grid =
                dim3(static_cast<unsigned>(shape.tokens()), static_cast<unsigned>(shape.key_heads)),
            .block = dim3(2 * kWarp)},
           norm_grad_kernel<T>, op, in, scratch);
  });
  const std::int64_t parts = shape.num_sequences * shape.chunks();
  const std::int64_t heads = shape.value_heads;
  if (op.ddt_bias != nullptr)
    enqueue_sum_partials(context, scratch.dt_bias_sums, parts, heads, heads, op.ddt_bias,
                         op.accumulate);
  if (op.da_log != nullptr)
    enqueue_sum_partials(context, scratch.a_log_sums, parts, heads, heads, op.da_log,
                         op.accumulate);
}

}  // namespace meshplan::kernels::cuda
