#include "device/largest.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/index.hpp"
#include "device/float_bits.hpp"
#include "device/loops.hpp"

namespace meshplan::kernels::cpu {

float largest_magnitude(const Context& context, const void* data, std::int64_t rows,
                        std::int64_t columns, std::int64_t stride, DType dtype) {
  return with_float_bits(dtype, [&](auto type) {
    const auto* numbers = static_cast<const decltype(type)*>(data);
    std::vector<float> of_thread(at(context.num_threads));
    parallel_for(context.num_threads, rows, row_grain(columns), [&](Range range, int thread) {
      float max = 0.0F;
      for (std::int64_t row = range.begin; row < range.end; ++row)
        for (std::int64_t i = 0; i < columns; ++i)
          max = std::max(max, std::abs(to_float(numbers[row * stride + i])));
      of_thread[at(thread)] = max;
    });
    return *std::ranges::max_element(of_thread);
  });
}

void keep_largest(const Context& context, float* largest, const void* data, std::int64_t rows,
                  std::int64_t columns, std::int64_t stride, DType dtype) {
  if (largest != nullptr) *largest = largest_magnitude(context, data, rows, columns, stride, dtype);
}

}  // namespace meshplan::kernels::cpu
