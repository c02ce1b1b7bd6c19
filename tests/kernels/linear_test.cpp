#include "reference/linear.hpp"

#include "kernels/cpu_backend.hpp"
#include "kernels/support.hpp"
#include "reference/pointwise.hpp"

namespace meshplan::kernels::test {

namespace {

const LinearShape kShapes[] = {{1, 1, 1},     {7, 33, 17}, {33, 64, 48},
                               {65, 48, 130}, {20, 24, 1}, {20, 1, 24}};

/// Sum over the reduced dimension of |a||b|, the magnitude in the error bound.
struct LinearCase {
  LinearShape shape;
  DType dtype;
  std::int64_t padding;
  Matrix x = random_in(dtype, shape.tokens, shape.in_features, 1);
  Matrix weight = random_in(dtype, shape.out_features, shape.in_features, 2);
  Matrix bias = random_in(dtype, 1, shape.out_features, 3);
  Matrix dy = random_in(dtype, shape.tokens, shape.out_features, 4);
};

Matrix activated(ActivationKind kind, Matrix z) {
  for (double& value : z.values) value = reference::activation(kind, value);
  return z;
}
/// dy act'(z), element by element.
Matrix through_activation(ActivationKind kind, Matrix dy, const Matrix& z) {
  for (std::size_t i = 0; i < dy.values.size(); ++i)
    dy.values[i] *= reference::activation_slope(kind, z.values[i]);
  return dy;
}

template <class Body>
void for_each_case(const Body& body) {
  for_each_backend([&](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
      if (!multiplies(backend, dtype)) continue;
      for (const LinearShape& shape : kShapes) {
        for (const std::int64_t padding : {0, 5}) {
          INFO(name_of(dtype) << " T " << shape.tokens << " in " << shape.in_features << " out "
                              << shape.out_features << " padding " << padding);
          body(backend, LinearCase{shape, dtype, padding});
        }
      }
    }
  });
}

}  // namespace

TEST_CASE("linear forward multiplies by the transposed weight and adds the bias",
          "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const DeviceMatrix x(backend, c.x, c.dtype, c.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype, c.padding);
    const DeviceMatrix bias(backend, c.bias, c.dtype);
    const auto magnitude = reference::linear(
        reference::absolute(c.x), reference::absolute(c.weight), reference::absolute(c.bias));
    const auto bound = [&](std::int64_t row, std::int64_t column) {
      return tolerance(c.dtype, c.shape.in_features, magnitude(row, column));
    };
    for (const bool with_bias : {false, true}) {
      const DeviceMatrix y(backend, c.shape.tokens, c.shape.out_features, c.dtype, c.padding);
      run(backend, LinearForward{.shape = c.shape,
                                 .dtype = c.dtype,
                                 .x = x.data(),
                                 .x_stride = x.stride(),
                                 .weight = weight.data(),
                                 .weight_stride = weight.stride(),
                                 .bias = with_bias ? bias.data() : nullptr,
                                 .y = y.data(),
                                 .y_stride = y.stride()});
      check_close(y.read(), reference::linear(c.x, c.weight, with_bias ? c.bias : Matrix{}), bound);
    }
  });
}

TEST_CASE("linear forward adds a residual to its product", "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const Matrix residual = random_in(c.dtype, c.shape.tokens, c.shape.out_features, 7);
    const DeviceMatrix x(backend, c.x, c.dtype, c.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype, c.padding);
    const DeviceMatrix bias(backend, c.bias, c.dtype);
    const DeviceMatrix added(backend, residual, c.dtype, c.padding);
    const auto magnitude = reference::linear(
        reference::absolute(c.x), reference::absolute(c.weight), reference::absolute(c.bias));
    for (const bool with_bias : {false, true}) {
      const DeviceMatrix y(backend, c.shape.tokens, c.shape.out_features, c.dtype, c.padding);
      run(backend, LinearForward{.shape = c.shape,
                                 .dtype = c.dtype,
                                 .x = x.data(),
                                 .x_stride = x.stride(),
                                 .weight = weight.data(),
                                 .weight_stride = weight.stride(),
                                 .bias = with_bias ? bias.data() : nullptr,
                                 .y = y.data(),
                                 .y_stride = y.stride(),
                                 .residual = added.data()});
      Matrix expected = reference::linear(c.x, c.weight, with_bias ? c.bias : Matrix{});
      for (std::size_t i = 0; i < expected.values.size(); ++i)
        expected.values[i] += residual.values[i];
      check_close(y.read(), expected, [&](std::int64_t row, std::int64_t column) {
        const double size = magnitude(row, column) + std::abs(residual(row, column));
        return 2 * tolerance(c.dtype, c.shape.in_features, size);  // z may be rounded before
      });
      CHECK(added.read().values == residual.values);
    }
  });
}

