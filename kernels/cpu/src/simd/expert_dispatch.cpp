#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// y[t] = sum of the token's rows, each times its probability; null probabilities are 1.
template <class T>
void sum_rows(const CombineForward& op, Range tokens) {
  const T* rows = static_cast<const T*>(op.rows);
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const int32_t* own = op.row_of_choice + t * op.top_k;
    const float* probability =
        op.probabilities == nullptr ? nullptr : op.probabilities + t * op.top_k;
    T* y = static_cast<T*>(op.y) + t * op.y_stride;
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      Vec sum{};
      for (int k = 0; k < op.top_k; ++k) {
        if (own[k] < 0) continue;
        const float factor = probability == nullptr ? 1.0F : probability[k];
        sum += factor * load(rows + own[k] * op.rows_stride + i, part);
      }
      store(y + i, sum, part);
    });
  }
}

template <class T>
void backward(const CombineBackward& op, Range tokens) {
  for (int64_t choice = tokens.begin * op.top_k; choice < tokens.end * op.top_k; ++choice) {
    if (op.row_of_choice[choice] < 0) {
      op.dprobabilities[choice] = 0.0F;
      continue;
    }
    const int64_t row = op.row_of_choice[choice] * op.rows_stride;
    const T* dy = static_cast<const T*>(op.dy) + choice / op.top_k * op.dy_stride;
    const T* own = static_cast<const T*>(op.rows) + row;
    T* drow = static_cast<T*>(op.drows) + row;
    const float probability = op.probabilities[choice];
    Vec products{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec grad = load(dy + i, part);
      products += grad * load(own + i, part);
      store(drow + i, probability * grad, part);
    });
    op.dprobabilities[choice] = sum(products);
  }
}

}  // namespace

void dispatch_forward(const DispatchForward& op, Range rows) {
  const int64_t element = size_of(op.dtype);
  const char* x = static_cast<const char*>(op.x);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    if (op.choice_of_row[row] < 0) continue;
    memcpy(static_cast<char*>(op.rows) + row * op.rows_stride * element,
           x + op.choice_of_row[row] / op.top_k * op.x_stride * element,
           static_cast<size_t>(op.size * element));
  }
}
void combine_forward(const CombineForward& op, Range tokens) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { sum_rows<T>(op, tokens); });
}
void combine_backward(const CombineBackward& op, Range tokens) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, tokens); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
