// Norms and activations leave the largest magnitude of what they write, for the scale of its FP8
// codes: to the bit what is in memory.
#include "kernels/support.hpp"

namespace meshplan::kernels::test {
namespace {

/// What is there before: larger than any result, so that a kernel which only raises it shows.
constexpr float kBefore = 1e30F;

/// The largest magnitude in memory; NaNs are left out.
float largest_of(const Matrix& matrix) {
  double largest = 0;
  for (const double value : matrix.values)
    if (std::fabs(value) > largest) largest = std::fabs(value);
  return static_cast<float>(largest);
}

struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
};

/// Rows that a warp holds, that a block holds, that neither does; packs and single elements; more
/// rows than a block has.
template <class Body>
void for_each_size(const Body& body) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const Sizes sizes : {Sizes{1, 8}, Sizes{7, 33}, Sizes{130, 130}, Sizes{70, 640},
                              Sizes{9, 3072}, Sizes{3, 12'288}}) {
      INFO(name_of(dtype) << " T " << sizes.tokens << " D " << sizes.size);
      for_each_backend([&](Backend& backend) { body(backend, dtype, sizes); });
    }
}

/// Operands of a case; values of the results differ in size from row to row.
struct Operands {
  Operands(Backend& backend, DType dtype, Sizes sizes, std::int64_t wide = 1)
      : x(backend, random_in(dtype, sizes.tokens, wide * sizes.size, 1, 3.0), dtype, 8),
        weight(backend, random_in(dtype, 1, sizes.size, 2), dtype),
        dy(backend, random_in(dtype, sizes.tokens, sizes.size, 3), dtype, 8),
        residual(backend, random_in(dtype, sizes.tokens, sizes.size, 4, 2.0), dtype, 8),
        y(backend, sizes.tokens, sizes.size, dtype, 8),
        dx(backend, sizes.tokens, wide * sizes.size, dtype, 8),
        mean(backend, 1, sizes.tokens),
        inverse(backend, 1, sizes.tokens),
        dweight(backend, 1, sizes.size),
        largest(backend, 1, kBefore) {}
  DeviceMatrix x, weight, dy, residual, y, dx, mean, inverse, dweight;
  DeviceVector<float> largest;

  void check(const DeviceMatrix& written) const {
    const float expected = largest_of(written.read());
    REQUIRE(expected > 0);
    CHECK(largest.read().front() == expected);
  }
};

}  // namespace

TEST_CASE("An RMS norm and its gradient leave their largest number", "[kernels][largest]") {
  for_each_size([](Backend& backend, DType dtype, Sizes sizes) {
    const Operands o(backend, dtype, sizes);
    run(backend, RmsNormForward{.tokens = sizes.tokens,
                                .size = sizes.size,
                                .epsilon = 1e-5F,
                                .dtype = dtype,
                                .x = o.x.data(),
                                .x_stride = o.x.stride(),
                                .weight = o.weight.data(),
                                .y = o.y.data(),
                                .y_stride = o.y.stride(),
                                .inv_rms = o.inverse.floats(),
                                .largest = o.largest.data()});
    o.check(o.y);
    for (const bool weights : {true, false}) {
      run(backend, RmsNormBackward{.tokens = sizes.tokens,
                                   .size = sizes.size,
                                   .dtype = dtype,
                                   .dy = o.dy.data(),
                                   .dy_stride = o.dy.stride(),
                                   .x = o.x.data(),
                                   .x_stride = o.x.stride(),
                                   .weight = o.weight.data(),
                                   .inv_rms = o.inverse.floats(),
                                   .dx = o.dx.data(),
                                   .dx_stride = o.dx.stride(),
                                   .residual = o.residual.data(),
                                   .dweight = weights ? o.dweight.floats() : nullptr,
                                   .largest = o.largest.data()});
      o.check(o.dx);
    }
  });
}

TEST_CASE("A layer norm and its gradient leave their largest number", "[kernels][largest]") {
  for_each_size([](Backend& backend, DType dtype, Sizes sizes) {
    const Operands o(backend, dtype, sizes);
    const DeviceMatrix dbias(backend, 1, sizes.size);
    run(backend, LayerNormForward{.tokens = sizes.tokens,
                                  .size = sizes.size,
                                  .epsilon = 1e-5F,
                                  .dtype = dtype,
                                  .x = o.x.data(),
                                  .x_stride = o.x.stride(),
                                  .weight = o.weight.data(),
                                  .y = o.y.data(),
                                  .y_stride = o.y.stride(),
                                  .mean = o.mean.floats(),
                                  .inv_std = o.inverse.floats(),
                                  .largest = o.largest.data()});
    o.check(o.y);
    for (const bool weights : {true, false}) {
      run(backend, LayerNormBackward{.tokens = sizes.tokens,
                                     .size = sizes.size,
                                     .dtype = dtype,
                                     .dy = o.dy.data(),
                                     .dy_stride = o.dy.stride(),
                                     .x = o.x.data(),
                                     .x_stride = o.x.stride(),
                                     .weight = o.weight.data(),
                                     .mean = o.mean.floats(),
                                     .inv_std = o.inverse.floats(),
                                     .dx = o.dx.data(),
                                     .dx_stride = o.dx.stride(),
                                     .residual = o.residual.data(),
                                     .dweight = weights ? o.dweight.floats() : nullptr,
                                     .dbias = weights ? dbias.floats() : nullptr,
                                     .largest = o.largest.data()});
      o.check(o.dx);
    }
  });
}

