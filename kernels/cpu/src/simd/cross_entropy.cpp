#include "simd/kernels.hpp"
#include "simd/soft_cap.hpp"

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

template <class T, class Cap>
void local(const CrossEntropyLocal& op, Range rows, Cap cap) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
    Vec maxima = splat(-kInfinity);
    for_each_vec(0, op.valid, [&](int64_t i, auto part) {
      maxima = max(select(load(row + i, part), splat(-kInfinity), part), maxima);
    });
    const float raw_maximum = max_lane(maxima);
    // The cap grows with its argument, and no valid column must stay so.
    const float maximum =
        raw_maximum == -kInfinity ? raw_maximum : cap.value(splat(raw_maximum))[0];
    Vec sums{};
    for_each_vec(0, op.valid, [&](int64_t i, auto part) {
      sums += select(exp(cap.value(load(row + i, part)) - maximum), Vec{}, part);
    });
    const int64_t target = op.targets[t] - op.vocab_begin;
    const bool is_local = op.targets[t] >= 0 && target >= 0 && target < op.valid;
    float* stats = op.stats + t * kCrossEntropyStats;
    stats[0] = maximum;
    stats[1] = sum(sums);
    stats[2] = is_local ? cap.value(splat(element(row + target)))[0] : 0.0F;
  }
}

/// @param at_target  1 for the target's logit, else 0
template <class Cap>
MESHPLAN_INLINE Vec logit_gradient(Cap cap, Vec logit, float lse, float at_target, float scale) {
  const Vec capped = cap.value(logit);
  return (exp(capped - lse) - at_target) * scale * cap.slope(capped);
}

template <class T, class Cap>
void backward(const CrossEntropyBackward& op, Range rows, Cap cap) {
  for (int64_t t = rows.begin; t < rows.end; ++t) {
    const T* row = static_cast<const T*>(op.logits) + t * op.logits_stride;
    T* out = static_cast<T*>(op.dlogits) + t * op.logits_stride;
    const bool ignored = op.targets[t] < 0;
    const float scale = ignored ? 0.0F : *op.scale * op.weight;
    const int64_t target = op.targets[t] - op.vocab_begin;
    const bool is_local = !ignored && target >= 0 && target < op.valid;
    const float lse = op.lse[t];
    // The target's gradient comes from its logit, which the loop below may overwrite.
    const Vec at_target =
        is_local ? logit_gradient(cap, splat(element(row + target)), lse, 1.0F, scale) : Vec{};
    if (ignored) {
      for_each_vec(0, op.valid, [&](int64_t i, auto part) { store(out + i, Vec{}, part); });
    } else {
      for_each_vec(0, op.valid, [&](int64_t i, auto part) {
        store(out + i, logit_gradient(cap, load(row + i, part), lse, 0.0F, scale), part);
      });
    }
    for_each_vec(op.valid, op.columns, [&](int64_t i, auto part) { store(out + i, Vec{}, part); });
    if (is_local) store(out + target, at_target, Tail{1});
  }
}

}  // namespace

void cross_entropy_local(const CrossEntropyLocal& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_cap(op.softcap, [&](auto cap) { local<T>(op, rows, cap); });
  });
}
void cross_entropy_backward(const CrossEntropyBackward& op, Range rows) {
  with_type(op.dtype, [&]<class T>(T* /*type*/) {
    with_cap(op.softcap, [&](auto cap) { backward<T>(op, rows, cap); });
  });
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
