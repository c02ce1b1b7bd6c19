// FP8 in software, for tests and for runs that compare numbers: a CPU has no units for it. Rounding
// and scales are those of the GPU to the bit; sums differ in their order.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <oneapi/dnnl/dnnl.hpp>

#include "core/error.hpp"
#include "device/largest.hpp"
#include "device/threads.hpp"
#include "products/operators.hpp"

namespace meshplan::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements

float load(const void* data, std::int64_t i, DType dtype) {
  if (dtype == DType::F32) return static_cast<const float*>(data)[i];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[i];
  return std::bit_cast<float>(bits << 16);
}

/// bf16, round to nearest even; NaN stays NaN.
std::uint16_t to_bf16(float x) {
  const auto word = std::bit_cast<std::uint32_t>(x);
  if ((word & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return static_cast<std::uint16_t>((word + 0x7fffU + (word >> 16 & 1U)) >> 16);
}

void require_dtype(DType dtype) {
  require_invariant(dtype == DType::F32 || dtype == DType::BF16, "FP8 goes with fp32 and bf16");
}

/// What a scale of `largest` lets the largest |x| become.
float scale_of(float max, float largest) {
  const float scale = max / largest;
  return scale >= std::numeric_limits<float>::min() ? scale : 1.0F;
}

void decode(const std::uint8_t* from, std::int64_t count, Float8Format format, int num_threads,
            float* to) {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code)
    table.at(code) = from_float8(static_cast<std::uint8_t>(code), format);
  parallel_for(num_threads, count, kGrain, [&](Range range, int /*thread*/) {
    for (std::int64_t i = range.begin; i < range.end; ++i) to[i] = table[from[i]];
  });
}

bool through_scratch(const ScaledProduct& op) {
  return op.out_dtype != DType::F32 || op.bias != nullptr;
}

}  // namespace

void run(const Context& context, const QuantizeFloat8& op) {
  require_dtype(op.dtype);
  const float max = op.largest != nullptr ? *op.largest
                                          : largest_magnitude(context, op.x, op.rows, op.columns,
                                                              op.columns, op.dtype);
  const float scale = scale_of(max, layout_of(op.format).largest);
  const float inverse = 1.0F / scale;
  *op.scale = scale;
  const std::int64_t grain = kGrain / std::max<std::int64_t>(op.columns, 1) + 1;
  parallel_for(context.num_threads, op.rows, grain, [&](Range rows, int /*thread*/) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t column = 0; column < op.columns; ++column) {
        const std::int64_t i = row * op.columns + column;
        const std::uint8_t code = to_float8(load(op.x, i, op.dtype) * inverse, op.format);
        if (op.quantized != nullptr) op.quantized[i] = code;
        if (op.transposed != nullptr) op.transposed[column * op.rows + row] = code;
      }
  });
}

std::int64_t scratch_bytes(const Context& /*context*/, const ScaledProduct& op) {
  const std::int64_t sums = through_scratch(op) ? op.m * op.n : 0;
  return (op.m * op.k + op.n * op.k + sums) * size_of(DType::F32);
}

void run(const Context& context, const ScaledProduct& op) {
  require_dtype(op.out_dtype);
  require_invariant(op.m > 0 && op.n > 0 && op.k > 0, "a product has rows and columns");
  require_invariant(!op.accumulate || !through_scratch(op),
                    "sums are added up in fp32, without a bias");
  require_scratch(context, scratch_bytes(context, op));
  auto* a = reinterpret_cast<float*>(context.scratch.data());
  float* b = a + op.m * op.k;
  float* sums = through_scratch(op) ? b + op.n * op.k : static_cast<float*>(op.out);
  decode(op.a, op.m * op.k, op.a_format, context.num_threads, a);
  decode(op.b, op.n * op.k, op.b_format, context.num_threads, b);
  const int threads_before = omp_get_max_threads();
  omp_set_num_threads(context.num_threads);  // oneDNN sizes its work by it
  const auto status = dnnl::sgemm('N', 'T', op.m, op.n, op.k, *op.a_scale * *op.b_scale, a, op.k, b,
                                  op.k, op.accumulate ? 1.0F : 0.0F, sums, op.n);
  omp_set_num_threads(threads_before);
  require_invariant(status == dnnl::status::success, "sgemm accepts the sizes and strides");
  if (!through_scratch(op)) return;
  const std::int64_t grain = kGrain / op.n + 1;
  parallel_for(context.num_threads, op.m, grain, [&](Range rows, int /*thread*/) {
    for (std::int64_t i = rows.begin * op.n; i < rows.end * op.n; ++i) {
      const float bias = op.bias != nullptr ? load(op.bias, i % op.n, op.out_dtype) : 0.0F;
      if (op.out_dtype == DType::F32)
        static_cast<float*>(op.out)[i] = sums[i] + bias;
      else
        static_cast<std::uint16_t*>(op.out)[i] = to_bf16(sums[i] + bias);
    }
  });
}

}  // namespace meshplan::kernels::cpu
