// add, accumulate, scale, fill, convert and the bias gradient: one line of arithmetic each.
#include "simd/column_sums.hpp"
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

void add(const Add& op, Range elements) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    const T* a = static_cast<const T*>(op.a);
    const T* b = static_cast<const T*>(op.b);
    T* out = static_cast<T*>(op.sum);
    for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
      store(out + i, load(a + i, part) + load(b + i, part), part);
    });
  });
}

void accumulate(const Accumulate& op, Range elements) {
  with_type(op.sum_dtype, [&]<class S>(S* /*type*/) {
    with_type(op.value_dtype, [&]<class T>(T* /*type*/) {
      S* out = static_cast<S*>(op.sum);
      const T* value = static_cast<const T*>(op.value);
      for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
        store(out + i, load(out + i, part) + load(value + i, part), part);
      });
    });
  });
}

void scale(const Scale& op, Range elements) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    const T* x = static_cast<const T*>(op.x);
    T* y = static_cast<T*>(op.y);
    for_each_vec(elements.begin, elements.end,
                 [&](int64_t i, auto part) { store(y + i, load(x + i, part) * op.factor, part); });
  });
}

void fill(const Fill& op, Range elements) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    T* x = static_cast<T*>(op.x);
    for_each_vec(elements.begin, elements.end,
                 [&](int64_t i, auto part) { store(x + i, splat(op.value), part); });
  });
}

void convert(const Convert& op, Range elements) {
  with_type(op.from_dtype, [&]<class S>(S* /*type*/) {
    with_type(op.to_dtype, [&]<class T>(T* /*type*/) {
      const S* from = static_cast<const S*>(op.from);
      T* to = static_cast<T*>(op.to);
      for_each_vec(elements.begin, elements.end,
                   [&](int64_t i, auto part) { store(to + i, load(from + i, part), part); });
    });
  });
}

void bias_grad(const LinearWeightGrad& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    const T* dy = static_cast<const T*>(op.dy);
    column_sums(
        op.dbias, columns, op.shape.tokens, op.accumulate,
        [&](int64_t t, int64_t i, auto part) { return load(dy + t * op.dy_stride + i, part); });
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
