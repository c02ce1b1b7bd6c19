#include "device/column_sums.cuh"
#include "device/reduce.cuh"
#include "elementwise/activation_functions.cuh"
#include "mixers/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <GateOrder order>
using Order = std::integral_constant<GateOrder, order>;

/// Calls body(Order<order>{}) for the run-time order, on the host.
template <class Body>
void with_order(GateOrder order, const Body& body) {
  if (order == GateOrder::NormThenGate)
    body(Order<GateOrder::NormThenGate>{});
  else
    body(Order<GateOrder::GateThenNorm>{});
}

__device__ inline ValueAndSlope gate_of(float z) {
  return evaluate<ActivationKind::Silu>(z);
}
/// What the norm gets of x.
template <GateOrder order>
__device__ float norm_input(float x, float gate) {
  return order == GateOrder::NormThenGate ? x : x * gate;
}
/// What its output, and the gradient of it, are multiplied by beside the weight.
template <GateOrder order>
__device__ float output_gate(float gate) {
  return order == GateOrder::NormThenGate ? gate : 1.0F;
}

/// A group of a token per group of threads.
template <class T, GateOrder order, int kThreads, int width>
__global__ void forward_kernel(const GatedRmsNormForward op) {
  using Group = RowGroup<kThreads>;
  const std::int64_t size = op.shape.size;
  const std::int64_t item = std::int64_t{blockIdx.x} * Group::kRowsPerBlock + Group::group();
  const std::int64_t t = item / op.shape.groups;
  const std::int64_t g = item - t * op.shape.groups;
  if (t >= op.shape.tokens) return;
  const T* x = static_cast<const T*>(op.x) + t * op.x_stride + g * size;
  const T* z = static_cast<const T*>(op.z) + t * op.z_stride + g * size;
  const T* weight = static_cast<const T*>(op.weight) + (op.shape.shared_weight ? 0 : g * size);
  T* y = static_cast<T*>(op.y) + t * op.y_stride + g * size;
  float squares = 0.0F;
  for_each_column_pack<width>(size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto value = load_pack<kN>(x + i);
    const auto gate = load_pack<kN>(z + i);
    for (int j = 0; j < kN; ++j) {
      const float h = norm_input<order>(value[j], gate_of(gate[j]).value);
      squares += h * h;
    }
  });
  const float mean_square = group_reduce<kThreads>(squares, Sum()) / static_cast<float>(size);
  const float inv_rms = 1.0F / sqrtf(mean_square + op.epsilon);
  if (Group::thread() == 0) op.inv_rms[item] = inv_rms;
  for_each_column_pack<width>(size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto value = load_pack<kN>(x + i);
    const auto z_pack = load_pack<kN>(z + i);
    const auto w = load_pack<kN>(weight + i);
    for (int j = 0; j < kN; ++j) {
      const float gate = gate_of(z_pack[j]).value;
      value[j] = norm_input<order>(value[j], gate) * inv_rms * w[j] * output_gate<order>(gate);
    }
    store_pack(y + i, value);
  });
}

/// Operands of one group of a token.
template <class T>
struct GradientGroup {
  __device__ GradientGroup(const GatedRmsNormBackward& op, std::int64_t t, std::int64_t g)
      : dy(static_cast<const T*>(op.dy) + t * op.dy_stride + g * op.shape.size),
        x(static_cast<const T*>(op.x) + t * op.x_stride + g * op.shape.size),
        z(static_cast<const T*>(op.z) + t * op.z_stride + g * op.shape.size),
        weight(static_cast<const T*>(op.weight) + (op.shape.shared_weight ? 0 : g * op.shape.size)),
        dx(row_or_null<T>(op.dx, t, op.dx_stride)),
        dz(row_or_null<T>(op.dz, t, op.dz_stride)),
        inv_rms(op.inv_rms[t * op.shape.groups + g]) {
    if (dx == nullptr) return;
    dx += g * op.shape.size;
    dz += g * op.shape.size;
  }
  const T* dy;
  const T* x;
  const T* z;
  const T* weight;
  T* dx;
  T* dz;
  float inv_rms;
};

