#include "simd/activation_functions.hpp"
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void forward(const GatedActivationForward& op, Range rows) {
  with_kind(op.kind, [&](auto kind) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const T* gate = static_cast<const T*>(op.x) + t * op.x_stride;
      const T* up = gate + op.size;
      T* y = static_cast<T*>(op.y) + t * op.y_stride;
      for_each_vec(0, op.size, [&](int64_t i, auto part) {
        const Vec value = evaluate<decltype(kind)::value>(load(gate + i, part)).value;
        store(y + i, value * gated_factor<decltype(kind)::value>(load(up + i, part)).value, part);
      });
    }
  });
}

template <class T>
void backward(const GatedActivationBackward& op, Range rows) {
  with_kind(op.kind, [&](auto kind) {
    for (int64_t t = rows.begin; t < rows.end; ++t) {
      const T* gate = static_cast<const T*>(op.x) + t * op.x_stride;
      const T* up = gate + op.size;
      const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
      T* dgate = static_cast<T*>(op.dx) + t * op.dx_stride;
      T* dup = dgate + op.size;
      for_each_vec(0, op.size, [&](int64_t i, auto part) {
        const Vec grad = load(dy + i, part);
        const ValueAndSlope factor = gated_factor<decltype(kind)::value>(load(up + i, part));
        const ValueAndSlope act = evaluate<decltype(kind)::value>(load(gate + i, part));
        store(dgate + i, grad * factor.value * act.slope, part);
        store(dup + i, grad * act.value * factor.slope, part);
      });
    }
  });
}

}  // namespace

void gated_activation_forward(const GatedActivationForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, rows); });
}
void gated_activation_backward(const GatedActivationBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, rows); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
