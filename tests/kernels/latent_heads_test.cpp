// latent_heads and sigmoid_gate
#include "kernels/attention/latent_heads.hpp"

#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr LatentShape kShape{
    .tokens = 5, .heads = 3, .nope_size = 6, .rope_size = 4, .value_size = 7};
constexpr int kHead = 10;    // elements of a query or key head
constexpr int kOwn = 6 + 7;  // of a head of kv

/// By definition, from all three inputs side by side: [q | kv | k_rope].
Matrix side_by_side(const Matrix& inputs) {
  Matrix qkv(kShape.tokens, kShape.columns());
  const std::int64_t kv = kShape.query_columns();
  const std::int64_t shared = kv + kShape.kv_columns();
  for (std::int64_t t = 0; t < kShape.tokens; ++t)
    for (int h = 0; h < kShape.heads; ++h) {
      for (int e = 0; e < kHead; ++e) {
        qkv(t, h * kHead + e) = inputs(t, h * kHead + e);
        qkv(t, kv + h * kHead + e) = e < kShape.nope_size
                                         ? inputs(t, kv + h * kOwn + e)
                                         : inputs(t, shared + e - kShape.nope_size);
      }
      for (int e = 0; e < kShape.value_size; ++e)
        qkv(t, 2 * kv + h * kShape.value_size + e) =
            inputs(t, kv + h * kOwn + kShape.nope_size + e);
    }
  return qkv;
}

Matrix all_inputs(DType dtype) {
  return random_in(dtype, kShape.tokens,
                   kShape.query_columns() + kShape.kv_columns() + kShape.rope_size, 1);
}

}  // namespace

TEST_CASE("queries, keys and values of latent attention lie side by side", "[kernels][latent]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Matrix inputs = all_inputs(dtype);
      const std::int64_t kv = kShape.query_columns();
      const DeviceMatrix q(backend, reference::slice_columns(inputs, 0, kv), dtype);
      const DeviceMatrix own(backend, reference::slice_columns(inputs, kv, kShape.kv_columns()),
                             dtype);
      const DeviceMatrix shared(
          backend, reference::slice_columns(inputs, kv + kShape.kv_columns(), kShape.rope_size),
          dtype);
      const DeviceMatrix qkv(backend, kShape.tokens, kShape.columns(), dtype);
      run(backend, LatentHeadsForward{.shape = kShape,
                                      .dtype = dtype,
                                      .q = q.data(),
                                      .kv = own.data(),
                                      .k_rope = shared.data(),
                                      .qkv = qkv.data()});
      check_close(qkv.read(), side_by_side(inputs), 0.0);
    }
  });
}

TEST_CASE("latent keys and values alone are those beside queries", "[kernels][latent]") {
  for_each_backend([](Backend& backend) {
    LatentShape shape = kShape;
    shape.queries = false;
    const Matrix inputs = all_inputs(DType::F32);
    const std::int64_t queries = kShape.query_columns();
    const DeviceMatrix own(backend, reference::slice_columns(inputs, queries, shape.kv_columns()));
    const DeviceMatrix shared(
        backend, reference::slice_columns(inputs, queries + shape.kv_columns(), shape.rope_size));
    const DeviceMatrix kv(backend, shape.tokens, shape.columns());
    run(backend, LatentHeadsForward{
                     .shape = shape, .kv = own.data(), .k_rope = shared.data(), .qkv = kv.data()});
    check_close(kv.read(), reference::slice_columns(side_by_side(inputs), queries, shape.columns()),
                0.0);
    const Matrix gradient = random_in(DType::F32, shape.tokens, kShape.columns(), 2);
    const DeviceMatrix whole(backend, gradient);
    const DeviceMatrix part(backend, reference::slice_columns(gradient, queries, shape.columns()));
    const DeviceMatrix dq(backend, shape.tokens, queries);
    const DeviceMatrix dkv(backend, shape.tokens, shape.kv_columns());
    const DeviceMatrix dk_rope(backend, shape.tokens, shape.rope_size);
    run(backend, LatentHeadsBackward{.shape = kShape,
                                     .dqkv = whole.data(),
                                     .dq = dq.data(),
                                     .dkv = dkv.data(),
                                     .dk_rope = dk_rope.data()});
    const Matrix expected_dkv = dkv.read(), expected_dk_rope = dk_rope.read();
    const DeviceMatrix own_dkv(backend, shape.tokens, shape.kv_columns());
    const DeviceMatrix own_dk_rope(backend, shape.tokens, shape.rope_size);
    run(backend, LatentHeadsBackward{.shape = shape,
                                     .dqkv = part.data(),
                                     .dkv = own_dkv.data(),
                                     .dk_rope = own_dk_rope.data()});
    check_close(own_dkv.read(), expected_dkv, 0.0);
    check_close(own_dk_rope.read(), expected_dk_rope, 0.0);
  });
}

