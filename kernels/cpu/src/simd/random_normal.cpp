// Compiled with -ffp-contract=off: the fp64 arithmetic below must round the same on every machine.
#include "simd/kernels.hpp"

namespace meshplan::kernels::MESHPLAN_ISA {

namespace {

constexpr int kGroups = 16;        // Philox blocks computed side by side
constexpr int kLanesPerGroup = 4;  // normals of one Philox block
constexpr int kBatch = kGroups * kLanesPerGroup;
constexpr double kHalfPi = 1.57079632679489661923;
constexpr double kLn2 = 0.693147180559945309417;

/// words[w][g] of Philox4x32-10 with counter {first_group + g, tensor_key} (Salmon et al. 2011,
/// table 2 and section 3.3).
void philox(const RandomNormal& op, uint64_t first_group, uint32_t words[4][kGroups]) {
  for (int g = 0; g < kGroups; ++g) {
    const uint64_t group = first_group + static_cast<uint64_t>(g);
    words[0][g] = static_cast<uint32_t>(group);
    words[1][g] = static_cast<uint32_t>(group >> 32);
    words[2][g] = static_cast<uint32_t>(op.tensor_key);
    words[3][g] = static_cast<uint32_t>(op.tensor_key >> 32);
  }
  uint32_t key0 = static_cast<uint32_t>(op.seed);
  uint32_t key1 = static_cast<uint32_t>(op.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int g = 0; g < kGroups; ++g) {
      const uint64_t product0 = uint64_t{0xD2511F53U} * words[0][g];
      const uint64_t product1 = uint64_t{0xCD9E8D57U} * words[2][g];
      words[0][g] = static_cast<uint32_t>(product1 >> 32) ^ words[1][g] ^ key0;
      words[1][g] = static_cast<uint32_t>(product1);
      words[2][g] = static_cast<uint32_t>(product0 >> 32) ^ words[3][g] ^ key1;
      words[3][g] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
}

/// ln(u) for normal u in (0, 1): u = 2^e m with m in [sqrt(1/2), sqrt(2)), then
/// ln m = 2 atanh(s), s = (m - 1) / (m + 1), as its series up to s^21 (next term below 1e-17).
MESHPLAN_INLINE double natural_log(double u) {
  uint64_t bits;
  memcpy(&bits, &u, sizeof bits);
  const uint64_t shifted = bits + (0x3ff0000000000000ULL - 0x3fe6a09e667f3bcdULL);
  const int64_t exponent = static_cast<int64_t>(shifted >> 52) - 1023;
  bits -= static_cast<uint64_t>(exponent) << 52;
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
MESHPLAN_INLINE SineCosine sine_cosine_of_turn(double u) {
  const double quarter_turns = u * 4.0;
  const int32_t quadrant = static_cast<int32_t>(quarter_turns + 0.5);
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

/// The kBatch consecutive elements that start at the global index 4 * first_group.
void normals(const RandomNormal& op, uint64_t first_group, float out[kBatch]) {
  uint32_t words[4][kGroups];
  philox(op, first_group, words);
  const double mean = double{op.mean};
  const double stddev = double{op.stddev};
  for (int pair = 0; pair < 2; ++pair) {
    float first[kGroups];
    float second[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      constexpr double kUnit = 1.0 / 4294967296.0;
      const double u0 = (static_cast<double>(words[2 * pair][g]) + 0.5) * kUnit;
      const double u1 = (static_cast<double>(words[2 * pair + 1][g]) + 0.5) * kUnit;
      const double radius = __builtin_sqrt(-2.0 * natural_log(u0));
      const SineCosine angle = sine_cosine_of_turn(u1);
      first[g] = static_cast<float>(mean + stddev * (radius * angle.cosine));
      second[g] = static_cast<float>(mean + stddev * (radius * angle.sine));
    }
    for (int g = 0; g < kGroups; ++g) {
      out[kLanesPerGroup * g + 2 * pair] = first[g];
      out[kLanesPerGroup * g + 2 * pair + 1] = second[g];
    }
  }
}

}  // namespace

void random_normal(const RandomNormal& op, Range rows) {
  float batch[kBatch];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t first = (op.row_offset + row) * op.global_columns + op.column_offset;
    float* out = op.out + row * op.out_stride;
    int64_t column = 0;
    while (column < op.columns) {
      const int64_t index = first + column;
      const int64_t skipped = index % kLanesPerGroup;
      normals(op, static_cast<uint64_t>(index / kLanesPerGroup), batch);
      const int64_t available = kBatch - skipped;
      const int64_t wanted = op.columns - column;
      const int64_t count = available < wanted ? available : wanted;
      memcpy(out + column, batch + skipped, static_cast<size_t>(count) * sizeof(float));
      column += count;
    }
  }
}

}  // namespace meshplan::kernels::MESHPLAN_ISA
