// Rows in FP8 for the exchange of experts, in software: a CPU has no units for it.
#include "core/float8_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "device/threads.hpp"
#include "experts/operators.hpp"
#include "kernels/products/float8.hpp"

namespace meshplan::kernels::cpu {
namespace {

using Block = std::array<float, kFloat8Block>;

std::int64_t numbers_in(std::int64_t block, std::int64_t size) {
  return std::min(kFloat8Block, size - block * kFloat8Block);
}

/// @returns the scale
float pack(const Block& numbers, std::int64_t count, std::uint8_t* codes) {
  float largest = 0.0F;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::fmax(largest, std::fabs(numbers[static_cast<std::size_t>(i)]));
  const float wanted = largest / layout_of(Float8Format::E4M3).largest;
  const float scale = wanted >= std::numeric_limits<float>::min() ? wanted : 1.0F;
  const float inverse = 1.0F / scale;
  for (std::int64_t i = 0; i < count; ++i)
    codes[i] = to_float8(numbers[static_cast<std::size_t>(i)] * inverse, Float8Format::E4M3);
  return scale;
}

}  // namespace

void run(const Context& context, const PackFloat8Rows& op) {
  const std::int64_t blocks = float8_blocks(op.size);
  const auto* x = static_cast<const std::byte*>(op.x);
  parallel_for(context.num_threads, op.rows, kRowGrain, [&](Range rows, int /*thread*/) {
    Block numbers{};
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      float* scales = op.packed + row * float8_row_words(op.size);
      auto* codes = reinterpret_cast<std::uint8_t*>(scales + blocks);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * kFloat8Block;
        const std::int64_t count = numbers_in(block, op.size);
        context.table.convert(Convert{.count = count,
                                      .from_dtype = op.dtype,
                                      .from = x + (row * op.size + first) * size_of(op.dtype),
                                      .to_dtype = DType::F32,
                                      .to = numbers.data()},
                              Range{0, count});
        scales[block] = pack(numbers, count, codes + first);
      }
    }
  });
}

void run(const Context& context, const UnpackFloat8Rows& op) {
  const std::int64_t blocks = float8_blocks(op.size);
  auto* x = static_cast<std::byte*>(op.x);
  parallel_for(context.num_threads, op.rows, kRowGrain, [&](Range rows, int /*thread*/) {
    Block numbers{};
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const float* scales = op.packed + row * float8_row_words(op.size);
      const auto* codes = reinterpret_cast<const std::uint8_t*>(scales + blocks);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * kFloat8Block;
        const std::int64_t count = numbers_in(block, op.size);
        for (std::int64_t i = 0; i < count; ++i)
          numbers[static_cast<std::size_t>(i)] =
              scales[block] * from_float8(codes[first + i], Float8Format::E4M3);
        context.table.convert(Convert{.count = count,
                                      .from_dtype = DType::F32,
                                      .from = numbers.data(),
                                      .to_dtype = op.dtype,
                                      .to = x + (row * op.size + first) * size_of(op.dtype)},
                              Range{0, count});
      }
    }
  });
}

}  // namespace meshplan::kernels::cpu