TEST_CASE("the gradient of latent heads agrees with finite differences", "[kernels][latent]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Matrix dqkv = random_in(dtype, kShape.tokens, kShape.columns(), 2);
      const Matrix expected =
          reference::finite_difference(side_by_side, all_inputs(DType::F32), dqkv);
      const DeviceMatrix device_dqkv(backend, dqkv, dtype);
      const DeviceMatrix dq(backend, kShape.tokens, kShape.query_columns(), dtype);
      const DeviceMatrix dkv(backend, kShape.tokens, kShape.kv_columns(), dtype);
      const DeviceMatrix dk_rope(backend, kShape.tokens, kShape.rope_size, dtype);
      run(backend, LatentHeadsBackward{.shape = kShape,
                                       .dtype = dtype,
                                       .dqkv = device_dqkv.data(),
                                       .dq = dq.data(),
                                       .dkv = dkv.data(),
                                       .dk_rope = dk_rope.data()});
      const std::int64_t kv = kShape.query_columns();
      check_close(dq.read(), reference::slice_columns(expected, 0, kv), 1e-8);
      check_close(dkv.read(), reference::slice_columns(expected, kv, kShape.kv_columns()), 1e-8);
      check_close(dk_rope.read(),
                  reference::slice_columns(expected, kv + kShape.kv_columns(), kShape.rope_size),
                  tolerance(dtype, kShape.heads, kShape.heads) + 1e-8);
    }
  });
}

TEST_CASE("a sigmoid gate scales rows or elements, and its gradient agrees with differences",
          "[kernels][gate]") {
  constexpr std::int64_t kTokens = 6;
  constexpr std::int64_t kSize = 21;
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const std::int64_t gates : {std::int64_t{1}, kSize}) {
        INFO(name_of(dtype) << " gates " << gates);
        const auto gated = [gates](const Matrix& x, const Matrix& gate) {
          Matrix y(kTokens, kSize);
          for (std::int64_t t = 0; t < kTokens; ++t)
            for (std::int64_t i = 0; i < kSize; ++i)
              y(t, i) = x(t, i) / (1.0 + std::exp(-gate(t, gates == 1 ? 0 : i)));
          return y;
        };
        const Matrix x = random_in(dtype, kTokens, kSize, 1);
        const Matrix gate = random_in(dtype, kTokens, gates, 2, 4.0);
        const Matrix dy = random_in(dtype, kTokens, kSize, 3);
        const DeviceMatrix device_x(backend, x, dtype);
        const DeviceMatrix device_gate(backend, gate, dtype);
        const DeviceMatrix device_dy(backend, dy, dtype);
        const DeviceMatrix y(backend, kTokens, kSize, dtype);
        const DeviceMatrix dx(backend, kTokens, kSize, dtype);
        const DeviceMatrix dgate(backend, kTokens, gates, dtype);
        run(backend, SigmoidGateForward{kTokens, kSize, gates, dtype, device_x.data(),
                                        device_gate.data(), y.data()});
        run(backend,
            SigmoidGateBackward{kTokens, kSize, gates, dtype, device_dy.data(), device_x.data(),
                                device_gate.data(), dx.data(), dgate.data()});
        check_close(y.read(), gated(x, gate), tolerance(dtype, 8, 1.0));
        check_close(dx.read(),
                    reference::finite_difference(
                        [&](const Matrix& moved) { return gated(moved, gate); }, x, dy),
                    tolerance(dtype, 8, 1.0) + 1e-8);
        check_close(dgate.read(),
                    reference::finite_difference(
                        [&](const Matrix& moved) { return gated(x, moved); }, gate, dy),
                    tolerance(dtype, kSize, gates == 1 ? 5.0 : 0.25) + 1e-8);
      }
  });
}

}  // namespace meshplan::kernels::test
