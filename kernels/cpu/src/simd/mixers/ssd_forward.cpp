#include "simd/mixers/ssd_chunk.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// One chunk of a unit's heads.
struct Work {
  const SsdForward& op;
  const SsdLayout& layout;
  float* scratch;
  const SsdUnit& unit;
  const Chunk& chunk;

  const int32_t* ends() const {
    return reinterpret_cast<const int32_t*>(scratch + layout.document_end);
  }
};

/// y = h c of the state on entry, decayed, plus d x; then x becomes x dt'.
void begin_outputs(const Work& w, const HeadDecays& decays, float d, bool has_state) {
  const SsdLayout& layout = w.layout;
  float* y = w.scratch + layout.y;
  float* x = w.scratch + layout.x;
  const int64_t carried = has_state ? w.chunk.carried : 0;
  if (carried > 0) {
    transpose(w.scratch + layout.state_transposed, layout.head, w.scratch + layout.h, layout.state,
              layout.head, layout.state);
    small_gemm({.c = y,
                .c_stride = layout.head,
                .a = w.scratch + layout.c,
                .a_row_stride = layout.state,
                .a_column_stride = 1,
                .b = w.scratch + layout.state_transposed,
                .b_stride = layout.head,
                .m = carried,
                .n = layout.head,
                .k = w.op.shape.state_size,
                .accumulate = false});
  }
  for (int64_t i = 0; i < w.chunk.length; ++i) {
    const float from_start = i < carried ? decays.from_start[i] : 0.0F;
    for (int64_t p = 0; p < layout.head; p += kLanes) {
      const Vec value = load(x + i * layout.head + p);
      const Vec carry = i < carried ? load(y + i * layout.head + p) * from_start : Vec{};
      store(y + i * layout.head + p, value * d + carry);
      store(x + i * layout.head + p, value * decays.step[i]);
    }
  }
}

/// y += what the chunk's own tokens give each other: scores times decays times x dt'.
void add_chunk_outputs(const Work& w, const HeadDecays& decays) {
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  float* weights = w.scratch + layout.weights;
  for (int64_t first = 0; first < chunk.length; first += kSsdSources) {
    const int64_t count = least(kSsdSources, chunk.length - first);
    const int64_t last = first + count - 1;
    decays.between.begin_sources(last, chunk.columns);
    for (int64_t r = 0; r < count; ++r) {
      const DecayRow row = decays.row(first + r, last, w.ends());
      const float* scores = w.scratch + layout.scores + (first + r) * layout.chunk;
      for (int64_t i = first; i < chunk.columns; i += kLanes)
        store(weights + r * layout.chunk + i, load(scores + i) * row.to(i));
    }
    small_gemm({.c = w.scratch + layout.y + first * layout.head,
                .c_stride = layout.head,
                .a = weights + first,
                .a_row_stride = 1,
                .a_column_stride = layout.chunk,
                .b = w.scratch + layout.x + first * layout.head,
                .b_stride = layout.head,
                .m = chunk.length - first,
                .n = layout.head,
                .k = count,
                .accumulate = true});
  }
}

/// h becomes the state behind the chunk; x dt' is used up.
void advance_state(const Work& w, const HeadDecays& decays, bool has_state) {
  const SsdLayout& layout = w.layout;
  float* h = w.scratch + layout.h;
  float* x = w.scratch + layout.x;
  const int64_t begin = w.chunk.last_document;
  for (int64_t i = begin; i < w.chunk.length; ++i)
    scale_row(x + i * layout.head, layout.head, decays.to_end[i]);
  const bool kept = has_state && decays.across > 0.0F;
  if (kept) scale_row(h, layout.head * layout.state, decays.across);
  small_gemm({.c = h,
              .c_stride = layout.state,
              .a = x + begin * layout.head,
              .a_row_stride = 1,
              .a_column_stride = layout.head,
              .b = w.scratch + layout.b + begin * layout.state,
              .b_stride = layout.state,
              .m = w.op.shape.head_size,
              .n = layout.state,
              .k = w.chunk.length - begin,
              .accumulate = kept});
}

