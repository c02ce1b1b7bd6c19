#include "device/reduce.cuh"
#include "device/rows.cuh"
#include "elementwise/operators.hpp"
#include "kernels/elementwise/sigmoid_gate.hpp"

namespace meshplan::kernels::cuda {

namespace {

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

template <class T>
__global__ void forward_kernel(const SigmoidGateForward op) {
  const std::int64_t t = blockIdx.x;
  const T* gate = static_cast<const T*>(op.gate) + t * op.gates;
  for_each_tile_pack<1>(op.size, [&](std::int64_t i, auto) {
    const std::int64_t at = t * op.size + i;
    const float s = sigmoid(to_float(gate[op.gates == 1 ? 0 : i]));
    static_cast<T*>(op.y)[at] = from_float<T>(to_float(static_cast<const T*>(op.x)[at]) * s);
  });
}

/// A block for each token, which sums the gradient of a row's one gate.
template <class T>
__global__ void backward_kernel(const SigmoidGateBackward op) {
  const std::int64_t t = blockIdx.x;
  const T* gate = static_cast<const T*>(op.gate) + t * op.gates;
  T* dgate = static_cast<T*>(op.dgate) + t * op.gates;
  float products = 0.0F;
  for (std::int64_t i = threadIdx.x; i < op.size; i += kRowThreads) {
    const std::int64_t at = t * op.size + i;
    const float s = sigmoid(to_float(gate[op.gates == 1 ? 0 : i]));
    const float grad = to_float(static_cast<const T*>(op.dy)[at]);
    const float slope = grad * to_float(static_cast<const T*>(op.x)[at]) * s * (1.0F - s);
    static_cast<T*>(op.dx)[at] = from_float<T>(grad * s);
    if (op.gates == 1)
      products += slope;
    else
      dgate[i] = from_float<T>(slope);
  }
  if (op.gates != 1) return;
  products = group_reduce<kRowThreads>(products, Sum());
  if (threadIdx.x == 0) dgate[0] = from_float<T>(products);
}

void require_gates(std::int64_t gates, std::int64_t size) {
  require_invariant(gates == 1 || gates == size, "a gate is for a row or for each element");
}

}  // namespace

void enqueue(const Context& context, const SigmoidGateForward& op) {
  require_gates(op.gates, op.size);
  with_float_type(op.dtype, [&](auto type) {
    launch(context, tile_shape(op.tokens, op.size, 1),
           forward_kernel<typename decltype(type)::type>, op);
  });
}

void enqueue(const Context& context, const SigmoidGateBackward& op) {
  require_gates(op.gates, op.size);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(op.tokens)),
                          .block = dim3(kRowThreads)};
  with_float_type(op.dtype, [&](auto type) {
    launch(context, shape, backward_kernel<typename decltype(type)::type>, op);
  });
}

}  // namespace meshplan::kernels::cuda
