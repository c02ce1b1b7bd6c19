// Plain loops over blocks: quantizing streams 13 bytes an element, which memory bounds, and
// compilers vectorize it; selecting is bound by its partial sort.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "core/index.hpp"
#include "device/threads.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cpu {
namespace {

constexpr std::int64_t kBlockGrain = 16;  // blocks that a thread takes at least
constexpr float kMaxInt8 = 127.0F;
constexpr int kMaxSelectBlock = 4096;

std::int64_t blocks_of(std::int64_t count, int block) {
  require_invariant(block > 0, "a block of compression has elements");
  return (count + block - 1) / block;
}

/// Gradients are so many times what errors are kept as.
float factor_of(const ErrorUnit& unit) {
  return unit.applied != nullptr ? *unit.applied / *unit.wanted : 1.0F;
}

float with_error(const float* gradient, const float* error, float factor, std::int64_t i) {
  return error != nullptr ? gradient[i] + factor * error[i] : gradient[i];
}

void quantize_block(const QuantizeInt8& op, std::int64_t block) {
  const std::int64_t first = block * op.block;
  const std::int64_t end = std::min(op.count, first + op.block);
  const float factor = factor_of(op.unit);
  float max = 0.0F;
  bool finite = true;
  for (std::int64_t i = first; i < end; ++i) {
    const float v = with_error(op.gradient, op.error, factor, i);
    finite = finite && std::isfinite(v);
    max = std::max(max, std::abs(v));
  }
  const float scale = finite ? max / kMaxInt8 : std::numeric_limits<float>::quiet_NaN();
  // A scale of 0 or below the normal numbers has no useful inverse: everything becomes 0.
  const bool usable = finite && scale >= std::numeric_limits<float>::min();
  const float inverse = usable ? 1.0F / scale : 0.0F;
  op.scales[block] = scale;
  for (std::int64_t i = first; i < end; ++i) {
    const float v = with_error(op.gradient, op.error, factor, i);
    // Gaps between parameters stay zero beside a number that is not finite.
    const float q = finite ? std::nearbyint(v * inverse) : std::isfinite(v) ? 0.0F : 1.0F;
    op.quantized[i] = static_cast<std::int8_t>(q);
    if (op.error != nullptr) op.error[i] = (v - q * scale) / factor;
  }
}

/// |v| as an integer that orders the same; NaN above everything.
std::uint32_t magnitude_of(float v) {
  return std::bit_cast<std::uint32_t>(v) & 0x7fffffffU;
}

void select_from_block(const TopKSelect& op, std::int64_t block) {
  const std::int64_t first = block * op.block;
  const auto length = static_cast<int>(std::min<std::int64_t>(op.block, op.count - first));
  const int keep = std::min(op.keep, length);
  const float factor = factor_of(op.unit);
  std::array<float, kMaxSelectBlock> values;
  std::array<std::int32_t, kMaxSelectBlock> order;
  for (int i = 0; i < length; ++i) {
    values[at(i)] = with_error(op.gradient, op.error, factor, first + i);
    order[at(i)] = i;
  }
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    const std::uint32_t ma = magnitude_of(values[at(a)]);
    const std::uint32_t mb = magnitude_of(values[at(b)]);
    return ma != mb ? ma > mb : a < b;
  };
  if (keep < length)
    std::nth_element(order.begin(), order.begin() + keep, order.begin() + length, larger);
  std::sort(order.begin(), order.begin() + keep);
  if (op.error != nullptr)
    for (int i = 0; i < length; ++i) op.error[first + i] = values[at(i)] / factor;
  std::int32_t* indices = op.indices + block * op.keep;
  float* kept = op.values + block * op.keep;
  for (int k = 0; k < op.keep; ++k) {
    if (k >= keep) {
      indices[k] = -1;
      kept[k] = 0.0F;
      continue;
    }
    const std::int32_t i = order[at(k)];
    indices[k] = static_cast<std::int32_t>(first) + i;
    kept[k] = values[at(i)];
    if (op.error != nullptr) op.error[first + i] = 0.0F;
  }
}

}  // namespace

void run(const Context& context, const QuantizeInt8& op) {
  parallel_for(context.num_threads, blocks_of(op.count, op.block), kBlockGrain,
               [&](Range range, int /*thread*/) {
                 for (std::int64_t b = range.begin; b < range.end; ++b) quantize_block(op, b);
               });
}

void run(const Context& context, const DequantizeInt8& op) {
  parallel_for(context.num_threads, blocks_of(op.count, op.block), kBlockGrain,
               [&](Range range, int /*thread*/) {
                 for (std::int64_t b = range.begin; b < range.end; ++b) {
                   const std::int64_t end = std::min(op.count, (b + 1) * op.block);
                   for (std::int64_t i = b * op.block; i < end; ++i) {
                     const float v = op.quantized[i] == 0
                                         ? 0.0F
                                         : static_cast<float>(op.quantized[i]) * op.scales[b];
                     op.out[i] = op.accumulate ? op.out[i] + v : v;
                   }
                 }
               });
}

void run(const Context& context, const TopKSelect& op) {
  require_invariant(op.block <= kMaxSelectBlock && op.keep >= 1 && op.keep <= op.block,
                    "top-k keeps 1 to all elements of a block of at most 4096");
  parallel_for(context.num_threads, blocks_of(op.count, op.block), kBlockGrain,
               [&](Range range, int /*thread*/) {
                 for (std::int64_t b = range.begin; b < range.end; ++b) select_from_block(op, b);
               });
}

/// The indices are all different, so ranges of entries write different elements.
void run(const Context& context, const TopKScatterAdd& op) {
  constexpr std::int64_t kEntryGrain = 4096;
  parallel_for(context.num_threads, op.entries, kEntryGrain, [&](Range range, int /*thread*/) {
    for (std::int64_t e = range.begin; e < range.end; ++e)
      if (op.indices[e] >= 0) op.out[op.indices[e]] += op.values[e];
  });
}

void run(const Context& context, const SettleErrors& op) {
  constexpr std::int64_t kElementGrain = 16384;
  const bool skipped = std::isnan(*op.gradient_scale);
  const float* from = skipped ? op.settled : op.error;
  float* to = skipped ? op.error : op.settled;
  parallel_for(context.num_threads, op.count, kElementGrain, [&](Range range, int /*thread*/) {
    std::copy(from + range.begin, from + range.end, to + range.begin);
  });
}

}  // namespace meshplan::kernels::cpu
