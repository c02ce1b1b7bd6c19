#include "simd/mixers/ssd_chunk.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// One chunk of a unit's heads.
struct Work {
  const SsdBackward& op;
  const SsdLayout& layout;
  float* scratch;
  const SsdUnit& unit;
  const Chunk& chunk;
  const SsdSums& sums;

  const int32_t* ends() const {
    return reinterpret_cast<const int32_t*>(scratch + layout.document_end);
  }
  /// Row i of packed (Q, P) or (Q, N) operands.
  float* row_p(int64_t offset, int64_t i) const { return scratch + offset + i * layout.head; }
  float* row_n(int64_t offset, int64_t i) const { return scratch + offset + i * layout.state; }
};

/// One head of it.
struct Head {
  const Work& work;
  int64_t head;
  HeadWeights weights;
  HeadDecays decays;
  float* state_grad;    // (P, N), of the state behind the chunk
  bool has_state;       // on entry
  bool has_state_grad;  // behind the chunk
};

/// y's place gets the gradient of x dt' through the state behind the chunk, end_dot its product
/// with x dt'.
void begin_source_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const int64_t begin = h.has_state_grad ? w.chunk.last_document : w.chunk.length;
  memset(w.row_p(layout.y, 0), 0, static_cast<size_t>(begin * layout.head) * sizeof(float));
  float* end_dot = w.scratch + layout.end_dot;
  for (int64_t i = 0; i < begin; ++i) end_dot[i] = 0.0F;
  if (!h.has_state_grad) return;
  transpose(w.scratch + layout.state_transposed, layout.head, h.state_grad, layout.state,
            layout.head, layout.state);
  small_gemm({.c = w.row_p(layout.y, begin),
              .c_stride = layout.head,
              .a = w.row_n(layout.b, begin),
              .a_row_stride = layout.state,
              .a_column_stride = 1,
              .b = w.scratch + layout.state_transposed,
              .b_stride = layout.head,
              .m = w.chunk.length - begin,
              .n = layout.head,
              .k = w.op.shape.state_size,
              .accumulate = false});
  for (int64_t i = begin; i < w.chunk.length; ++i) {
    scale_row(w.row_p(layout.y, i), layout.head, h.decays.to_end[i]);
    end_dot[i] = h.decays.step[i] * dot(w.row_p(layout.x, i), w.row_p(layout.y, i), layout.head);
  }
}

/// One source's row: from products dy x to the weights of dy, and what the source adds to the
/// scores' gradients. Where paths from sources up to this one to later targets cross the step from
/// it to the next token, that step's decay gets their sum.
void weigh_source(const Head& h, const DecayRow& row, float* weights, const float* products) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const float* scores = w.scratch + layout.scores + row.source * layout.chunk;
  float* score_grads = w.scratch + layout.score_grads + row.source * layout.chunk;
  float* crossing = w.scratch + layout.crossing;
  const float step = h.decays.step[row.source];
  const int64_t first = row.source / kSsdSources * kSsdSources;
  Vec total{};
  for (int64_t i = first; i < w.chunk.columns; i += kLanes) {
    const Vec decay = row.to(i);
    const Vec score = load(scores + i);
    const Vec score_grad = decay * load(products + i) * step;
    store(weights + i, score * decay);
    store(score_grads + i, load(score_grads + i) + score_grad);
    const IntVec later = iota() + static_cast<int32_t>(i) > static_cast<int32_t>(row.source);
    const Vec paths = load(crossing + i) + (later ? score * score_grad : Vec{});
    store(crossing + i, paths);
    total += later ? paths : Vec{};
  }
  if (row.source + 1 < w.chunk.length) w.scratch[layout.decay_grad + row.source + 1] = sum(total);
}

/// Adds what targets of the chunk give to its sources.
void add_chunk_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  float* weights = w.scratch + layout.weights;
  float* products = weights + kSsdSources * layout.chunk;
  memset(w.scratch + layout.crossing, 0, static_cast<size_t>(layout.chunk) * sizeof(float));
  w.scratch[layout.decay_grad] = 0.0F;
  for (int64_t first = 0; first < chunk.length; first += kSsdSources) {
    const int64_t count = least(kSsdSources, chunk.length - first);
    small_gemm({.c = products + first,
                .c_stride = layout.chunk,
                .a = w.row_p(layout.x, first),
                .a_row_stride = layout.head,
                .a_column_stride = 1,
                .b = w.scratch + layout.dy_transposed + first,
                .b_stride = layout.chunk,
                .m = count,
                .n = chunk.columns - first,
                .k = w.op.shape.head_size,
                .accumulate = false});
    const int64_t last = first + count - 1;
    h.decays.between.begin_sources(last, chunk.columns);
    for (int64_t r = 0; r < count; ++r)
      weigh_source(h, h.decays.row(first + r, last, w.ends()), weights + r * layout.chunk,
                   products + r * layout.chunk);
    small_gemm({.c = w.row_p(layout.y, first),
                .c_stride = layout.head,
                .a = weights + first,
                .a_row_stride = layout.chunk,
                .a_column_stride = 1,
                .b = w.row_p(layout.dy, first),
                .b_stride = layout.head,
                .m = count,
                .n = layout.head,
                .k = chunk.length - first,
                .accumulate = true});
  }
}

