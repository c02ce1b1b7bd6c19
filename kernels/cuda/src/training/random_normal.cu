// Compiled without contraction (kernels/cuda/CMakeLists.txt): the fp64 arithmetic below must round
// as the header says on every machine, and gives the CPU's bits.
#include "device/rows.cuh"
#include "kernels/training/random_normal.hpp"
#include "training/operators.hpp"

namespace meshplan::kernels::cuda {

namespace {

constexpr int kLanes = 4;  // normals of one Philox block
constexpr double kHalfPi = 1.57079632679489661923;
constexpr double kLn2 = 0.693147180559945309417;

struct Words {
  std::uint32_t at[kLanes];
};

/// Philox4x32-10 with counter {group, tensor_key} (Salmon et al. 2011, table 2 and section 3.3).
__device__ Words philox(std::uint64_t seed, std::uint64_t tensor_key, std::uint64_t group) {
  Words w{{static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
           static_cast<std::uint32_t>(tensor_key), static_cast<std::uint32_t>(tensor_key >> 32)}};
  auto key0 = static_cast<std::uint32_t>(seed);
  auto key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * w.at[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * w.at[2];
    w = {{static_cast<std::uint32_t>(product1 >> 32) ^ w.at[1] ^ key0,
          static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ w.at[3] ^ key1,
          static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return w;
}

/// ln(u) for normal u in (0, 1): u = 2^e m with m in [sqrt(1/2), sqrt(2)), then
/// ln m = 2 atanh(s), s = (m - 1) / (m + 1), as its series up to s^21 (next term below 1e-17).
__device__ double natural_log(double u) {
  std::uint64_t bits;
  memcpy(&bits, &u, sizeof bits);
  const std::uint64_t shifted = bits + (0x3ff0000000000000ULL - 0x3fe6a09e667f3bcdULL);
  const std::int64_t exponent = static_cast<std::int64_t>(shifted >> 52) - 1023;
  bits -= static_cast<std::uint64_t>(exponent) << 52;
  double m;
  memcpy(&m, &bits, sizeof m);
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 1.0 / 21.0;
  for (int k = 19; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return 2.0 * s * series + static_cast<double>(exponent) * kLn2;
}

struct SineCosine {
  double sine;
  double cosine;
};
/// Sine and cosine of 2 pi u, u in (0, 1): reduced to a quadrant, then Taylor series on
/// [-pi/4, pi/4] (error < 1e-16).
__device__ SineCosine sine_cosine_of_turn(double u) {
  const double quarter_turns = u * 4.0;
  const auto quadrant = static_cast<std::int32_t>(quarter_turns + 0.5);
  const double x = (quarter_turns - quadrant) * kHalfPi;
  const double x2 = x * x;
  double s = 1.0;
  double c = 1.0;
  for (int k = 16; k >= 2; k -= 2) s = 1.0 - s * x2 / (k * (k + 1.0));
  for (int k = 18; k >= 2; k -= 2) c = 1.0 - c * x2 / (k * (k - 1.0));
  s *= x;
  const bool swapped = (quadrant & 1) != 0;
  const double sine = swapped ? c : s;
  const double cosine = swapped ? s : c;
  return {(quadrant & 2) != 0 ? -sine : sine, ((quadrant + 1) & 2) != 0 ? -cosine : cosine};
}

/// Row blockIdx.x of the block; a thread makes the four elements of a Philox block and keeps those
/// that lie in the row.
__global__ void random_normal_kernel(const RandomNormal op) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = (op.row_offset + row) * op.global_columns + op.column_offset;
  const std::int64_t first_group = first / kLanes;
  const std::int64_t groups = (first + op.columns - 1) / kLanes - first_group + 1;
  float* out = op.out + row * op.out_stride;
  const double mean = double{op.mean};
  const double stddev = double{op.stddev};
  for_each_tile_pack<1>(groups, [&](std::int64_t group, auto /*one*/) {
    const Words words =
        philox(op.seed, op.tensor_key, static_cast<std::uint64_t>(first_group + group));
    for (int pair = 0; pair < 2; ++pair) {
      constexpr double kUnit = 1.0 / 4294967296.0;
      const double u0 = (static_cast<double>(words.at[2 * pair]) + 0.5) * kUnit;
      const double u1 = (static_cast<double>(words.at[2 * pair + 1]) + 0.5) * kUnit;
      const double radius = sqrt(-2.0 * natural_log(u0));
      const SineCosine angle = sine_cosine_of_turn(u1);
      const float values[2] = {static_cast<float>(mean + stddev * (radius * angle.cosine)),
                               static_cast<float>(mean + stddev * (radius * angle.sine))};
      for (int i = 0; i < 2; ++i) {
        const std::int64_t column = (first_group + group) * kLanes + 2 * pair + i - first;
        if (column >= 0 && column < op.columns) out[column] = values[i];
      }
    }
  });
}

}  // namespace

void enqueue(const Context& context, const RandomNormal& op) {
  if (op.columns == 0) return;
  launch(context, tile_shape(op.rows, op.columns + kLanes, kLanes), random_normal_kernel, op);
}

}  // namespace meshplan::kernels::cuda
