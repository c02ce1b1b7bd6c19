#include "device/largest.cuh"
#include "device/rows.cuh"
#include "elementwise/activation_functions.cuh"
#include "elementwise/operators.hpp"
#include "kernels/elementwise/gated_activation.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <ActivationKind kind, class T, int width>
__global__ void forward_kernel(const GatedActivationForward op) {
  const std::int64_t t = blockIdx.x;
  const T* gate = static_cast<const T*>(op.x) + t * op.x_stride;
  T* y = static_cast<T*>(op.y) + t * op.y_stride;
  float largest = 0.0F;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(gate + i);
    const auto up = load_pack<kN>(gate + op.size + i);
    for (int j = 0; j < kN; ++j)
      value[j] = evaluate<kind>(value[j]).value * gated_factor<kind>(up[j]).value;
    store_pack(y + i, value);
    largest = larger(largest, value);
  });
  keep_largest_of_block<T>(op.largest, largest);
}

template <ActivationKind kind, class T, int width>
__global__ void backward_kernel(const GatedActivationBackward op) {
  const std::int64_t t = blockIdx.x;
  const T* gate = static_cast<const T*>(op.x) + t * op.x_stride;
  const T* dy = static_cast<const T*>(op.dy) + t * op.dy_stride;
  T* dgate = static_cast<T*>(op.dx) + t * op.dx_stride;
  float largest = 0.0F;
  for_each_tile_pack<width>(op.size, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto grad_of_gate = load_pack<kN>(gate + i);
    auto grad_of_up = load_pack<kN>(gate + op.size + i);
    const auto grad = load_pack<kN>(dy + i);
    for (int j = 0; j < kN; ++j) {
      const ValueAndSlope act = evaluate<kind>(grad_of_gate[j]);
      const ValueAndSlope factor = gated_factor<kind>(grad_of_up[j]);
      grad_of_gate[j] = grad[j] * factor.value * act.slope;
      grad_of_up[j] = grad[j] * act.value * factor.slope;
    }
    store_pack(dgate + i, grad_of_gate);
    store_pack(dgate + op.size + i, grad_of_up);
    largest = larger(larger(largest, grad_of_gate), grad_of_up);
  });
  keep_largest_of_block<T>(op.largest, largest);
}

/// The halves of a (T, 2 F) operand start at different addresses.
template <class T>
Operand half(const void* x, std::int64_t stride, std::int64_t offset) {
  return {x == nullptr ? nullptr : static_cast<const T*>(x) + offset, stride, sizeof(T)};
}

}  // namespace

void enqueue(const Context& context, const GatedActivationForward& op) {
  clear_largest(context, op.largest);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {half<T>(op.x, op.x_stride, 0), half<T>(op.x, op.x_stride, op.size),
                             half<T>(op.y, op.y_stride, 0)});
    with_pack_width<kWide>(aligned, [&](auto width) {
      with_kind(op.kind, [&](auto kind) {
        constexpr int kN = decltype(width)::value;
        launch(context, tile_shape(op.tokens, op.size, kN),
               forward_kernel<decltype(kind)::value, T, kN>, op);
      });
    });
  });
}

void enqueue(const Context& context, const GatedActivationBackward& op) {
  clear_largest(context, op.largest);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned =
        allows_packs(kWide, {half<T>(op.x, op.x_stride, 0), half<T>(op.x, op.x_stride, op.size),
                             half<T>(op.dx, op.dx_stride, 0), half<T>(op.dx, op.dx_stride, op.size),
                             half<T>(op.dy, op.dy_stride, 0)});
    with_pack_width<kWide>(aligned, [&](auto width) {
      with_kind(op.kind, [&](auto kind) {
        constexpr int kN = decltype(width)::value;
        launch(context, tile_shape(op.tokens, op.size, kN),
               backward_kernel<decltype(kind)::value, T, kN>, op);
      });
    });
  });
}

}  // namespace meshplan::kernels::cuda
