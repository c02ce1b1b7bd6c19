#include "simd/kernels.hpp"
#include "simd/mixers/gated_delta_chunk.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

using Chunk = DeltaChunk<GatedDeltaBackward>;

/// One value head of a chunk; states are those at the chunk's begin, their gradients at its end.
struct Head {
  const Chunk& chunk;
  int64_t member;
  float* state_grad;  // (Ek, Ev)

  const GatedDeltaLayout& layout() const { return chunk.layout; }
  float* at(int64_t offset) const { return chunk.at(offset); }
};

/// State, updates and the output's gradient, packed.
template <class T>
void pack_head(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const GatedDeltaBackward& op = h.chunk.op;
  const GatedDeltaShape& shape = op.shape;
  pack_rows(h.at(layout.state), layout.value, op.states + h.chunk.state_offset(h.member, false),
            shape.value_size, shape.value_size, shape.key_size, layout.key);
  transpose(h.at(layout.state_transposed), layout.key, h.at(layout.state), layout.value, layout.key,
            layout.value);
  transpose(h.at(layout.state_grad_transposed), layout.key, h.state_grad, layout.value, layout.key,
            layout.value);
  compute_gates<T>(h.chunk, h.member);
  compute_scores(h.chunk, h.at(layout.decays));
  compute_updates<T>(h.chunk, h.member, h.at(layout.state));
  const int64_t rest = layout.rows - h.chunk.count;  // is transposed with the others
  memset(h.at(layout.updates) + h.chunk.count * layout.value, 0,
         static_cast<size_t>(rest * layout.value) * sizeof(float));
  transpose(h.at(layout.updates_transposed), layout.rows, h.at(layout.updates), layout.value,
            layout.rows, layout.value);
  pack_rows(h.at(layout.output), layout.value,
            static_cast<const T*>(op.output_grad) + h.chunk.row() * op.output_grad_stride +
                h.chunk.value_head(h.member) * shape.value_size,
            op.output_grad_stride, shape.value_size, h.chunk.count, layout.rows);
}

/// Gradient r of the right side of (I + L) u = beta (v - decay S^T k), from that of u: scores^T do
/// + decay to the end dS^T k; dv = beta r.
template <class T>
void compute_update_grads(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const GatedDeltaBackward& op = h.chunk.op;
  const int64_t n = h.chunk.count;
  float* grads = h.at(layout.update_grads);
  multiply(grads, layout.value, h.at(layout.keys), layout.key, h.state_grad, layout.value, n,
           layout.value, op.shape.key_size, false);
  for (int64_t i = 0; i < n; ++i)
    scale_row(grads + i * layout.value, h.at(layout.to_end)[i], layout.value);
  add_lower_transposed_times(grads, h.at(layout.scores), layout.rows, h.at(layout.output),
                             layout.value, n);
  solve_lower_transposed(grads, h.at(layout.solver), layout.rows, layout.value, n);
  for (int64_t i = 0; i < n; ++i) {
    T* dv = static_cast<T*>(op.dqkv) + (h.chunk.row() + i) * op.dqkv_stride +
            h.chunk.value_column(h.member);
    const float beta = h.at(layout.beta)[i];
    for_each_vec(0, op.shape.value_size, [&](int64_t e, auto part) {
      store(dv + e, load(grads + i * layout.value + e, part) * beta, part);
    });
  }
}

/// Gradients of q k^T and of k k^T inside L, times the decays; their products with those, which are
/// the gradients of the decays' logarithms; the products r u of each token.
void compute_score_grads(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const int64_t n = h.chunk.count;
  const int64_t values = h.chunk.op.shape.value_size;
  float* scores = h.at(layout.score_grads);
  float* solver = h.at(layout.solver_grads);
  lower_product(scores, layout.rows, h.at(layout.output), layout.value,
                h.at(layout.updates_transposed), values, n);
  lower_product(solver, layout.rows, h.at(layout.update_grads), layout.value,
                h.at(layout.updates_transposed), values, n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = i * layout.rows;
    const float beta = h.at(layout.beta)[i];
    h.at(layout.products)[i] = solver[first + i];
    for (int64_t j = 0; j < round_up(i + 1, kDeltaBlock); j += kLanes) {
      const Vec decay = load(h.at(layout.decays) + first + j);
      const Vec of_score = load(scores + first + j) * decay;
      const Vec of_solver = load(solver + first + j) * decay * -beta;
      store(scores + first + j, of_score);
      store(solver + first + j, of_solver);
      store(h.at(layout.pairs) + first + j,
            of_score * load(h.at(layout.query_keys) + first + j) +
                of_solver * load(h.at(layout.key_keys) + first + j));
    }
    solver[first + i] = 0.0F;
  }
}

/// part = factor_i (values times a transposed state), row by row; adds its products with `rows`,
/// which the state was read or written by, to `sums`.
template <class Factor>
void multiply_state(const Head& h, const float* values, const float* transposed, Factor factor,
                    const float* rows, float* sums) {
  const GatedDeltaLayout& layout = h.layout();
  float* part = h.at(layout.part);
  multiply(part, layout.key, values, layout.value, transposed, layout.key, h.chunk.count,
           layout.key, h.chunk.op.shape.value_size, false);
  for (int64_t i = 0; i < h.chunk.count; ++i) {
    scale_row(part + i * layout.key, factor(i), layout.key);
    sums[i] += dot(part + i * layout.key, rows + i * layout.key, layout.key);
  }
}

