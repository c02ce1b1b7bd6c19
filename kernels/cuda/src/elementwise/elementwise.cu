// add, accumulate, scale, fill and convert
#include "device/flat.cuh"
#include "elementwise/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

template <class T, int width>
__global__ void add_kernel(const Add op) {
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto sum = load_pack<kN>(static_cast<const T*>(op.a) + i);
    const auto b = load_pack<kN>(static_cast<const T*>(op.b) + i);
    for (int j = 0; j < kN; ++j) sum[j] += b[j];
    store_pack(static_cast<T*>(op.sum) + i, sum);
  });
}

template <class S, class V, int width>
__global__ void accumulate_kernel(const Accumulate op) {
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto sum = load_pack<kN>(static_cast<const S*>(op.sum) + i);
    const auto value = load_pack<kN>(static_cast<const V*>(op.value) + i);
    for (int j = 0; j < kN; ++j) sum[j] += value[j];
    store_pack(static_cast<S*>(op.sum) + i, sum);
  });
}

template <class T, int width>
__global__ void scale_kernel(const Scale op) {
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    auto x = load_pack<kN>(static_cast<const T*>(op.x) + i);
    for (int j = 0; j < kN; ++j) x[j] *= op.factor;
    store_pack(static_cast<T*>(op.y) + i, x);
  });
}

template <class T, int width>
__global__ void fill_kernel(const Fill op) {
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    Pack<kN> value;
    for (int j = 0; j < kN; ++j) value[j] = op.value;
    store_pack(static_cast<T*>(op.x) + i, value);
  });
}

template <class From, class To, int width>
__global__ void convert_kernel(const Convert op) {
  for_each_pack<width>(op.count, [&](std::int64_t i, auto n) {
    constexpr int kN = decltype(n)::value;
    store_pack(static_cast<To*>(op.to) + i, load_pack<kN>(static_cast<const From*>(op.from) + i));
  });
}

}  // namespace

void enqueue(const Context& context, const Add& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const std::int64_t bytes = sizeof(T);
    const bool aligned =
        allows_packs(kWide, {{op.a, 0, bytes}, {op.b, 0, bytes}, {op.sum, 0, bytes}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, flat_shape(context, op.count, kN), add_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const Accumulate& op) {
  with_float_type(op.sum_dtype, [&](auto sum_type) {
    with_float_type(op.value_dtype, [&](auto value_type) {
      using S = typename decltype(sum_type)::type;
      using V = typename decltype(value_type)::type;
      constexpr int kWide = 8;
      const bool aligned = allows_packs(kWide, {{op.sum, 0, sizeof(S)}, {op.value, 0, sizeof(V)}});
      with_pack_width<kWide>(aligned, [&](auto width) {
        constexpr int kN = decltype(width)::value;
        launch(context, flat_shape(context, op.count, kN), accumulate_kernel<S, V, kN>, op);
      });
    });
  });
}

void enqueue(const Context& context, const Scale& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    const bool aligned = allows_packs(kWide, {{op.x, 0, sizeof(T)}, {op.y, 0, sizeof(T)}});
    with_pack_width<kWide>(aligned, [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, flat_shape(context, op.count, kN), scale_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const Fill& op) {
  with_float_type(op.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = kPackWidth<T>;
    with_pack_width<kWide>(allows_packs(kWide, {{op.x, 0, sizeof(T)}}), [&](auto width) {
      constexpr int kN = decltype(width)::value;
      launch(context, flat_shape(context, op.count, kN), fill_kernel<T, kN>, op);
    });
  });
}

void enqueue(const Context& context, const Convert& op) {
  with_float_type(op.from_dtype, [&](auto from_type) {
    with_float_type(op.to_dtype, [&](auto to_type) {
      using From = typename decltype(from_type)::type;
      using To = typename decltype(to_type)::type;
      constexpr int kWide = 8;
      const bool aligned =
          allows_packs(kWide, {{op.from, 0, sizeof(From)}, {op.to, 0, sizeof(To)}});
      with_pack_width<kWide>(aligned, [&](auto width) {
        constexpr int kN = decltype(width)::value;
        launch(context, flat_shape(context, op.count, kN), convert_kernel<From, To, kN>, op);
      });
    });
  });
}

void enqueue(const Context& context, const CopyRows& op) {
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  check(cudaMemcpy2DAsync(op.y, size(op.y_stride_bytes), op.x, size(op.x_stride_bytes),
                          size(op.row_bytes), size(op.rows), cudaMemcpyDeviceToDevice,
                          context.stream),
        "cudaMemcpy2DAsync");
}

}  // namespace meshplan::kernels::cuda
