#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void rotate(const Rope& op, Range rows) {
  const int64_t half = op.rope_size / 2;
  const float sign = op.inverse ? -1.0F : 1.0F;
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const float* cosine = op.table + op.positions.of(t) * op.rope_size;
    const float* sine = cosine + half;
    for (int h = 0; h < op.heads; ++h) {
      T* first = static_cast<T*>(op.x) + t * op.x_stride + h * int64_t{op.head_size};
      T* second = first + half;
      for_each_vec(0, half, [&](int64_t i, auto part) {
        const Vec a = load(first + i, part);
        const Vec b = load(second + i, part);
        const Vec c = load(cosine + i, part);
        const Vec s = load(sine + i, part) * sign;
        store(first + i, a * c - b * s, part);
        store(second + i, b * c + a * s, part);
      });
    }
  }
}

}  // namespace

void rope(const Rope& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { rotate<T>(op, rows); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