/// Gradients of query and key, and of the decays from and to the chunk's ends.
void compute_key_grads(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const int64_t n = h.chunk.count;
  const float* scores = h.at(layout.score_grads);
  const float* solver = h.at(layout.solver_grads);
  const float* query = h.at(layout.query);
  const float* keys = h.at(layout.keys);
  const float* from_begin = h.at(layout.from_begin);
  float* part = h.at(layout.part);
  float* reads = h.at(layout.reads);
  float* writes = h.at(layout.writes);
  for (int64_t i = 0; i < n; ++i) reads[i] = writes[i] = 0.0F;
  const auto add_part_to = [&](int64_t grad) { add_row(h.at(grad), part, 1.0F, n * layout.key); };

  multiply_state(
      h, h.at(layout.output), h.at(layout.state_transposed),
      [&](int64_t i) { return from_begin[i]; }, query, reads);
  add_lower_times(part, scores, layout.rows, keys, layout.key, n);
  add_part_to(layout.query_grad);

  multiply_state(
      h, h.at(layout.update_grads), h.at(layout.state_transposed),
      [&](int64_t i) { return -h.at(layout.beta)[i] * from_begin[i]; }, keys, reads);
  add_lower_times(part, solver, layout.rows, keys, layout.key, n);
  add_part_to(layout.key_grad);

  multiply_state(
      h, h.at(layout.updates), h.at(layout.state_grad_transposed),
      [&](int64_t i) { return h.at(layout.to_end)[i]; }, keys, writes);
  add_lower_transposed_times(part, scores, layout.rows, query, layout.key, n);
  add_lower_transposed_times(part, solver, layout.rows, keys, layout.key, n);
  add_part_to(layout.key_grad);
}

/// Gradients of each token's g: a plain sum of all that it decays. That is what reaches the token
/// or a later one from an earlier one or from the chunk's begin, and what reaches the chunk's end
/// from an earlier one or from the begin. Differences of the sums of all that a token reads and
/// writes would be cheaper, and carry the rounding of what it reads of itself, which nothing
/// decays.
void compute_decay_grads(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const int64_t n = h.chunk.count;
  float* grads = h.at(layout.decay_grads);
  float passing =
      state_decay(h.chunk) * dot(h.at(layout.state), h.state_grad, layout.key * layout.value);
  for (int64_t i = 0; i < n; ++i) {
    grads[i] = passing;
    passing += h.at(layout.writes)[i];
  }
  float* later = h.at(layout.later);  // of each token to all of those that have been passed
  memset(later, 0, static_cast<size_t>(layout.rows) * sizeof(float));
  float reads = 0.0F;
  for (int64_t i = n - 1; i >= 0; --i) {
    add_row(later, h.at(layout.pairs) + i * layout.rows, 1.0F, round_up(i + 1, kLanes));
    reads += h.at(layout.reads)[i];
    Vec earlier{};
    for_each_vec(0, i, [&](int64_t j, auto part) { earlier += load(later + j, part); });
    grads[i] += reads + sum(earlier);
  }
}

/// Gradients of b, from those of beta times beta: r u, and of a, from those of g.
template <class T>
void compute_gate_grads(const Head& h, float* sums) {
  const GatedDeltaLayout& layout = h.layout();
  const GatedDeltaBackward& op = h.chunk.op;
  const int64_t head = h.chunk.value_head(h.member);
  const float dt_bias = decay_weight(op.dt_bias, op.decay_dtype, head);
  const float rate = scalar_exp(decay_weight(op.a_log, op.decay_dtype, head));
  float of_dt_bias = 0.0F;
  float of_a_log = 0.0F;
  for (int64_t i = 0; i < h.chunk.count; ++i) {
    const int64_t at = (h.chunk.row() + i) * op.ba_stride;
    const T* ba = static_cast<const T*>(op.ba) + at;
    T* dba = static_cast<T*>(op.dba) + (h.chunk.row() + i) * op.dba_stride;
    const float a = load(ba + op.shape.value_heads + head, Tail{1})[0];
    const DeltaGate gate = delta_gate(load(ba + head, Tail{1})[0], a, dt_bias, rate);
    const bool begins = op.positions != nullptr && op.positions[h.chunk.row() + i] == 0;
    const float decay_grad = begins ? 0.0F : h.at(layout.decay_grads)[i];
    of_dt_bias += decay_grad * gate.slope;
    of_a_log += decay_grad * gate.decay;
    store(dba + head, splat(h.at(layout.products)[i] * (1.0F - gate.beta)), Tail{1});
    store(dba + op.shape.value_heads + head, splat(decay_grad * gate.slope), Tail{1});
  }
  sums[0] += of_dt_bias;
  sums[1] += of_a_log;
}

