// FP8 by its definition (Micikevicius et al. 2022, table 1): all codes of a format are listed with
// their values in doubles, and rounding is the search for the nearest one.
#include "kernels/products/float8.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/support.hpp"

namespace meshplan::kernels::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr Float8Format kFormats[] = {Float8Format::E4M3, Float8Format::E5M2};

/// From the digits of the code; NaN and infinities of the format are NaN.
double value_of(int code, Float8Format format) {
  const bool e4m3 = format == Float8Format::E4M3;
  const int mantissa_bits = e4m3 ? 3 : 2;
  const int magnitude = code & 0x7f;
  if (magnitude > (e4m3 ? 0x7e : 0x7b)) return std::nan("");
  const int exponent = magnitude >> mantissa_bits;
  const double fraction =
      static_cast<double>(magnitude % (1 << mantissa_bits)) / (1 << mantissa_bits);
  const int bias = e4m3 ? 7 : 15;
  const double size =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return code >= 0x80 ? -size : size;
}

/// The nearest of all codes; of two equally near ones the even.
int nearest(double x, Float8Format format) {
  int best = -1;
  for (int code = 0; code < 0x80; ++code) {
    const double value = value_of(code, format);
    if (std::isnan(value)) continue;
    const double distance = std::fabs(std::fabs(x) - value);
    const double best_distance =
        best < 0 ? distance + 1 : std::fabs(std::fabs(x) - value_of(best, format));
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

std::vector<std::uint16_t> bf16_values(const Matrix& matrix) {
  std::vector<std::uint16_t> bits;
  for (const double value : matrix.values) bits.push_back(bf16_of(static_cast<float>(value)));
  return bits;
}

Bytes random_codes(std::int64_t count, std::uint32_t seed, Float8Format format) {
  const Matrix random = reference::random_matrix(1, count, seed, 3.0);
  Bytes codes;
  for (const double value : random.values)
    codes.push_back(static_cast<std::uint8_t>(nearest(value, format)));
  return codes;
}

}  // namespace

TEST_CASE("Every FP8 number has the value of its digits and comes back from it",
          "[kernels][float8]") {
  for (const Float8Format format : kFormats)
    for (int code = 0; code < 256; ++code) {
      const double value = value_of(code, format);
      const float decoded = from_float8(static_cast<std::uint8_t>(code), format);
      INFO("code " << code);
      if (std::isnan(value)) {
        CHECK_FALSE(std::isfinite(decoded));
        continue;
      }
      CHECK(double{decoded} == value);
      CHECK(int{to_float8(static_cast<float>(value), format)} == code);
    }
}

TEST_CASE("FP8 rounds to the nearest number, ties to even, and saturates", "[kernels][float8]") {
  for (const Float8Format format : kFormats) {
    const double largest = format == Float8Format::E4M3 ? 448.0 : 57344.0;
    std::vector<float> values = {0.0F,
                                 -0.0F,
                                 1e-30F,
                                 0x1p-149F,
                                 static_cast<float>(largest),
                                 static_cast<float>(largest * 1.04),
                                 1e30F,
                                 -1e30F,
                                 std::numeric_limits<float>::infinity()};
    for (int code = 0; code < 0x7b; ++code) {  // between neighbours: the tie and beside it
      const auto tie =
          static_cast<float>((value_of(code, format) + value_of(code + 1, format)) / 2);
      for (const float value : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 1e9F), -tie})
        values.push_back(value);
    }
    const Matrix random = reference::random_matrix(1, 2000, 7, 8.0);
    for (const double value : random.values)
      values.push_back(static_cast<float>(std::exp2(value) * (value > 0 ? 1 : -1)));
    for (const float value : values) {
      const double limited = std::clamp(double{value}, -largest, largest);
      INFO("value " << value);
      CHECK(int{to_float8(value, format)} == nearest(limited, format));
    }
    CHECK_FALSE(std::isfinite(from_float8(to_float8(std::nanf(""), format), format)));
  }
}

TEST_CASE("Tensors become FP8 in both layouts with the scale of their largest number",
          "[kernels][float8]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const Float8Format format : kFormats) {
        constexpr std::int64_t kRows = 80;  // a whole tile of the GPU's kernel and a part
        constexpr std::int64_t kColumns = 144;
        const Matrix x = random_in(dtype, kRows, kColumns, 11, 0.03);
        std::vector<float> single(x.values.begin(), x.values.end());
        const DeviceVector<float> x32(backend, single);
        const DeviceVector<std::uint16_t> x16(backend, bf16_values(x));
        const DeviceVector<std::uint8_t> rows(backend, kRows * kColumns);
        const DeviceVector<std::uint8_t> columns(backend, kRows * kColumns);
        const DeviceVector<float> scale(backend, 1);
        const void* data = dtype == DType::F32 ? static_cast<const void*>(x32.data()) : x16.data();
        run(backend, QuantizeFloat8{kRows, kColumns, dtype, data, format, rows.data(),
                                    columns.data(), scale.data()});
        double max = 0;
        for (const double value : x.values) max = std::max(max, std::fabs(value));
        const double largest = format == Float8Format::E4M3 ? 448.0 : 57344.0;
        const float got = scale.read()[0];
        REQUIRE(double{got} == Approx(max / largest).epsilon(kEps32));
        const float inverse = 1.0F / got;
        const Bytes by_row = rows.read();
        const Bytes by_column = columns.read();
        for (std::int64_t row = 0; row < kRows; ++row)
          for (std::int64_t column = 0; column < kColumns; ++column) {
            const float scaled = static_cast<float>(x(row, column)) * inverse;
            const int code = by_row[static_cast<std::size_t>(row * kColumns + column)];
            REQUIRE(code == nearest(std::clamp(double{scaled}, -largest, largest), format));
            REQUIRE(by_column[static_cast<std::size_t>(column * kRows + row)] == code);
          }
        const DeviceVector<std::uint8_t> alone(backend, kRows * kColumns);  // one layout only
        run(backend, QuantizeFloat8{kRows, kColumns, dtype, data, format, nullptr, alone.data(),
                                    scale.data()});
        CHECK(alone.read() == by_column);
      }
  });
}

