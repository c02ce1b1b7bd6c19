#include "kernels/products/grouped_linear.hpp"

#include <array>

#include "kernels/support.hpp"
#include "reference/linear.hpp"

namespace meshplan::kernels::test {

namespace {

/// One row, none, more than a block and an odd number; 3 rows at the end belong to nobody.
const std::vector<std::int32_t> kOffsets = {0, 1, 1, 300, 337};
constexpr std::int64_t kGroups = 4;
constexpr std::int64_t kRows = 340;

struct Sizes {
  std::int64_t in, out;
  std::int64_t padding;  // numbers between rows
};
/// Odd ones, and whole packs of 16 bytes, which GPUs multiply in larger tiles: more than one, the
/// last ones not full, in every dimension.
constexpr std::array kSizes = {Sizes{19, 33, 3}, Sizes{136, 264, 8}};

Matrix rows_of(const Matrix& x, std::int64_t begin, std::int64_t end) {
  Matrix result(end - begin, x.columns);
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t column = 0; column < x.columns; ++column)
      result(row - begin, column) = x(row, column);
  return result;
}
void put_rows(Matrix& to, std::int64_t begin, const Matrix& from) {
  for (std::int64_t row = 0; row < from.rows; ++row)
    for (std::int64_t column = 0; column < from.columns; ++column)
      to(begin + row, column) = from(row, column);
}

/// What a matrix on the device holds before anything writes to it (support.hpp).
Matrix unwritten(std::int64_t rows, std::int64_t columns) {
  Matrix result(rows, columns);
  for (double& value : result.values) value = 4096.0;
  return result;
}

struct GroupedCase {
  DType dtype;
  Sizes sizes;
  Matrix x = random_in(dtype, kRows, sizes.in, 1);
  Matrix weight = random_in(dtype, kGroups* sizes.out, sizes.in, 2);
  Matrix bias = random_in(dtype, kGroups, sizes.out, 3);
  Matrix dy = random_in(dtype, kRows, sizes.out, 4);

  /// `product(rows begin, rows end, group)` laid over the rows of all groups.
  template <class Product>
  static Matrix by_rows(std::int64_t columns, const Product& product) {
    Matrix result = unwritten(kRows, columns);
    for (std::int64_t g = 0; g < kGroups; ++g) {
      const auto at = static_cast<std::size_t>(g);
      put_rows(result, kOffsets[at], product(kOffsets[at], kOffsets[at + 1], g));
    }
    return result;
  }
  Matrix weight_of(std::int64_t group) const {
    return rows_of(weight, group * sizes.out, (group + 1) * sizes.out);
  }
};

template <class Body>
void for_each_case(const Body& body) {
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      // CUDA multiplies groups by kernels of its own, which the emulator runs in every precision.
      if (is_cpu(backend) && !multiplies(backend, dtype)) continue;
      for (const Sizes& sizes : kSizes) {
        INFO(name_of(dtype) << ", " << sizes.in << " x " << sizes.out);
        const DeviceVector<std::int32_t> offsets(backend, kOffsets);
        // CUDA kernels read the offsets where the router wrote them
        const bool on_device = backend.name().find("cuda") != std::string::npos;
        body(backend, GroupedCase{dtype, sizes},
             GroupOffsets{offsets.data(), on_device ? nullptr : kOffsets.data()});
      }
    }
  });
}

}  // namespace

TEST_CASE("grouped linear forward multiplies each group by its own weight", "[kernels][grouped]") {
  for_each_case([](Backend& backend, const GroupedCase& c, GroupOffsets offsets) {
    const DeviceMatrix x(backend, c.x, c.dtype, c.sizes.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype);
    const DeviceMatrix bias(backend, c.bias, c.dtype);
    const DeviceMatrix y(backend, kRows, c.sizes.out, c.dtype, 2 * c.sizes.padding);
    run(backend, GroupedLinearForward{.shape = {kGroups, kRows, c.sizes.in, c.sizes.out},
                                      .dtype = c.dtype,
                                      .offsets = offsets,
                                      .x = x.data(),
                                      .x_stride = x.stride(),
                                      .weight = weight.data(),
                                      .bias = bias.data(),
                                      .y = y.data(),
                                      .y_stride = y.stride()});
    const auto expected = GroupedCase::by_rows(
        c.sizes.out, [&](std::int64_t begin, std::int64_t end, std::int64_t group) {
          return reference::linear(rows_of(c.x, begin, end), c.weight_of(group),
                                   rows_of(c.bias, group, group + 1));
        });
    check_close(y.read(), expected,
                tolerance(c.dtype, c.sizes.in, static_cast<double>(c.sizes.in + 1)));
  });
}

