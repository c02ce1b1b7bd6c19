#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

/// Where the compute-dtype copy of the weights goes, if anywhere.
struct Copy {
  void* weight;
  DType dtype;
  template <class Part>
  MESHPLAN_INLINE void write(int64_t i, Vec value, Part part) const {
    if (weight == nullptr) return;
    with_type(dtype,
              [&]<class T>(T* /*type*/) { store(static_cast<T*>(weight) + i, value, part); });
  }
};

double power(double base, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2, base *= base)
    if (exponent % 2 == 1) result *= base;
  return result;
}

}  // namespace

void adam(const AdamStep& op, Range elements) {
  const float gradient_scale = op.gradient_scale != nullptr ? *op.gradient_scale : 1.0F;
  if (op.skips_nan_scale && gradient_scale != gradient_scale) return;
  const double correction1 = 1.0 - power(double{op.beta1}, op.step);
  const double correction2 = 1.0 - power(double{op.beta2}, op.step);
  const float step_size = static_cast<float>(double{op.learning_rate} / correction1);
  const float inv_sqrt_correction2 = static_cast<float>(1.0 / __builtin_sqrt(correction2));
  const float l2 = op.decoupled ? 0.0F : op.weight_decay;
  const float decay = op.decoupled ? op.learning_rate * op.weight_decay : 0.0F;
  const Copy copy{op.weight, op.weight_dtype};
  for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
    const Vec master = load(op.master + i, part);
    const Vec g = load(op.gradient + i, part) * gradient_scale + master * l2;
    const Vec m = load(op.m + i, part) * op.beta1 + g * (1.0F - op.beta1);
    const Vec v = load(op.v + i, part) * op.beta2 + g * g * (1.0F - op.beta2);
    const Vec denominator = sqrt(v) * inv_sqrt_correction2 + op.epsilon;
    const Vec updated = master - master * decay - m * step_size / denominator;
    store(op.m + i, m, part);
    store(op.v + i, v, part);
    store(op.master + i, updated, part);
    copy.write(i, updated, part);
  });
}

void sgd(const SgdStep& op, Range elements) {
  const float gradient_scale = op.gradient_scale != nullptr ? *op.gradient_scale : 1.0F;
  if (op.skips_nan_scale && gradient_scale != gradient_scale) return;
  const Copy copy{op.weight, op.weight_dtype};
  for_each_vec(elements.begin, elements.end, [&](int64_t i, auto part) {
    const Vec master = load(op.master + i, part);
    Vec g = load(op.gradient + i, part) * gradient_scale + master * op.weight_decay;
    if (op.velocity != nullptr) {
      const Vec velocity = load(op.velocity + i, part) * op.momentum + g;
      store(op.velocity + i, velocity, part);
      g = op.nesterov ? g + velocity * op.momentum : velocity;
    }
    const Vec updated = master - g * op.learning_rate;
    store(op.master + i, updated, part);
    copy.write(i, updated, part);
  });
}

double sum_of_squares(const float* x, int64_t count) {
  constexpr int kChains = 16;  // independent fp64 sums, combined in a fixed order
  double sums[kChains] = {};
  int64_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (int c = 0; c < kChains; ++c) sums[c] += double{x[i + c]} * double{x[i + c]};
  for (int c = 0; i < count; ++i, ++c) sums[c] += double{x[i]} * double{x[i]};
  double total = 0.0;
  for (const double part : sums) total += part;
  return total;
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
