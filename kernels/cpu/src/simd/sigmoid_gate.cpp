#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <class T>
void forward(const SigmoidGateForward& op, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* x = static_cast<const T*>(op.x) + t * op.size;
    const T* gate = static_cast<const T*>(op.gate) + t * op.gates;
    T* y = static_cast<T*>(op.y) + t * op.size;
    const Vec of_row = sigmoid(splat(load(gate, Tail{1})[0]));
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      store(y + i, load(x + i, part) * (op.gates == 1 ? of_row : sigmoid(load(gate + i, part))),
            part);
    });
  }
}

template <class T>
void backward(const SigmoidGateBackward& op, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* dy = static_cast<const T*>(op.dy) + t * op.size;
    const T* x = static_cast<const T*>(op.x) + t * op.size;
    const T* gate = static_cast<const T*>(op.gate) + t * op.gates;
    T* dx = static_cast<T*>(op.dx) + t * op.size;
    T* dgate = static_cast<T*>(op.dgate) + t * op.gates;
    const Vec of_row = sigmoid(splat(load(gate, Tail{1})[0]));
    Vec products{};
    for_each_vec(0, op.size, [&](int64_t i, auto part) {
      const Vec s = op.gates == 1 ? of_row : sigmoid(load(gate + i, part));
      const Vec grad = load(dy + i, part);
      const Vec slope = grad * load(x + i, part) * s * (1.0F - s);
      store(dx + i, grad * s, part);
      if (op.gates == 1)
        products += slope;
      else
        store(dgate + i, slope, part);
    });
    if (op.gates == 1) store(dgate, splat(sum(products)), Tail{1});
  }
}

}  // namespace

void sigmoid_gate_forward(const SigmoidGateForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { forward<T>(op, rows); });
}
void sigmoid_gate_backward(const SigmoidGateBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, rows); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
