#include "simd/kernels.hpp"
#include "simd/mixers/gated_delta_chunk.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

using Chunk = DeltaChunk<GatedDeltaForward>;

/// o = decay S^T q + scores u, for the state at the chunk's begin.
template <class T>
void compute_output(const Chunk& chunk, int64_t member, const float* state) {
  const GatedDeltaLayout& layout = chunk.layout;
  const GatedDeltaShape& shape = chunk.op.shape;
  float* output = chunk.at(layout.output);
  multiply(output, layout.value, chunk.at(layout.query), layout.key, state, layout.value,
           chunk.count, layout.value, shape.key_size, false);
  for (int64_t i = 0; i < chunk.count; ++i)
    scale_row(output + i * layout.value, chunk.at(layout.from_begin)[i], layout.value);
  add_lower_times(output, chunk.at(layout.scores), layout.rows, chunk.at(layout.updates),
                  layout.value, chunk.count);
  unpack_rows(static_cast<T*>(chunk.op.o) + chunk.row() * chunk.op.o_stride +
                  chunk.value_head(member) * shape.value_size,
              chunk.op.o_stride, output, layout.value, shape.value_size, chunk.count);
}

/// S = decay S + sum over tokens of decay to the end k u^T.
void advance_state(const Chunk& chunk, float* state) {
  const GatedDeltaLayout& layout = chunk.layout;
  const int64_t keys = chunk.op.shape.key_size;
  float* updates = chunk.at(layout.updates);
  for (int64_t i = 0; i < chunk.count; ++i)
    scale_row(updates + i * layout.value, chunk.at(layout.to_end)[i], layout.value);
  scale_row(state, state_decay(chunk), keys * layout.value);
  multiply(state, layout.value, chunk.at(layout.keys_transposed), layout.rows, updates,
           layout.value, keys, layout.value, chunk.count, true);
}

template <class T>
void forward_chunk(const Chunk& chunk) {
  const GatedDeltaLayout& layout = chunk.layout;
  const GatedDeltaShape& shape = chunk.op.shape;
  pack_keys<T>(chunk);
  for (int64_t member = 0; member < layout.group; ++member) {
    float* state = chunk.at(layout.state) + member * layout.key * layout.value;
    if (chunk.op.states != nullptr)
      unpack_rows(chunk.op.states + chunk.state_offset(member, false), shape.value_size, state,
                  layout.value, shape.value_size, shape.key_size);
    compute_gates<T>(chunk, member);
    compute_scores(chunk, nullptr);
    compute_updates<T>(chunk, member, state);
    compute_output<T>(chunk, member, state);
    advance_state(chunk, state);
    if (chunk.op.final_state != nullptr && chunk.index + 1 == shape.chunks())
      unpack_rows(chunk.op.final_state + chunk.state_offset(member, true), shape.value_size, state,
                  layout.value, shape.value_size, shape.key_size);
  }
}

template <class T>
void forward(const GatedDeltaForward& op, Range pairs, float* scratch) {
  const GatedDeltaLayout layout = gated_delta_forward_layout(op.shape);
  const int64_t state_size = layout.key * layout.value;
  for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    memset(scratch + layout.state, 0,
           static_cast<size_t>(layout.group * state_size) * sizeof(float));
    for (int64_t index = 0; index < op.shape.chunks(); ++index) {
      const Chunk chunk(op, layout, scratch, pair, index);
      for (int64_t member = 0; index == 0 && op.initial_state != nullptr && member < layout.group;
           ++member)
        pack_rows(chunk.at(layout.state) + member * state_size, layout.value,
                  op.initial_state + chunk.state_offset(member, true), op.shape.value_size,
                  op.shape.value_size, op.shape.key_size, op.shape.key_size);
      forward_chunk<T>(chunk);
    }
  }
}

}  // namespace

void gated_delta_forward(const GatedDeltaForward& op, Range pairs, float* scratch) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, pairs, scratch); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