TEST_CASE("linear input gradient multiplies by the weight", "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const DeviceMatrix dy(backend, c.dy, c.dtype, c.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype, c.padding);
    const DeviceMatrix dx(backend, c.shape.tokens, c.shape.in_features, c.dtype, c.padding);
    run(backend, LinearInputGrad{.shape = c.shape,
                                 .dtype = c.dtype,
                                 .dy = dy.data(),
                                 .dy_stride = dy.stride(),
                                 .weight = weight.data(),
                                 .weight_stride = weight.stride(),
                                 .dx = dx.data(),
                                 .dx_stride = dx.stride()});
    const auto magnitude =
        reference::linear_input_grad(reference::absolute(c.dy), reference::absolute(c.weight));
    check_close(dx.read(), reference::linear_input_grad(c.dy, c.weight),
                [&](std::int64_t row, std::int64_t column) {
                  return tolerance(c.dtype, c.shape.out_features, magnitude(row, column));
                });
  });
}

TEST_CASE("linear weight gradient overwrites or accumulates in fp32", "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const DeviceMatrix dy(backend, c.dy, c.dtype, c.padding);
    const DeviceMatrix x(backend, c.x, c.dtype, c.padding);
    const Matrix expected = reference::linear_weight_grad(c.dy, c.x);
    const Matrix expected_bias = reference::column_sums(c.dy);
    const auto magnitude =
        reference::linear_weight_grad(reference::absolute(c.dy), reference::absolute(c.x));
    const auto bias_magnitude = reference::column_sums(reference::absolute(c.dy));
    const DeviceMatrix dweight(backend, c.shape.out_features, c.shape.in_features, DType::F32,
                               c.padding);
    const DeviceMatrix dbias(backend, 1, c.shape.out_features);
    for (const int runs : {1, 2}) {  // the second adds to the first
      run(backend, LinearWeightGrad{.shape = c.shape,
                                    .dtype = c.dtype,
                                    .dy = dy.data(),
                                    .dy_stride = dy.stride(),
                                    .x = x.data(),
                                    .x_stride = x.stride(),
                                    .dweight = dweight.floats(),
                                    .dweight_stride = dweight.stride(),
                                    .dbias = dbias.floats(),
                                    .accumulate = runs == 2});
      Matrix total = expected;
      for (double& value : total.values) value *= runs;
      check_close(dweight.read(), total, [&](std::int64_t row, std::int64_t column) {
        return runs * tolerance(DType::F32, c.shape.tokens, magnitude(row, column));
      });
      total = expected_bias;
      for (double& value : total.values) value *= runs;
      check_close(dbias.read(), total, [&](std::int64_t row, std::int64_t column) {
        return runs * tolerance(DType::F32, c.shape.tokens, bias_magnitude(row, column));
      });
    }
  });
}

TEST_CASE("linear forward applies an activation and keeps its input", "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const DeviceMatrix x(backend, c.x, c.dtype, c.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype, c.padding);
    const DeviceMatrix bias(backend, c.bias, c.dtype);
    const auto magnitude = reference::linear(
        reference::absolute(c.x), reference::absolute(c.weight), reference::absolute(c.bias));
    // z is rounded before the activation, whose slope is below 1.13, or (fused) after it
    const auto bound = [&](std::int64_t row, std::int64_t column) {
      return 2.5 * tolerance(c.dtype, c.shape.in_features, magnitude(row, column));
    };
    const Matrix z = reference::linear(c.x, c.weight, c.bias);
    for (const ActivationKind kind : {ActivationKind::GeluTanh, ActivationKind::Silu}) {
      for (const bool keep : {false, true}) {
        const DeviceMatrix y(backend, c.shape.tokens, c.shape.out_features, c.dtype, c.padding);
        const DeviceMatrix kept(backend, c.shape.tokens, c.shape.out_features, c.dtype, 3);
        run(backend, LinearForward{.shape = c.shape,
                                   .dtype = c.dtype,
                                   .x = x.data(),
                                   .x_stride = x.stride(),
                                   .weight = weight.data(),
                                   .weight_stride = weight.stride(),
                                   .bias = bias.data(),
                                   .y = y.data(),
                                   .y_stride = y.stride(),
                                   .activation = kind,
                                   .pre_activation = keep ? kept.data() : nullptr,
                                   .pre_activation_stride = kept.stride()});
        check_close(y.read(), activated(kind, z), bound);
        if (keep) check_close(kept.read(), z, bound);
      }
    }
  });
}

