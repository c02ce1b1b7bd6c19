#include "kernels/mixers/gated_rms_norm.hpp"

#include "simd/activation_functions.hpp"
#include "simd/column_sums.hpp"
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

template <GateOrder o>
struct Order {
  static constexpr GateOrder value = o;
};

template <class Body>
MESHPLAN_INLINE void with_order(GateOrder order, Body body) {
  if (order == GateOrder::NormThenGate)
    body(Order<GateOrder::NormThenGate>{});
  else
    body(Order<GateOrder::GateThenNorm>{});
}

MESHPLAN_INLINE ValueAndSlope gate_of(Vec z) {
  return evaluate<ActivationKind::Silu>(z);
}

/// What the norm gets of x.
template <GateOrder order>
MESHPLAN_INLINE Vec norm_input(Vec x, Vec gate) {
  return order == GateOrder::NormThenGate ? x : x * gate;
}
/// What its output, and the gradient of it, are multiplied by beside the weight.
template <GateOrder order>
MESHPLAN_INLINE Vec output_gate(Vec gate) {
  return order == GateOrder::NormThenGate ? gate : splat(1.0F);
}

template <class T, GateOrder order>
void forward(const GatedRmsNormForward& op, Range rows) {
  const int64_t size = op.shape.size;
  const int64_t groups = op.shape.groups;
  const bool shared = op.shape.shared_weight;
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const T* x = static_cast<const T*>(op.x) + t * op.x_stride + g * size;
      const T* z = static_cast<const T*>(op.z) + t * op.z_stride + g * size;
      const T* weight = static_cast<const T*>(op.weight) + (shared ? 0 : g * size);
      T* y = static_cast<T*>(op.y) + t * op.y_stride + g * size;
      Vec squares{};
      for_each_vec(0, size, [&](int64_t i, auto part) {
        const Vec value = norm_input<order>(load(x + i, part), gate_of(load(z + i, part)).value);
        squares += value * value;
      });
      const float mean_square = sum(squares) / static_cast<float>(size);
      const float inv_rms = 1.0F / __builtin_sqrtf(mean_square + op.epsilon);
      op.inv_rms[t * groups + g] = inv_rms;
      for_each_vec(0, size, [&](int64_t i, auto part) {
        const Vec gate = gate_of(load(z + i, part)).value;
        const Vec normed = norm_input<order>(load(x + i, part), gate) * inv_rms;
        store(y + i, normed * load(weight + i, part) * output_gate<order>(gate), part);
      });
    }
  }
}

template <class T, GateOrder order>
void input_grad(const GatedRmsNormBackward& op, Range rows) {
  const int64_t size = op.shape.size;
  const int64_t groups = op.shape.groups;
  const bool shared = op.shape.shared_weight;
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    for (int64_t g = 0; g < groups; ++g) {
      const T* x = static_cast<const T*>(op.x) + t * op.x_stride + g * size;
      const T* z = static_cast<const T*>(op.z) + t * op.z_stride + g * size;
      const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride + g * size;
      const T* weight = static_cast<const T*>(op.weight) + (shared ? 0 : g * size);
      T* dx = static_cast<T*>(op.dx) + t * op.dx_stride + g * size;
      T* dz = static_cast<T*>(op.dz) + t * op.dz_stride + g * size;
      const float inv_rms = op.inv_rms[t * groups + g];
      Vec products{};
      for_each_vec(0, size, [&](int64_t i, auto part) {
        const Vec gate = gate_of(load(z + i, part)).value;
        products += load(dy + i, part) * load(weight + i, part) * output_gate<order>(gate) *
                    norm_input<order>(load(x + i, part), gate);
      });
      // mean(dn n) inv_rms^2, so that what the norm gets has the gradient inv_rms dn - h factor
      const float factor = sum(products) / static_cast<float>(size) * inv_rms * inv_rms * inv_rms;
      for_each_vec(0, size, [&](int64_t i, auto part) {
        const ValueAndSlope gate = gate_of(load(z + i, part));
        const Vec value = load(x + i, part);
        const Vec grad = load(dy + i, part) * load(weight + i, part);
        const Vec of_input = grad * output_gate<order>(gate.value) * inv_rms -
                             norm_input<order>(value, gate.value) * factor;
        if constexpr (order == GateOrder::NormThenGate) {
          store(dx + i, of_input, part);
          store(dz + i, grad * value * inv_rms * gate.slope, part);
        } else {
          store(dx + i, of_input * gate.value, part);
          store(dz + i, of_input * value * gate.slope, part);
        }
      });
    }
  }
}

/// The columns of group `g` in `columns`, or with a shared weight those of all groups.
template <class T, GateOrder order>
void weight_grad_of(const GatedRmsNormBackward& op, int64_t g, Range columns) {
  const int64_t size = op.shape.size;
  const int64_t groups = op.shape.groups;
  const bool shared = op.shape.shared_weight;
  const int64_t own = shared ? groups : 1;  // groups that this weight is of
  const auto term = [&](int64_t row, int64_t i, auto part) {
    const int64_t t = row / own;
    const int64_t group = g + row % own;
    const int64_t at = group * size + i;
    const Vec gate = gate_of(load(static_cast<const T*>(op.z) + t * op.z_stride + at, part)).value;
    const Vec value = load(static_cast<const T*>(op.x) + t * op.x_stride + at, part);
    return load(static_cast<const T*>(op.dy) + t * op.dy_stride + at, part) *
           output_gate<order>(gate) * norm_input<order>(value, gate) *
           op.inv_rms[t * groups + group];
  };
  column_sums(op.dweight + (shared ? 0 : g * size), columns, op.shape.tokens * own, op.accumulate,
              term);
}

template <class T, GateOrder order>
void weight_grad(const GatedRmsNormBackward& op, Range columns) {
  const int64_t size = op.shape.size;
  for (int64_t g = columns.begin / size; g * size < columns.end; ++g) {
    const int64_t first = g * size;
    weight_grad_of<T, order>(op, g,
                             {columns.begin > first ? columns.begin - first : 0,
                              columns.end - first < size ? columns.end - first : size});
  }
}

}  // namespace

void gated_rms_norm_forward(const GatedRmsNormForward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_order(op.shape.order, [&](auto order) { forward<T, decltype(order)::value>(op, rows); });
  });
}
void gated_rms_norm_input_grad(const GatedRmsNormBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_order(op.shape.order,
               [&](auto order) { input_grad<T, decltype(order)::value>(op, rows); });
  });
}
void gated_rms_norm_weight_grad(const GatedRmsNormBackward& op, Range columns) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_order(op.shape.order,
               [&](auto order) { weight_grad<T, decltype(order)::value>(op, columns); });
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