TEST_CASE("grouped linear input gradient uses each group's own weight", "[kernels][grouped]") {
  for_each_case([](Backend& backend, const GroupedCase& c, GroupOffsets offsets) {
    const DeviceMatrix dy(backend, c.dy, c.dtype, c.sizes.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype);
    const DeviceMatrix dx(backend, kRows, c.sizes.in, c.dtype, 2 * c.sizes.padding);
    run(backend, GroupedLinearInputGrad{.shape = {kGroups, kRows, c.sizes.in, c.sizes.out},
                                        .dtype = c.dtype,
                                        .offsets = offsets,
                                        .dy = dy.data(),
                                        .dy_stride = dy.stride(),
                                        .weight = weight.data(),
                                        .dx = dx.data(),
                                        .dx_stride = dx.stride()});
    const auto expected = GroupedCase::by_rows(
        c.sizes.in, [&](std::int64_t begin, std::int64_t end, std::int64_t group) {
          return reference::linear_input_grad(rows_of(c.dy, begin, end), c.weight_of(group));
        });
    check_close(dx.read(), expected,
                tolerance(c.dtype, c.sizes.out, static_cast<double>(c.sizes.out)));
  });
}

TEST_CASE("grouped linear weight gradient sums over the rows of its group alone",
          "[kernels][grouped]") {
  for_each_case([](Backend& backend, const GroupedCase& c, GroupOffsets offsets) {
    const DeviceMatrix dy(backend, c.dy, c.dtype, c.sizes.padding);
    const DeviceMatrix x(backend, c.x, c.dtype, 2 * c.sizes.padding);
    const DeviceMatrix dweight(backend, kGroups * c.sizes.out, c.sizes.in);
    const DeviceMatrix dbias(backend, kGroups, c.sizes.out);
    Matrix expected(kGroups * c.sizes.out, c.sizes.in);
    Matrix expected_bias(kGroups, c.sizes.out);
    for (std::int64_t g = 0; g < kGroups; ++g) {
      const auto at = static_cast<std::size_t>(g);
      const Matrix group_dy = rows_of(c.dy, kOffsets[at], kOffsets[at + 1]);
      const Matrix group_x = rows_of(c.x, kOffsets[at], kOffsets[at + 1]);
      put_rows(expected, g * c.sizes.out, reference::linear_weight_grad(group_dy, group_x));
      put_rows(expected_bias, g, reference::column_sums(group_dy));
    }
    for (const int runs : {1, 2}) {  // the second adds to the first
      run(backend, GroupedLinearWeightGrad{.shape = {kGroups, kRows, c.sizes.in, c.sizes.out},
                                           .dtype = c.dtype,
                                           .offsets = offsets,
                                           .dy = dy.data(),
                                           .dy_stride = dy.stride(),
                                           .x = x.data(),
                                           .x_stride = x.stride(),
                                           .dweight = dweight.floats(),
                                           .dbias = dbias.floats(),
                                           .accumulate = runs == 2});
      const auto times = [&](Matrix m) {
        for (double& value : m.values) value *= runs;
        return m;
      };
      const double bound = runs * tolerance(DType::F32, 300, 300);
      check_close(dweight.read(), times(expected), bound);
      check_close(dbias.read(), times(expected_bias), bound);
    }
    // The bias alone, as where the weights are frozen.
    const DeviceMatrix alone(backend, kGroups, c.sizes.out);
    run(backend, GroupedLinearWeightGrad{.shape = {kGroups, kRows, 0, c.sizes.out},
                                         .dtype = c.dtype,
                                         .offsets = offsets,
                                         .dy = dy.data(),
                                         .dy_stride = dy.stride(),
                                         .dbias = alone.floats()});
    check_close(alone.read(), expected_bias, tolerance(DType::F32, 300, 300));
  });
}

TEST_CASE("group offsets beyond the buffers are refused", "[kernels][grouped]") {
  for_each_backend([](Backend& backend) {
    const DeviceMatrix x(backend, Matrix(4, 2));
    const DeviceMatrix weight(backend, Matrix(6, 2));
    const DeviceMatrix y(backend, 4, 3);
    for (const std::vector<std::int32_t>& wrong :
         {std::vector<std::int32_t>{0, 2, 5}, {0, 3, 2}, {1, 2, 3}}) {
      const GroupedLinearForward op{.shape = {2, 4, 2, 3},
                                    .offsets = {nullptr, wrong.data()},
                                    .x = x.data(),
                                    .x_stride = 2,
                                    .weight = weight.data(),
                                    .y = y.data(),
                                    .y_stride = 3};
      CHECK_THROWS_AS(run(backend, op), InvariantError);
    }
  });
}

}  // namespace meshplan::kernels::test