/// Adds dweight to `column_sums` unless null; returns the sum of dn h.
template <class T, GateOrder order, int kThreads, int width>
__device__ float add_group(const GradientGroup<T>& row, std::int64_t size, float* column_sums) {
  using Group = RowGroup<kThreads>;
  float products = 0.0F;
  for_each_column_pack<width>(size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    const auto grad = load_pack<kN>(row.dy + i);
    const auto value = load_pack<kN>(row.x + i);
    const auto z = load_pack<kN>(row.z + i);
    const auto w = load_pack<kN>(row.weight + i);
    for (int j = 0; j < kN; ++j) {
      const float gate = gate_of(z[j]).value;
      const float product = grad[j] * output_gate<order>(gate) * norm_input<order>(value[j], gate);
      if (column_sums != nullptr) column_sums[i + j] += product * row.inv_rms;
      products += product * w[j];
    }
  });
  return group_reduce<kThreads>(products, Sum());
}

/// @param factor  mean(dn n) inv_rms^2: what the norm gets has the gradient inv_rms dn - h factor
template <class T, GateOrder order, int kThreads, int width>
__device__ void store_group(const GradientGroup<T>& row, std::int64_t size, float factor) {
  using Group = RowGroup<kThreads>;
  for_each_column_pack<width>(size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto grad = load_pack<kN>(row.dy + i);
    const auto value = load_pack<kN>(row.x + i);
    auto z = load_pack<kN>(row.z + i);
    const auto w = load_pack<kN>(row.weight + i);
    for (int j = 0; j < kN; ++j) {
      const ValueAndSlope gate = gate_of(z[j]);
      const float of_output = grad[j] * w[j];
      const float of_input = of_output * output_gate<order>(gate.value) * row.inv_rms -
                             norm_input<order>(value[j], gate.value) * factor;
      if constexpr (order == GateOrder::NormThenGate) {
        grad[j] = of_input;
        z[j] = of_output * value[j] * row.inv_rms * gate.slope;
      } else {
        grad[j] = of_input * gate.value;
        z[j] = of_input * value[j] * gate.slope;
      }
    }
    store_pack(row.dx + i, grad);
    store_pack(row.dz + i, z);
  });
}

/// A range of rows of one section: groups that share a weight. Shared: a weight's sums for every
/// group of threads.
template <class T, GateOrder order, int kThreads, int width>
__global__ void backward_kernel(const GatedRmsNormBackward op, std::int64_t rows,
                                std::int64_t rows_per_block, float* partials) {
  using Group = RowGroup<kThreads>;
  const std::int64_t size = op.shape.size;
  const std::int64_t groups = op.shape.groups;
  const bool shared = op.shape.shared_weight;
  float* all_sums = dynamic_shared<float>();
  float* column_sums = partials != nullptr ? all_sums + Group::group() * size : nullptr;
  if (column_sums != nullptr)
    for_each_column_pack<width>(size, Group::thread(), kThreads, [&](std::int64_t i, auto n) {
      for (int j = 0; j < decltype(n)::value; ++j) column_sums[i + j] = 0.0F;
    });
  const std::int64_t first = std::int64_t{blockIdx.x} * rows_per_block;
  const std::int64_t end = first + rows_per_block < rows ? first + rows_per_block : rows;
  for (std::int64_t row = first + Group::group(); row < end; row += Group::kRowsPerBlock) {
    const std::int64_t t = shared ? row / groups : row;
    const GradientGroup<T> group(op, t, shared ? row - t * groups : blockIdx.y);
    const float products = add_group<T, order, kThreads, width>(group, size, column_sums);
    const float factor =
        products / static_cast<float>(size) * group.inv_rms * group.inv_rms * group.inv_rms;
    if (group.dx != nullptr) store_group<T, order, kThreads, width>(group, size, factor);
  }
  if (partials == nullptr) return;
  __syncthreads();
  float* sums = partials + (std::int64_t{blockIdx.x} * gridDim.y + blockIdx.y) * size;
  for (std::int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    float sum = 0.0F;
    for (int group = 0; group < Group::kRowsPerBlock; ++group) sum += all_sums[group * size + i];
    sums[i] = sum;
  }
}