/// dx = dt' times the gradient of x dt', plus d dy. Adds to the sum of d's gradient.
template <class T>
void store_x_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const int64_t size = w.op.shape.head_size;
  T* dx = static_cast<T*>(w.op.dxbc) + w.chunk.first * w.op.dxbc_stride + h.head * size;
  double of_d = 0.0;
  for (int64_t i = 0; i < w.chunk.length; ++i) {
    const float* x = w.row_p(layout.x, i);
    const float* dy = w.row_p(layout.dy, i);
    const float* grad = w.row_p(layout.y, i);
    w.scratch[layout.x_dot + i] = dot(x, grad, layout.head);
    of_d += static_cast<double>(dot(x, dy, layout.head));
    for_each_vec(0, size, [&](int64_t p, auto part) {
      store(dx + i * w.op.dxbc_stride + p,
            load(grad + p) * h.decays.step[i] + load(dy + p) * h.weights.d, part);
    });
  }
  w.sums.of_heads[(w.unit.sequence * w.op.shape.heads + h.head) * kSsdHeadSums + 1] += of_d;
}

/// Gradients of c through the state on entry. dy becomes dy from_start; start_dot gets what each
/// target adds to the gradient of the decays before it.
void add_entry_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const int64_t carried = w.chunk.carried;
  float* start_dot = w.scratch + layout.start_dot;
  for (int64_t i = 0; i < w.chunk.length; ++i) start_dot[i] = 0.0F;
  for (int64_t i = 0; i < carried; ++i)
    scale_row(w.row_p(layout.dy, i), layout.head, h.decays.from_start[i]);
  if (!h.has_state) return;
  small_gemm({.c = w.row_n(layout.dc_of_head, 0),
              .c_stride = layout.state,
              .a = w.row_p(layout.dy, 0),
              .a_row_stride = layout.head,
              .a_column_stride = 1,
              .b = w.scratch + layout.h,
              .b_stride = layout.state,
              .m = carried,
              .n = layout.state,
              .k = w.op.shape.head_size,
              .accumulate = false});
  for (int64_t i = 0; i < carried; ++i) {
    const float* of_head = w.row_n(layout.dc_of_head, i);
    float* dc = w.row_n(layout.dc, i);
    start_dot[i] = dot(of_head, w.row_n(layout.c, i), layout.state);
    for (int64_t n = 0; n < layout.state; n += kLanes)
      store(dc + n, load(dc + n) + load(of_head + n));
  }
}

/// Gradients of b through the state behind the chunk. x becomes x dt' to_end.
void add_exit_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  if (!h.has_state_grad) return;
  const int64_t begin = w.chunk.last_document;
  for (int64_t i = begin; i < w.chunk.length; ++i)
    scale_row(w.row_p(layout.x, i), layout.head, h.decays.step[i] * h.decays.to_end[i]);
  small_gemm({.c = w.row_n(layout.db, begin),
              .c_stride = layout.state,
              .a = w.row_p(layout.x, begin),
              .a_row_stride = layout.head,
              .a_column_stride = 1,
              .b = h.state_grad,
              .b_stride = layout.state,
              .m = w.chunk.length - begin,
              .n = layout.state,
              .k = w.op.shape.head_size,
              .accumulate = true});
}

/// ddt, from the gradients of steps and of decays; adds to the sums of a_log and dt_bias.
template <class T>
void store_step_grads(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const float* end_dot = w.scratch + layout.end_dot;
  const float* start_dot = w.scratch + layout.start_dot;
  float* decay_grad = w.scratch + layout.decay_grad;
  const int64_t states = layout.head * layout.state;
  const double across =
      h.has_state && h.has_state_grad && h.decays.across > 0.0F
          ? static_cast<double>(h.decays.across * dot(w.scratch + layout.h, h.state_grad, states))
          : 0.0;
  double later = across;  // targets from here on, through the state on entry
  for (int64_t i = w.chunk.length - 1; i >= 0; --i) {
    later += static_cast<double>(start_dot[i]);
    decay_grad[i] += i < w.chunk.carried ? static_cast<float>(later) : 0.0F;
  }
  T* ddt = static_cast<T*>(w.op.ddt) + w.chunk.first * w.op.ddt_stride + h.head;
  double earlier = 0.0;  // sources before this one, through the state behind the chunk
  double of_a = 0.0;
  double of_bias = 0.0;
  for (int64_t i = 0; i < w.chunk.length; ++i) {
    const float decay = decay_grad[i] + static_cast<float>(earlier);
    earlier += static_cast<double>(end_dot[i]);
    const float step_grad = w.scratch[layout.x_dot + i] + h.weights.a * decay;
    const float raw = step_grad * w.scratch[layout.slope + i];
    store(ddt + i * w.op.ddt_stride, splat(raw), Tail{1});
    of_a += static_cast<double>(h.decays.step[i]) * static_cast<double>(decay);
    of_bias += static_cast<double>(raw);
  }
  double* sums = w.sums.of_heads + (w.unit.sequence * w.op.shape.heads + h.head) * kSsdHeadSums;
  sums[0] += of_a * static_cast<double>(h.weights.a);
  sums[2] += of_bias;
}

