#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

constexpr float kInfinity = __builtin_inff();

/// Value of one element.
float element(const float* p) {
  return *p;
}
template <class T>
float element(const T* p) {
  return load(p, Tail{1})[0];
}

template <class T>
void local(const CrossEntropyLocal& op, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
    Vec maxima = splat(-kInfinity);
    for_each_vec(0, op.valid, [&](int64_t i, auto part) {
      maxima = max(select(load(row + i, part), splat(-kInfinity), part), maxima);
    });
    const float maximum = max_lane(maxima);
    Vec sums{};
    for_each_vec(0, op.valid, [&](int64_t i, auto part) {
      sums += select(exp(load(row + i, part) - maximum), Vec{}, part);
    });
    const int64_t target = op.targets[t] - op.vocab_begin;
    const bool is_local = op.targets[t] >= 0 && target >= 0 && target < op.valid;
    float* stats = op.stats + t * kCrossEntropyStats;
    stats[0] = maximum;
    stats[1] = sum(sums);
    stats[2] = is_local ? element(row + target) : 0.0F;
  }
}

template <class T>
void backward(const CrossEntropyBackward& op, Range rows) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
    T* out = static_cast<T*>(op.dlogits) + t * op.logits_stride;
    const bool ignored = op.targets[t] < 0;
    const float scale = ignored ? 0.0F : *op.scale;
    const int64_t target = op.targets[t] - op.vocab_begin;
    const bool is_local = !ignored && target >= 0 && target < op.valid;
    const float lse = op.lse[t];
    // The target's gradient comes from its logit, which the loop below may overwrite.
    const Vec at_target =
        is_local ? (exp(splat(element(row + target)) - lse) - 1.0F) * scale : Vec{};
    if (ignored) {
      for_each_vec(0, op.valid, [&](int64_t i, auto part) { store(out + i, Vec{}, part); });
    } else {
      for_each_vec(0, op.valid, [&](int64_t i, auto part) {
        store(out + i, exp(load(row + i, part) - lse) * scale, part);
      });
    }
    for_each_vec(op.valid, op.columns, [&](int64_t i, auto part) { store(out + i, Vec{}, part); });
    if (is_local) store(out + target, at_target, Tail{1});
  }
}

}  // namespace

void cross_entropy_local(const CrossEntropyLocal& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { local<T>(op, rows); });
}
void cross_entropy_backward(const CrossEntropyBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) { backward<T>(op, rows); });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