TEST_CASE("A tensor of zeros has a scale, and what is not finite shows", "[kernels][float8]") {
  for_each_backend([](Backend& backend) {
    std::vector<float> values(256, 0.0F);
    const DeviceVector<std::uint8_t> codes(backend, values.size());
    const DeviceVector<float> scale(backend, 1);
    const auto quantized = [&](const DeviceVector<float>& x) {
      run(backend, QuantizeFloat8{16, 16, DType::F32, x.data(), Float8Format::E4M3, codes.data(),
                                  nullptr, scale.data()});
      return codes.read();
    };
    CHECK(quantized(DeviceVector<float>(backend, values)) == Bytes(256, 0));
    CHECK(scale.read()[0] == 1.0F);
    values[7] = std::numeric_limits<float>::quiet_NaN();
    values[100] = 3.0F;
    const Bytes with_nan = quantized(DeviceVector<float>(backend, values));
    CHECK((with_nan[7] & 0x7f) == 0x7f);
    CHECK(int{with_nan[100]} == 0x7e);
    values[7] = std::numeric_limits<float>::infinity();
    CHECK((quantized(DeviceVector<float>(backend, values))[7] & 0x7f) == 0x7f);
  });
}

TEST_CASE("Products of FP8 tensors are those of the numbers that they stand for",
          "[kernels][float8]") {
  for_each_backend([](Backend& backend) {
    constexpr std::int64_t m = 32, n = 48, k = 80;
    for (const Float8Format a_format : kFormats)
      for (const DType out_dtype : {DType::F32, DType::BF16}) {
        const Bytes a = random_codes(m * k, 1, a_format);
        const Bytes b = random_codes(n * k, 2, Float8Format::E4M3);
        const float a_scale = 0.037F, b_scale = 1.9F;
        const DeviceVector<std::uint8_t> device_a(backend, a);
        const DeviceVector<std::uint8_t> device_b(backend, b);
        const DeviceVector<float> scales(backend, std::vector<float>{a_scale, b_scale});
        const Matrix bias = random_in(DType::BF16, 1, n, 3);
        const Matrix before = random_in(DType::F32, m, n, 4);
        const bool accumulate = out_dtype == DType::F32;
        const std::vector<float> start(before.values.begin(), before.values.end());
        const DeviceVector<float> out32(backend, start);
        const DeviceVector<std::uint16_t> out16(backend, m * n);
        const DeviceVector<std::uint16_t> device_bias(backend, bf16_values(bias));
        ScaledProduct op{.m = m,
                         .n = n,
                         .k = k,
                         .a_format = a_format,
                         .a = device_a.data(),
                         .b = device_b.data(),
                         .a_scale = scales.data(),
                         .b_scale = scales.data() + 1,
                         .out_dtype = out_dtype,
                         .out = out16.data(),
                         .bias = device_bias.data()};
        if (accumulate) {
          op.out = out32.data();
          op.bias = nullptr;
          op.accumulate = true;
        }
        run(backend, op);
        const auto got32 = out32.read();
        const auto got16 = out16.read();
        for (std::int64_t row = 0; row < m; ++row)
          for (std::int64_t column = 0; column < n; ++column) {
            double sum = 0, magnitude = 0;
            for (std::int64_t i = 0; i < k; ++i) {
              const double product =
                  value_of(a[static_cast<std::size_t>(row * k + i)], a_format) *
                  value_of(b[static_cast<std::size_t>(column * k + i)], Float8Format::E4M3) *
                  double{a_scale} * double{b_scale};
              sum += product;
              magnitude += std::fabs(product);
            }
            const auto at = static_cast<std::size_t>(row * n + column);
            const double more = accumulate ? before.values[at] : bias(0, column);
            const double value =
                accumulate ? double{got32[at]} : double{value_of_half(got16[at], DType::BF16)};
            const double allowed = tolerance(out_dtype, k, magnitude) +
                                   stored_roundoff(out_dtype) * std::fabs(more) +
                                   4 * kEps32 * std::fabs(more);
            REQUIRE(std::fabs(value - sum - more) <= allowed);
          }
      }
  });
}

}  // namespace meshplan::kernels::test
