#include "simd/activation_functions.hpp"
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void forward(const ActivationForward& op, Range elements) {
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  with_kind(op.kind, [&](auto kind) {
    for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
      store(y + i, evaluate<decltype(kind)::value>(load(x + i, part)).value, part);
    });
  });
}

template <class T>
void backward(const ActivationBackward& op, Range elements) {
  const T* x = static_cast<const T*>(op.x);
  const T* dy = static_cast<const T*>(op.dy);
  T* dx = static_cast<T*>(op.dx);
  with_kind(op.kind, [&](auto kind) {
    for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
      const Vec slope = evaluate<decltype(kind)::value>(load(x + i, part)).slope;
      store(dx + i, load(dy + i, part) * slope, part);
    });
  });
}

}  // namespace

void activation_forward(const ActivationForward& op, Range elements) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, elements); });
}
void activation_backward(const ActivationBackward& op, Range elements) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, elements); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
