#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// to[columns] += from[columns]
template <class T>
void add_row(float* to, const T* from, Range columns) {
  for_each_vec(columns.begin, columns.end, [&](int64_t i, auto part) {
    store(to + i, load(to + i, part) + load(from + i, part), part);
  });
}

void zero_columns(float* matrix, int64_t rows, int64_t size, Range columns) {
  for (int64_t row = 0; row < rows; ++row)
    memset(matrix + row * size + columns.begin, 0,
           static_cast<size_t>(columns.end - columns.begin) * sizeof(float));
}

template <class T>
void backward(const EmbeddingBackward& op, Range columns) {
  if (!op.accumulate) zero_columns(op.dweight, op.vocab_end - op.vocab_begin, op.size, columns);
  for (int64_t t = 0; t < op.tokens; ++t) {
    const int64_t id = op.ids[t];
    if (id < op.vocab_begin || id >= op.vocab_end) continue;
    add_row(op.dweight + (id - op.vocab_begin) * op.size,
            static_cast<const T*>(op.dout) + t * op.dout_stride, columns);
  }
}

template <class T>
void position_forward(const PositionEmbeddingForward& op, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.x_stride;
    const T* weight = static_cast<const T*>(op.weight) + op.positions.of(t) * op.size;
    T* out = static_cast<T*>(op.out) + t * op.out_stride;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      store(out + i, load(x + i, part) + load(weight + i, part), part);
    });
  }
}

template <class T>
void position_backward(const PositionEmbeddingBackward& op, Range columns) {
  if (!op.accumulate) zero_columns(op.dweight, op.num_positions, op.size, columns);
  for (int64_t t = 0; t < op.tokens; ++t)
    add_row(op.dweight + op.positions.of(t) * op.size,
            static_cast<const T*>(op.dout) + t * op.dout_stride, columns);
}

}  // namespace

void embedding_forward(const EmbeddingForward& op, Range rows) {
  const int64_t element = size_of(op.dtype);
  const size_t row_bytes = static_cast<size_t>(op.size * element);
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    char* out = static_cast<char*>(op.out) + t * op.out_stride * element;
    const int64_t id = op.ids[t];
    if (id < op.vocab_begin || id >= op.vocab_end) {
      memset(out, 0, row_bytes);
    } else {
      const char* weight = static_cast<const char*>(op.weight);
      memcpy(out, weight + (id - op.vocab_begin) * op.size * element, row_bytes);
    }
  }
}
void embedding_backward(const EmbeddingBackward& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, columns); });
}
void position_embedding_forward(const PositionEmbeddingForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { position_forward<T>(op, rows); });
}
void position_embedding_backward(const PositionEmbeddingBackward& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { position_backward<T>(op, columns); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