/// The gradient of the state on entry takes the place of that behind the chunk.
void pass_state_grad(const Head& h) {
  const Work& w = h.work;
  const SsdLayout& layout = w.layout;
  const bool kept = h.has_state_grad && h.decays.across > 0.0F;
  if (kept) scale_row(h.state_grad, layout.head * layout.state, h.decays.across);
  small_gemm({.c = h.state_grad,
              .c_stride = layout.state,
              .a = w.row_p(layout.dy, 0),
              .a_row_stride = 1,
              .a_column_stride = layout.head,
              .b = w.row_n(layout.c, 0),
              .b_stride = layout.state,
              .m = layout.head,
              .n = layout.state,
              .k = w.chunk.carried,
              .accumulate = kept});
}

bool is_zero(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (values[i] != 0.0F) return false;
  return true;
}

template <class T>
void pack_head(const Work& w, int64_t head) {
  const SsdBackward& op = w.op;
  const SsdShape& shape = op.shape;
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  const int64_t column = head * shape.head_size;
  pack_rows(w.scratch + layout.x, layout.head,
            static_cast<const T*>(op.xbc) + chunk.first * op.xbc_stride + column, op.xbc_stride,
            shape.head_size, chunk.length, chunk.columns);
  pack_rows(w.scratch + layout.dy, layout.head,
            static_cast<const T*>(op.dy) + chunk.first * op.dy_stride + column, op.dy_stride,
            shape.head_size, chunk.length, chunk.columns);
  transpose(w.scratch + layout.dy_transposed, layout.chunk, w.scratch + layout.dy, layout.head,
            chunk.columns, layout.head);
}

template <class T>
void backward_head(const Work& w, int64_t index) {
  const SsdBackward& op = w.op;
  const SsdShape& shape = op.shape;
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  const int64_t head = w.unit.first_head + index;
  const HeadWeights weights = weights_of<T>(op, head);
  find_steps(
      op.limits, chunk,
      Rows<T>{static_cast<const T*>(op.dt) + chunk.first * op.dt_stride + head, op.dt_stride},
      weights.dt_bias, w.scratch + layout.step, w.scratch + layout.slope);
  pack_head<T>(w, head);
  const float* entry =
      op.states + state_offset(shape, w.unit.sequence * shape.num_chunks() + chunk.index, head);
  const bool has_state = chunk.index > 0 || !is_zero(entry, state_offset(shape, 0, 1));
  if (has_state)
    pack_rows(w.scratch + layout.h, layout.state, entry, shape.state_size, shape.state_size,
              shape.head_size, layout.head);
  const Head h{
      w,
      head,
      weights,
      find_decays(layout, w.scratch, chunk, weights.a),
      w.scratch + layout.state_grads + index * layout.head * layout.state,
      has_state,
      chunk.index + 1 < shape.num_chunks() || op.final_state_grad != nullptr,
  };
  begin_source_grads(h);
  add_chunk_grads(h);
  store_x_grads<T>(h);
  add_entry_grads(h);
  add_exit_grads(h);
  store_step_grads<T>(h);
  if (chunk.index > 0 || op.initial_state_grad != nullptr) pass_state_grad(h);
}