/// dS = decay dS + (decay q)^T do - (beta decay k)^T r: at the chunk's begin.
void advance_state_grad(const Head& h) {
  const GatedDeltaLayout& layout = h.layout();
  const int64_t n = h.chunk.count;
  const int64_t keys = h.chunk.op.shape.key_size;
  float* output_grad = h.at(layout.output);
  float* update_grads = h.at(layout.update_grads);
  for (int64_t i = 0; i < n; ++i) {
    const float decay = h.at(layout.from_begin)[i];
    scale_row(output_grad + i * layout.value, decay, layout.value);
    scale_row(update_grads + i * layout.value, -h.at(layout.beta)[i] * decay, layout.value);
  }
  scale_row(h.state_grad, state_decay(h.chunk), layout.key * layout.value);
  add_transposed_times(h.state_grad, layout.value, h.at(layout.query), layout.key, output_grad,
                       layout.value, keys, layout.value, n);
  add_transposed_times(h.state_grad, layout.value, h.at(layout.keys), layout.key, update_grads,
                       layout.value, keys, layout.value, n);
}

/// dx of x factor = unit: factor (dunit - unit (unit dunit)), where rows = unit scale.
template <class T>
void unpack_normalized_grad(T* to, int64_t stride, const float* grads, const float* rows,
                            const float* norms, int64_t padded, int64_t size, int64_t count,
                            float scale) {
  for (int64_t i = 0; i < count; ++i) {
    const float* grad = grads + i * padded;
    const float* row = rows + i * padded;
    const float along = dot(grad, row, padded) / scale;
    for_each_vec(0, size, [&](int64_t e, auto part) {
      const Vec own = load(grad + e, part) * scale - load(row + e, part) * along;
      store(to + i * stride + e, own * norms[i], part);
    });
  }
}

template <class T>
void backward_chunk(const Chunk& chunk, float* sums) {
  const GatedDeltaLayout& layout = chunk.layout;
  const GatedDeltaShape& shape = chunk.op.shape;
  const auto bytes = static_cast<size_t>(layout.rows * layout.key) * sizeof(float);
  memset(chunk.at(layout.query_grad), 0, bytes);
  memset(chunk.at(layout.key_grad), 0, bytes);
  pack_keys<T>(chunk);
  for (int64_t member = 0; member < layout.group; ++member) {
    const Head h{chunk, member, chunk.at(layout.state_grad) + member * layout.key * layout.value};
    pack_head<T>(h);
    compute_update_grads<T>(h);
    compute_score_grads(h);
    compute_key_grads(h);
    compute_decay_grads(h);
    compute_gate_grads<T>(h, sums + 2 * chunk.value_head(member));
    advance_state_grad(h);
  }
  T* dqkv = static_cast<T*>(chunk.op.dqkv) + chunk.row() * chunk.op.dqkv_stride;
  const float scale = 1.0F / __builtin_sqrtf(static_cast<float>(shape.key_size));
  unpack_normalized_grad(dqkv + chunk.key_head * shape.key_size, chunk.op.dqkv_stride,
                         chunk.at(layout.query_grad), chunk.at(layout.query),
                         chunk.at(layout.query_norms), layout.key, shape.key_size, chunk.count,
                         scale);
  unpack_normalized_grad(dqkv + chunk.key_column(), chunk.op.dqkv_stride, chunk.at(layout.key_grad),
                         chunk.at(layout.keys), chunk.at(layout.key_norms), layout.key,
                         shape.key_size, chunk.count, 1.0F);
}

template <class T>
void backward(const GatedDeltaBackward& op, Range pairs, float* scratch, float* all_sums) {
  const GatedDeltaLayout layout = gated_delta_backward_layout(op.shape);
  const GatedDeltaShape& shape = op.shape;
  const int64_t state_size = layout.key * layout.value;
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    float* state_grad = scratch + layout.state_grad;
    float* sums = all_sums + pair / shape.key_heads * shape.value_heads * 2;
    memset(state_grad, 0, static_cast<size_t>(layout.group * state_size) * sizeof(float));
    for (int64_t index = shape.chunks() - 1; index >= 0; --index) {
      const Chunk chunk(op, layout, scratch, pair, index);
      for (int64_t member = 0; member < layout.group; ++member) {
        float* own = state_grad + member * state_size;
        if (index + 1 == shape.chunks()) {
          memset(sums + 2 * chunk.value_head(member), 0, 2 * sizeof(float));
          if (op.final_state_grad != nullptr)
            pack_rows(own, layout.value, op.final_state_grad + chunk.state_offset(member, true),
                      shape.value_size, shape.value_size, shape.key_size, layout.key);
        }
      }
      backward_chunk<T>(chunk, sums);
      for (int64_t member = 0;
           index == 0 && op.initial_state_grad != nullptr && member < layout.group; ++member)
        unpack_rows(op.initial_state_grad + chunk.state_offset(member, true), shape.value_size,
                    state_grad + member * state_size, layout.value, shape.value_size,
                    shape.key_size);
    }
  }
}

}  // namespace

void gated_delta_backward(const GatedDeltaBackward& op, Range pairs, float* scratch, float* sums) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, pairs, scratch, sums); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
