#include "device/flat.cuh"
#include "device/largest.cuh"
#include "elementwise/activation_functions.cuh"
#include "elementwise/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <ActivationKind kind, class T, int width>
__global__ void forward_kernel(const ActivationForward op) {
  float largest = 0.0F;
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto x = load_pack<kN>(static_cast<const T*>(op.x) + i);
    for (int j = 0; j < kN; ++j) x[j] = evaluate<kind>(x[j]).value;
    store_pack(static_cast<T*>(op.y) + i, x);
    largest = larger(largest, x);
  });
  keep_largest<T, kFlatThreads>(op.largest, largest);
}

template <ActivationKind kind, class T, int width>
__global__ void backward_kernel(const ActivationBackward op) {
  float largest = 0.0F;
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto x = load_pack<kN>(static_cast<const T*>(op.x) + i);
    const auto dy = load_pack<kN>(static_cast<const T*>(op.dy) + i);
    for (int j = 0; j < kN; ++j) x[j] = dy[j] * evaluate<kind>(x[j]).slope;
    store_pack(static_cast<T*>(op.dx) + i, x);
    largest = larger(largest, x);
  });
  keep_largest<T, kFlatThreads>(op.largest, largest);
}

}  // namespace

void enqueue(const Context& context, const ActivationForward& op) {
  clear_largest(context, op.largest);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.x, 0, sizeof(T)}, {op.y, 0, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      with_kind(op.kind, [&](auto kind) {
        constexpr int kN = decltype(width)::value;
        launch(context, flat_shape(context, op.count, kN),
               forward_kernel<decltype(kind)::value, T, kN>, op);
      });
    });
  });
}

void enqueue(const Context& context, const ActivationBackward& op) {
  clear_largest(context, op.largest);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {{op.dy, 0, sizeof(T)}, {op.x, 0, sizeof(T)}, {op.dx, 0, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      with_kind(op.kind, [&](auto kind) {
        constexpr int kN = decltype(width)::value;
        launch(context, flat_shape(context, op.count, kN),
               backward_kernel<decltype(kind)::value, T, kN>, op);
      });
    });
  });
}

}  // namespace meshplan::kernels::cuda