/// Rows and sections of a backward pass.
struct Sections {
  std::int64_t count = 1;
  std::int64_t rows = 0;
  RowRanges ranges;
};

Sections sections_of(const GatedRmsNormShape& shape) {
  const std::int64_t rows = shape.shared_weight ? shape.tokens * shape.groups : shape.tokens;
  return {shape.shared_weight ? 1 : shape.groups, rows, norm_ranges(rows, shape.size)};
}

template <class T, class Op>
bool is_aligned(const Op& op, std::initializer_list<Operand> others) {
  const std::int64_t bytes = sizeof(T);
  constexpr int kWide = kPackWidth<T>;
  return op.shape.size % kWide == 0 && allows_packs(kWide, others) &&
         allows_packs(
             kWide,
             {{op.x, op.x_stride, bytes}, {op.z, op.z_stride, bytes}, {op.weight, 0, bytes}});
}

/// Calls body(order, threads, width) for the kernel of a shape.
template <class T, class Body>
void with_kernel(const GatedRmsNormShape& shape, bool aligned, const Body& body) {
  with_order(shape.order, [&](auto order) {
    with_row_group(shape.size, [&](auto threads) {
      with_pack_width<kPackWidth<T>>(aligned, [&](auto width) { body(order, threads, width); });
    });
  });
}

}  // namespace

void enqueue(const Context& context, const GatedRmsNormForward& op) {
  const std::int64_t items = op.shape.tokens * op.shape.groups;
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const bool aligned = is_aligned<T>(op, {{op.y, op.y_stride, sizeof(T)}});
    with_kernel<T>(op.shape, aligned, [&](auto order, auto threads, auto width) {
      constexpr int kThreads = decltype(threads)::value;
      const std::int64_t blocks = ceil_div(items, RowGroup<kThreads>::kRowsPerBlock);
      launch(context, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kRowThreads)},
             forward_kernel<T, decltype(order)::value, kThreads, decltype(width)::value>, op);
    });
  });
}

std::int64_t scratch_bytes(const GatedRmsNormBackward& op) {
  if (op.dweight == nullptr) return 0;
  return sections_of(op.shape).ranges.num_blocks * op.shape.weights() * size_of(DType::F32);
}

void enqueue(const Context& context, const GatedRmsNormBackward& op) {
  require_invariant((op.dx == nullptr) == (op.dz == nullptr),
                    "x and z of a gated norm get their gradients together");
  require_scratch(context, scratch_bytes(op));
  auto* partials =
      op.dweight != nullptr ? reinterpret_cast<float*>(context.scratch.data()) : nullptr;
  const Sections sections = sections_of(op.shape);
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const std::int64_t bytes = sizeof(T);
    const bool aligned = is_aligned<T>(
        op,
        {{op.dy, op.dy_stride, bytes}, {op.dx, op.dx_stride, bytes}, {op.dz, op.dz_stride, bytes}});
    with_kernel<T>(op.shape, aligned, [&](auto order, auto threads, auto width) {
      constexpr int kThreads = decltype(threads)::value;
      const std::int64_t sums = RowGroup<kThreads>::kRowsPerBlock * op.shape.size;
      launch(context,
             {.grid = dim3(static_cast<unsigned>(sections.ranges.num_blocks),
                           static_cast<unsigned>(sections.count)),
              .block = dim3(kRowThreads),
              .shared_bytes = partials != nullptr ? shared_for_sums(context, sums) : 0},
             backward_kernel<T, decltype(order)::value, kThreads, decltype(width)::value>, op,
             sections.rows, sections.ranges.rows_per_block, partials);
    });
  });
  if (partials == nullptr) return;
  const std::int64_t weights = op.shape.weights();
  enqueue_sum_partials(context, partials, sections.ranges.num_blocks, weights, weights, op.dweight,
                       op.accumulate);
}

}  // namespace meshplan::kernels::cuda