/// Gradients of b and c through the scores of all heads together; then they go to the unit's part.
void finish_group_grads(const Work& w) {
  const SsdShape& shape = w.op.shape;
  const SsdLayout& layout = w.layout;
  const Chunk& chunk = w.chunk;
  for (int64_t first = 0; first < chunk.length; first += kSsdSources) {
    const int64_t count = least(kSsdSources, chunk.length - first);
    const float* grads = w.scratch + layout.score_grads + first * layout.chunk + first;
    SmallGemm product{.c = w.row_n(layout.db, first),
                      .c_stride = layout.state,
                      .a = grads,
                      .a_row_stride = layout.chunk,
                      .a_column_stride = 1,
                      .b = w.row_n(layout.c, first),
                      .b_stride = layout.state,
                      .m = count,
                      .n = layout.state,
                      .k = chunk.length - first,
                      .accumulate = true};
    small_gemm(product);
    product.c = w.row_n(layout.dc, first);
    product.b = w.row_n(layout.b, first);
    product.a_row_stride = 1;
    product.a_column_stride = layout.chunk;
    product.m = chunk.length - first;
    product.k = count;
    small_gemm(product);
  }
  const int64_t n = shape.state_size;
  const int64_t parts = ssd_parts_per_group(shape);
  for (int64_t i = 0; i < chunk.length; ++i) {
    float* out = w.sums.bc_grads +
                 (((chunk.first + i) * shape.groups + w.unit.group) * parts + w.unit.part) * 2 * n;
    memcpy(out, w.row_n(layout.db, i), static_cast<size_t>(n) * sizeof(float));
    memcpy(out + n, w.row_n(layout.dc, i), static_cast<size_t>(n) * sizeof(float));
  }
}

template <class T>
void backward_chunk(const Work& w) {
  const SsdBackward& op = w.op;
  const SsdShape& shape = op.shape;
  const SsdLayout& layout = w.layout;
  const T* row = static_cast<const T*>(op.xbc) + w.chunk.first * op.xbc_stride;
  pack_group(shape, layout, w.scratch, w.chunk,
             Rows<T>{row + shape.columns() + w.unit.group * shape.state_size, op.xbc_stride});
  const auto zero = [&](int64_t at, int64_t width) {
    memset(w.scratch + at, 0, static_cast<size_t>(layout.chunk * width) * sizeof(float));
  };
  zero(layout.score_grads, layout.chunk);
  zero(layout.db, layout.state);
  zero(layout.dc, layout.state);
  for (int64_t head = 0; head < w.unit.num_heads; ++head) backward_head<T>(w, head);
  finish_group_grads(w);
}

template <class T>
void backward_unit(const SsdBackward& op, const SsdLayout& layout, float* scratch,
                   const SsdUnit& unit, const SsdSums& sums) {
  const SsdShape& shape = op.shape;
  const int64_t states = layout.head * layout.state;
  memset(sums.of_heads + (unit.sequence * shape.heads + unit.first_head) * kSsdHeadSums, 0,
         static_cast<size_t>(unit.num_heads * kSsdHeadSums) * sizeof(double));
  if (op.final_state_grad != nullptr)
    for (int64_t head = 0; head < unit.num_heads; ++head)
      pack_rows(scratch + layout.state_grads + head * states, layout.state,
                op.final_state_grad + state_offset(shape, unit.sequence, unit.first_head + head),
                shape.state_size, shape.state_size, shape.head_size, layout.head);
  for (int64_t index = shape.num_chunks() - 1; index >= 0; --index) {
    Chunk chunk = chunk_of(shape, unit.sequence, index);
    find_documents(chunk, op.positions, reinterpret_cast<int32_t*>(scratch + layout.document_end));
    backward_chunk<T>({op, layout, scratch, unit, chunk, sums});
  }
  if (op.initial_state_grad == nullptr) return;
  for (int64_t head = 0; head < unit.num_heads; ++head)
    unpack_rows(op.initial_state_grad + state_offset(shape, unit.sequence, unit.first_head + head),
                shape.state_size, scratch + layout.state_grads + head * states, layout.state,
                shape.state_size, shape.head_size);
}

}  // namespace

void ssd_backward(const SsdBackward& op, Range units, float* scratch, const SsdSums& sums) {
  const SsdLayout layout = ssd_backward_layout(op.shape);
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t index = units.begin; index < units.end; ++index)
      backward_unit<T>(op, layout, scratch, ssd_unit(op.shape, index), sums);
  });
}

void ssd_bc_grads(const SsdBackward& op, Range rows, const SsdSums& sums) {
  const int64_t n = op.shape.state_size;
  const int64_t groups = op.shape.groups;
  const int64_t parts = ssd_parts_per_group(op.shape);
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    for (int64_t row = rows.begin; row < rows.end; ++row)
      for (int64_t group = 0; group < groups; ++group)
        for (int64_t which = 0; which < 2; ++which) {  // b, c
          const float* in = sums.bc_grads + (row * groups + group) * parts * 2 * n + which * n;
          T* out = static_cast<T*>(op.dxbc) + row * op.dxbc_stride + op.shape.columns() +
                   (which * groups + group) * n;
          for_each_vec(0, n, [&](int64_t i, auto part) {
            Vec total = load(in + i, part);
            for (int64_t p = 1; p < parts; ++p) total += load(in + p * 2 * n + i, part);
            store(out + i, total, part);
          });
        }
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