template <class T>
void forward_head(const Work& w, int64_t head) {
  const SsdForward& op = w.op;
  const SsdShape& shape = op.shape;
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  const HeadWeights weights = weights_of<T>(op, head);
  find_steps(
      op.limits, chunk,
      Rows<T>{static_cast<const T*>(op.dt) + chunk.first * op.dt_stride + head, op.dt_stride},
      weights.dt_bias, w.scratch + layout.step, nullptr);
  const HeadDecays decays = find_decays(layout, w.scratch, chunk, weights.a);
  const int64_t num_chunks = shape.num_chunks();
  float* entry = op.states + state_offset(shape, w.unit.sequence * num_chunks + chunk.index, head);
  const bool has_state = chunk.index > 0 || op.initial_state != nullptr;
  if (has_state)
    pack_rows(w.scratch + layout.h, layout.state, entry, shape.state_size, shape.state_size,
              shape.head_size, layout.head);
  pack_rows(w.scratch + layout.x, layout.head,
            static_cast<const T*>(op.xbc) + chunk.first * op.xbc_stride + head * shape.head_size,
            op.xbc_stride, shape.head_size, chunk.length, chunk.length);
  begin_outputs(w, decays, weights.d, has_state);
  add_chunk_outputs(w, decays);
  unpack_rows(static_cast<T*>(op.y) + chunk.first * op.y_stride + head * shape.head_size,
              op.y_stride, w.scratch + layout.y, layout.head, shape.head_size, chunk.length);
  const bool is_last = chunk.index + 1 == num_chunks;
  if (is_last && op.final_state == nullptr) return;
  advance_state(w, decays, has_state);
  unpack_rows(is_last ? op.final_state + state_offset(shape, w.unit.sequence, head)
                      : entry + shape.state_elements(),
              shape.state_size, w.scratch + layout.h, layout.state, shape.state_size,
              shape.head_size);
}

/// The states before the first chunk.
void copy_initial_states(const SsdForward& op, const SsdUnit& unit) {
  const SsdShape& shape = op.shape;
  const auto bytes = static_cast<size_t>(state_offset(shape, 0, unit.num_heads)) * sizeof(float);
  float* to = op.states + state_offset(shape, unit.sequence * shape.num_chunks(), unit.first_head);
  if (op.initial_state == nullptr)
    memset(to, 0, bytes);
  else
    memcpy(to, op.initial_state + state_offset(shape, unit.sequence, unit.first_head), bytes);
}

template <class T>
void forward_unit(const SsdForward& op, const SsdLayout& layout, float* scratch,
                  const SsdUnit& unit) {
  const SsdShape& shape = op.shape;
  copy_initial_states(op, unit);
  for (int64_t index = 0; index < shape.num_chunks(); ++index) {
    Chunk chunk = chunk_of(shape, unit.sequence, index);
    find_documents(chunk, op.positions, reinterpret_cast<int32_t*>(scratch + layout.document_end));
    const T* row = static_cast<const T*>(op.xbc) + chunk.first * op.xbc_stride;
    pack_group(shape, layout, scratch, chunk,
               Rows<T>{row + shape.columns() + unit.group * shape.state_size, op.xbc_stride});
    const Work work{op, layout, scratch, unit, chunk};
    for (int64_t head = 0; head < unit.num_heads; ++head)
      forward_head<T>(work, unit.first_head + head);
  }
}

}  // namespace

void ssd_forward(const SsdForward& op, Range units, float* scratch) {
  const SsdLayout layout = ssd_forward_layout(op.shape);
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t index = units.begin; index < units.end; ++index)
      forward_unit<T>(op, layout, scratch, ssd_unit(op.shape, index));
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
