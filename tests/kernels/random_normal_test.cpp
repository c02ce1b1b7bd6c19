#include <numbers>

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

/// Philox4x32-10 written with the paper's notation, for one counter.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * counter[0];
    const std::uint64_t p1 = 0xCD9E8D57ULL * counter[2];
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

double expected_normal(std::uint64_t seed, std::uint64_t tensor_key, std::uint64_t index) {
  const std::uint64_t group = index / 4;
  const auto words =
      philox({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32),
              static_cast<std::uint32_t>(tensor_key), static_cast<std::uint32_t>(tensor_key >> 32)},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::size_t pair = index % 4 / 2 * 2;
  const double u0 = (words[pair] + 0.5) / 4294967296.0;
  const double u1 = (words[pair + 1] + 0.5) / 4294967296.0;
  const double angle = 2.0 * std::numbers::pi * u1;
  return std::sqrt(-2.0 * std::log(u0)) * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

TEST_CASE("the test's Philox gives the published answers", "[kernels][random_normal]") {
  // Random123 1.14, tests/kat_vectors: philox4x32 10
  CHECK(philox({0, 0, 0, 0}, {0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
  CHECK(philox({0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU}, {0xffffffffU, 0xffffffffU}) ==
        std::array<std::uint32_t, 4>{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
  CHECK(philox({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U});
}

TEST_CASE("random weights follow the documented formula", "[kernels][random_normal]") {
  constexpr std::uint64_t kSeed = 0x123456789abcdef0ULL;
  constexpr std::uint64_t kKey = 0xfedcba9876543210ULL;
  for_each_backend([&](Backend& backend) {
    const DeviceMatrix out(backend, 7, 129, DType::F32, 3);
    run(backend, RandomNormal{.seed = kSeed,
                              .tensor_key = kKey,
                              .rows = 7,
                              .columns = 129,
                              .global_columns = 129,
                              .mean = 2.0F,
                              .stddev = 0.5F,
                              .out = out.floats(),
                              .out_stride = out.stride()});
    Matrix expected(7, 129);
    for (std::size_t i = 0; i < expected.values.size(); ++i)
      expected.values[i] = 2.0 + 0.5 * expected_normal(kSeed, kKey, i);
    check_close(out.read(), expected, [&](std::int64_t row, std::int64_t column) {
      return 1.01 * kEps32 * std::max(std::fabs(expected(row, column)), 0.25);
    });
  });
}

TEST_CASE("a block of random weights is the same slice of the whole tensor on every backend",
          "[kernels][random_normal]") {
  constexpr std::int64_t kRows = 50;
  constexpr std::int64_t kColumns = 203;
  std::vector<std::uint8_t> first_bits;
  for_each_backend([&](Backend& backend) {
    const auto fill = [&](std::int64_t row, std::int64_t column, std::int64_t rows,
                          std::int64_t columns) {
      DeviceMatrix out(backend, rows, columns);
      run(backend, RandomNormal{.seed = 7,
                                .tensor_key = 11,
                                .rows = rows,
                                .columns = columns,
                                .row_offset = row,
                                .column_offset = column,
                                .global_columns = kColumns,
                                .out = out.floats(),
                                .out_stride = columns});
      if (rows == kRows && columns == kColumns) {
        if (first_bits.empty()) first_bits = out.bits();
        CHECK(out.bits() == first_bits);
      }
      return out.read();
    };
    const Matrix whole = fill(0, 0, kRows, kColumns);
    for (const auto& [row, column, rows, columns] : {std::array{0, 0, 25, 203},
                                                     {25, 0, 25, 203},
                                                     {0, 101, 50, 102},
                                                     {13, 66, 5, 70},
                                                     {49, 202, 1, 1}}) {
      const Matrix block = fill(row, column, rows, columns);
      Matrix expected(rows, columns);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) expected(r, c) = whole(row + r, column + c);
      CHECK(block.values == expected.values);
    }
  });
}

TEST_CASE("random weights have the moments of the normal distribution",
          "[kernels][random_normal]") {
  constexpr std::int64_t kCount = 1 << 20;
  const auto backend = make_cpu_backend(1);
  const auto sample = [&](std::uint64_t seed, std::uint64_t key) {
    const DeviceMatrix out(*backend, 1, kCount);
    run(*backend, RandomNormal{.seed = seed,
                               .tensor_key = key,
                               .rows = 1,
                               .columns = kCount,
                               .global_columns = kCount,
                               .out = out.floats(),
                               .out_stride = kCount});
    return out.read().values;
  };
  const std::vector<double> x = sample(1, 2);
  double moments[5] = {};
  for (const double value : x)
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(value, power) / kCount;
  // standard errors with n = 2^20: 0.001, sqrt(2) 0.001, sqrt(15) 0.001, sqrt(96) 0.001; five of
  // each
  CHECK(std::fabs(moments[1]) < 0.005);
  CHECK(std::fabs(moments[2] - 1.0) < 0.0071);
  CHECK(std::fabs(moments[3]) < 0.0195);
  CHECK(std::fabs(moments[4] - 3.0) < 0.049);
  const auto correlation = [&](const std::vector<double>& y, std::size_t lag) {
    double sum = 0.0;
    for (std::size_t i = lag; i < x.size(); ++i) sum += x[i] * y[i - lag] / kCount;
    return std::fabs(sum);
  };
  CHECK(correlation(x, 1) < 0.005);
  CHECK(correlation(x, 4) < 0.005);
  CHECK(correlation(sample(2, 2), 0) < 0.005);  // another seed
  CHECK(correlation(sample(1, 3), 0) < 0.005);  // another tensor
}

}  // namespace meshplan::kernels::test
