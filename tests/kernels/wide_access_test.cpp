// Kernels may read aligned operands in wide pieces: where elements are independent, an operand that
// starts in the middle of a piece gives the same bits.
#include "kernels/support.hpp"

namespace meshplan::kernels::test {

namespace {

constexpr std::int64_t kCount = 1003;

/// out(offset): the results of an operation whose operands all start `offset` elements after an
/// aligned address.
template <class Run>
void check_same_bits(const Run& out) {
  const Matrix aligned = out(0);
  for (const std::int64_t offset : {1, 3}) CHECK(out(offset).values == aligned.values);
}

/// A row whose first `offset` elements are not part of the operand.
Matrix behind(const Matrix& values, std::int64_t offset) {
  Matrix result(1, values.columns + offset);
  for (std::int64_t i = 0; i < values.columns; ++i) result(0, offset + i) = values(0, i);
  return result;
}

Matrix without_offset(const Matrix& values, std::int64_t offset) {
  Matrix result(1, values.columns - offset);
  for (std::int64_t i = 0; i < result.columns; ++i) result(0, i) = values(0, offset + i);
  return result;
}

void* shifted(const DeviceMatrix& matrix, DType dtype, std::int64_t offset) {
  return static_cast<char*>(matrix.data()) + offset * size_of(dtype);
}

}  // namespace

TEST_CASE("pointwise operations do not depend on alignment", "[kernels][wide_access]") {
  for_each_backend([](Backend& backend) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      const Matrix a = random_in(dtype, 1, kCount, 1);
      const Matrix b = random_in(dtype, 1, kCount, 2);
      check_same_bits([&](std::int64_t offset) {
        const DeviceMatrix x(backend, behind(a, offset), dtype);
        const DeviceMatrix y(backend, behind(b, offset), dtype);
        const auto at = [&](const DeviceMatrix& matrix) { return shifted(matrix, dtype, offset); };
        run(backend, Add{kCount, dtype, at(x), at(y), at(x)});
        run(backend, Scale{kCount, dtype, 1.5F, at(x), at(x)});
        run(backend, Accumulate{kCount, dtype, at(x), dtype, at(y)});
        run(backend, ActivationForward{ActivationKind::Silu, kCount, dtype, at(x), at(x)});
        run(backend, ActivationBackward{ActivationKind::Gelu, kCount, dtype, at(y), at(x), at(x)});
        return without_offset(x.read(), offset);
      });
    }
  });
}

TEST_CASE("optimizer steps do not depend on alignment", "[kernels][wide_access]") {
  for_each_backend([](Backend& backend) {
    const Matrix start = random_in(DType::F32, 1, kCount, 1);
    const Matrix grads = random_in(DType::F32, 1, kCount, 2);
    check_same_bits([&](std::int64_t offset) {
      const DeviceMatrix master(backend, behind(start, offset));
      const DeviceMatrix gradient(backend, behind(grads, offset));
      const DeviceMatrix m(backend, behind(Matrix(1, kCount), offset));
      const DeviceMatrix v(backend, behind(Matrix(1, kCount), offset));
      const DeviceMatrix copy(backend, 1, kCount + offset, DType::BF16);
      run(backend, AdamStep{.count = kCount,
                            .step = 3,
                            .learning_rate = 0.01F,
                            .weight_decay = 0.1F,
                            .master = master.floats() + offset,
                            .m = m.floats() + offset,
                            .v = v.floats() + offset,
                            .gradient = gradient.floats() + offset,
                            .weight = shifted(copy, DType::BF16, offset),
                            .weight_dtype = DType::BF16});
      run(backend, SgdStep{.count = kCount,
                           .learning_rate = 0.01F,
                           .momentum = 0.9F,
                           .master = master.floats() + offset,
                           .velocity = m.floats() + offset,
                           .gradient = gradient.floats() + offset});
      Matrix result = without_offset(master.read(), offset);
      const Matrix copied = without_offset(copy.read(), offset);
      result.values.insert(result.values.end(), copied.values.begin(), copied.values.end());
      return result;
    });
  });
}

}  // namespace meshplan::kernels::test