TEST_CASE("A gated activation and its gradient leave their largest number", "[kernels][largest]") {
  for_each_size([](Backend& backend, DType dtype, Sizes sizes) {
    const Operands o(backend, dtype, sizes, /*wide=*/2);
    run(backend, GatedActivationForward{.tokens = sizes.tokens,
                                        .size = sizes.size,
                                        .dtype = dtype,
                                        .x = o.x.data(),
                                        .x_stride = o.x.stride(),
                                        .y = o.y.data(),
                                        .y_stride = o.y.stride(),
                                        .largest = o.largest.data()});
    o.check(o.y);
    run(backend, GatedActivationBackward{.tokens = sizes.tokens,
                                         .size = sizes.size,
                                         .dtype = dtype,
                                         .dy = o.dy.data(),
                                         .dy_stride = o.dy.stride(),
                                         .x = o.x.data(),
                                         .x_stride = o.x.stride(),
                                         .dx = o.dx.data(),
                                         .dx_stride = o.dx.stride(),
                                         .largest = o.largest.data()});
    o.check(o.dx);
  });
}

TEST_CASE("An activation and its gradient leave their largest number", "[kernels][largest]") {
  for_each_size([](Backend& backend, DType dtype, Sizes sizes) {
    const std::int64_t count = sizes.tokens * sizes.size;
    const DeviceMatrix x(backend, random_in(dtype, 1, count, 1, 3.0), dtype);
    const DeviceMatrix dy(backend, random_in(dtype, 1, count, 2, 3.0), dtype);
    const DeviceMatrix y(backend, 1, count, dtype);
    const DeviceVector<float> largest(backend, 1, kBefore);
    run(backend, ActivationForward{.count = count,
                                   .dtype = dtype,
                                   .x = x.data(),
                                   .y = y.data(),
                                   .largest = largest.data()});
    CHECK(largest.read().front() == largest_of(y.read()));
    run(backend, ActivationBackward{.count = count,
                                    .dtype = dtype,
                                    .dy = dy.data(),
                                    .x = x.data(),
                                    .dx = y.data(),
                                    .largest = largest.data()});
    CHECK(largest.read().front() == largest_of(y.read()));
  });
}

// The scale of a tensor with a NaN is that of its other numbers, however their largest was found.
TEST_CASE("A NaN is no largest number", "[kernels][largest]") {
  for_each_backend([](Backend& backend) {
    Matrix values = random_in(DType::BF16, 1, 512, 1, 3.0);
    values(0, 17) = std::nan("");
    const DeviceMatrix x(backend, values, DType::BF16);
    const DeviceMatrix y(backend, 1, 512, DType::BF16);
    const DeviceVector<float> largest(backend, 1, kBefore);
    run(backend, ActivationForward{.kind = ActivationKind::Relu,
                                   .count = 512,
                                   .dtype = DType::BF16,
                                   .x = x.data(),
                                   .y = y.data(),
                                   .largest = largest.data()});
    CHECK(largest.read().front() == largest_of(y.read()));
  });
}

TEST_CASE("FP8 codes are the same whoever found the tensor's largest number",
          "[kernels][largest][float8]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      constexpr std::int64_t kRows = 80, kColumns = 144;
      const Matrix values = random_in(dtype, kRows, kColumns, 11, 0.03);
      const DeviceMatrix x(backend, values, dtype);
      std::vector<std::vector<std::uint8_t>> codes;
      std::vector<float> scales;
      for (const bool known : {false, true}) {
        const DeviceVector<std::uint8_t> rows(backend, kRows * kColumns);
        const DeviceVector<std::uint8_t> columns(backend, kRows * kColumns);
        const DeviceVector<float> scale(backend, 1, kBefore);
        const DeviceVector<float> largest(backend, 1, largest_of(values));
        run(backend, QuantizeFloat8{.rows = kRows,
                                    .columns = kColumns,
                                    .dtype = dtype,
                                    .x = x.data(),
                                    .quantized = rows.data(),
                                    .transposed = columns.data(),
                                    .scale = scale.data(),
                                    .largest = known ? largest.data() : nullptr});
        codes.push_back(rows.read());
        codes.push_back(columns.read());
        scales.push_back(scale.read().front());
      }
      CHECK(scales[0] == largest_of(values) / 448.0F);
      CHECK(scales[0] == scales[1]);
      CHECK(codes[0] == codes[2]);
      CHECK(codes[1] == codes[3]);
    }
  });
}

}  // namespace meshplan::kernels::test