TEST_CASE("linear input gradient goes on through the activation before", "[kernels][linear]") {
  for_each_case([](Backend& backend, const LinearCase& c) {
    const Matrix z = random_in(c.dtype, c.shape.tokens, c.shape.in_features, 5);
    const DeviceMatrix dy(backend, c.dy, c.dtype, c.padding);
    const DeviceMatrix weight(backend, c.weight, c.dtype, c.padding);
    const DeviceMatrix pre_activation(backend, z, c.dtype, 3);
    const auto magnitude =
        reference::linear_input_grad(reference::absolute(c.dy), reference::absolute(c.weight));
    for (const ActivationKind kind : {ActivationKind::GeluTanh, ActivationKind::Silu}) {
      const DeviceMatrix dx(backend, c.shape.tokens, c.shape.in_features, c.dtype, c.padding);
      run(backend, LinearInputGrad{.shape = c.shape,
                                   .dtype = c.dtype,
                                   .dy = dy.data(),
                                   .dy_stride = dy.stride(),
                                   .weight = weight.data(),
                                   .weight_stride = weight.stride(),
                                   .dx = dx.data(),
                                   .dx_stride = dx.stride(),
                                   .activation = kind,
                                   .pre_activation = pre_activation.data(),
                                   .pre_activation_stride = pre_activation.stride()});
      check_close(dx.read(),
                  through_activation(kind, reference::linear_input_grad(c.dy, c.weight), z),
                  [&](std::int64_t row, std::int64_t column) {
                    return 2.5 * tolerance(c.dtype, c.shape.out_features, magnitude(row, column));
                  });
    }
  });
}

TEST_CASE("linear products give the same bits twice", "[kernels][linear]") {
  for_each_backend([](Backend& backend) {
    const LinearCase c{{65, 200, 130}, DType::F32, 0};
    const DeviceMatrix dy(backend, c.dy);
    const DeviceMatrix x(backend, c.x);
    const LinearWeightGrad op{.shape = c.shape,
                              .dy = dy.data(),
                              .dy_stride = dy.stride(),
                              .x = x.data(),
                              .x_stride = x.stride(),
                              .dweight_stride = c.shape.in_features};
    const DeviceMatrix first(backend, c.shape.out_features, c.shape.in_features);
    const DeviceMatrix second(backend, c.shape.out_features, c.shape.in_features);
    LinearWeightGrad run_op = op;
    run_op.dweight = first.floats();
    run(backend, run_op);
    run_op.dweight = second.floats();
    run(backend, run_op);
    CHECK(first.bits() == second.bits());
  });
}

TEST_CASE("a weight gradient over no tokens is zero", "[kernels][linear]") {
  for_each_backend([](Backend& backend) {
    const DeviceMatrix dweight(backend, 3, 5);
    const DeviceMatrix dbias(backend, 1, 3);
    run(backend, LinearWeightGrad{.shape = {0, 5, 3},
                                  .dweight = dweight.floats(),
                                  .dweight_stride = 5,
                                  .dbias = dbias.floats()});
    check_close(dweight.read(), Matrix(3, 5), 0.0);
    check_close(dbias.read(), Matrix(1, 3), 0.0);
  });
}

TEST_CASE("an operation with too little scratch is refused", "[kernels][attention]") {
  for_each_backend([](Backend& backend) {
    const DeviceMatrix x(backend, random_in(DType::F32, 64, 96, 1));
    const DeviceMatrix dx(backend, 64, 96);
    const DeviceMatrix y(backend, random_in(DType::F32, 64, 32, 2));
    const DeviceMatrix lse(backend, random_in(DType::F32, 64, 4, 3));
    const AttentionBackward op{.shape = {.num_sequences = 1,
                                         .query_len = 64,
                                         .key_len = 64,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_size = 8},
                               .q = x.data(),
                               .q_stride = 96,
                               .k = x.floats() + 32,
                               .v = x.floats() + 64,
                               .kv_stride = 96,
                               .o = y.data(),
                               .o_stride = 32,
                               .output_grad = y.data(),
                               .lse = lse.floats(),
                               .dq = dx.data(),
                               .dq_stride = 96,
                               .dk = dx.floats() + 32,
                               .dv = dx.floats() + 64,
                               .dkv_stride = 96};
    backend.set_scratch(nullptr, 0);
    CHECK_THROWS_AS(backend.run(op), InvariantError);
  });
}

}  // namespace meshplan::kernels::test
