#include "kernels/mixers/gated_rms_norm.hpp"

#include "kernels/support.hpp"
#include "reference/mixers.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr double kEpsilon = 1e-5;

struct Case {
  DType dtype;
  GatedRmsNormShape shape;
  bool padded;  // rows are not aligned for wide accesses
  Matrix x = random_in(dtype, shape.tokens, shape.columns(), 1, 3.0);
  Matrix z = random_in(dtype, shape.tokens, shape.columns(), 2, 3.0);
  Matrix weight = random_in(dtype, 1, shape.weights(), 3);
  Matrix dy = random_in(dtype, shape.tokens, shape.columns(), 4);

  Matrix forward(const Matrix& at_x, const Matrix& at_z, const Matrix& at_weight) const {
    return reference::gated_rms_norm(shape, at_x, at_z, at_weight, kEpsilon);
  }
};

template <class Body>
void for_each_case(const Body& body) {
  const std::vector<GatedRmsNormShape> shapes = {{.tokens = 1, .groups = 1, .size = 8},
                                                 {.tokens = 7, .groups = 4, .size = 16},
                                                 {.tokens = 23, .groups = 3, .size = 20},
                                                 {.tokens = 2, .groups = 2, .size = 1030}};
  for (const DType dtype : {DType::F32, DType::BF16})
    for (GatedRmsNormShape shape : shapes)
      for (const GateOrder order : {GateOrder::NormThenGate, GateOrder::GateThenNorm})
        for (const bool shared : {true, false}) {
          shape.order = order;
          shape.shared_weight = shared;
          INFO(name_of(dtype) << " T " << shape.tokens << " G " << shape.groups << " E "
                              << shape.size << (shared ? " shared" : "")
                              << (order == GateOrder::GateThenNorm ? " gate first" : ""));
          body(Case{dtype, shape, shared});
        }
}

struct Result {
  Matrix y, inv_rms, dx, dz, dweight;
};

/// @param before  what the weight's gradient holds; it accumulates if it is given
/// @param inputs, weights  which gradients are computed
Result run_both(Backend& backend, const Case& c, std::optional<double> before = std::nullopt,
                bool inputs = true, bool weights = true) {
  const GatedRmsNormShape& s = c.shape;
  const DeviceMatrix x(backend, c.x, c.dtype, c.padded ? 3 : 0);
  const DeviceMatrix z(backend, c.z, c.dtype, c.padded ? 1 : 0);
  const DeviceMatrix weight(backend, c.weight, c.dtype);
  const DeviceMatrix dy(backend, c.dy, c.dtype, c.padded ? 2 : 0);
  const DeviceMatrix y(backend, s.tokens, s.columns(), c.dtype, c.padded ? 5 : 0);
  const DeviceMatrix dx(backend, s.tokens, s.columns(), c.dtype, c.padded ? 1 : 0);
  const DeviceMatrix dz(backend, s.tokens, s.columns(), c.dtype, c.padded ? 3 : 0);
  const DeviceMatrix inv_rms(backend, s.tokens, s.groups);
  Matrix start(1, s.weights());
  for (double& value : start.values) value = before.value_or(99.0);
  const DeviceMatrix dweight(backend, start);
  run(backend, GatedRmsNormForward{.shape = s,
                                   .epsilon = static_cast<float>(kEpsilon),
                                   .dtype = c.dtype,
                                   .x = x.data(),
                                   .x_stride = x.stride(),
                                   .z = z.data(),
                                   .z_stride = z.stride(),
                                   .weight = weight.data(),
                                   .y = y.data(),
                                   .y_stride = y.stride(),
                                   .inv_rms = inv_rms.floats()});
  run(backend, GatedRmsNormBackward{.shape = s,
                                    .dtype = c.dtype,
                                    .dy = dy.data(),
                                    .dy_stride = dy.stride(),
                                    .x = x.data(),
                                    .x_stride = x.stride(),
                                    .z = z.data(),
                                    .z_stride = z.stride(),
                                    .weight = weight.data(),
                                    .inv_rms = inv_rms.floats(),
                                    .dx = inputs ? dx.data() : nullptr,
                                    .dx_stride = dx.stride(),
                                    .dz = inputs ? dz.data() : nullptr,
                                    .dz_stride = dz.stride(),
                                    .dweight = weights ? dweight.floats() : nullptr,
                                    .accumulate = before.has_value()});
  return {y.read(), inv_rms.read(), dx.read(), dz.read(), dweight.read()};
}

/// |n| <= sqrt(E), |silu(z)| <= 3
double bound_of(const Case& c) {
  return tolerance(c.dtype, c.shape.size, 12.0 * std::sqrt(static_cast<double>(c.shape.size))) +
         1e-7;
}
double weight_bound(const Case& c) {
  const std::int64_t terms = c.shape.tokens * (c.shape.shared_weight ? c.shape.groups : 1);
  return tolerance(DType::F32, terms + c.shape.size, 4.0 + 9.0 * static_cast<double>(terms)) + 1e-6;
}

}  // namespace

TEST_CASE("a gated norm is the norm of each group, gated after or before", "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    const Matrix expected = c.forward(c.x, c.z, c.weight);
    for_each_backend([&](Backend& backend) {
      const Result result = run_both(backend, c);
      check_close(result.y, expected, bound_of(c));
      for (const double inv_rms : result.inv_rms.values) CHECK((inv_rms > 0.0 && inv_rms < 400.0));
    });
  });
}

TEST_CASE("the gradients of a gated norm agree with finite differences", "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    if (c.shape.size > 1000) return;  // differences take the square of it
    const Matrix dx = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(at, c.z, c.weight); }, c.x, c.dy);
    const Matrix dz = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(c.x, at, c.weight); }, c.z, c.dy);
    const Matrix dweight = reference::finite_difference(
        [&](const Matrix& at) { return c.forward(c.x, c.z, at); }, c.weight, c.dy);
    for_each_backend([&](Backend& backend) {
      const Result result = run_both(backend, c);
      check_close(result.dx, dx, bound_of(c));
      check_close(result.dz, dz, bound_of(c));
      check_close(result.dweight, dweight, weight_bound(c));
    });
  });
}

TEST_CASE("gradients of a gated norm repeat to the bit, alone and together", "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    for_each_backend([&](Backend& backend) {
      const Result both = run_both(backend, c);
      const Result inputs = run_both(backend, c, std::nullopt, true, false);
      const Result weights = run_both(backend, c, std::nullopt, false, true);
      CHECK(inputs.dx.values == both.dx.values);
      CHECK(inputs.dz.values == both.dz.values);
      CHECK(weights.dweight.values == both.dweight.values);
      CHECK(run_both(backend, c).dweight.values == both.dweight.values);
    });
  });
}

TEST_CASE("the weight's gradient of a gated norm accumulates", "[kernels][mixers]") {
  for_each_case([](const Case& c) {
    for_each_backend([&](Backend& backend) {
      Matrix expected = run_both(backend, c).dweight;
      for (double& value : expected.values) value += 2.0;
      check_close(run_both(backend, c, 2.0).dweight, expected, weight_bound(c));
    });
  });
}

}  // namespace meshplan::kernels::test
