// What the kernel tests share: every implementation that this machine can run, operands in device
// memory with guarded padding, and tolerances.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "core/error.hpp"
#include "kernels/backend.hpp"
#include "kernels/backends.hpp"
#include "kernels/cpu_backend.hpp"
#include "reference/matrix.hpp"

namespace meshplan::kernels::test {

using reference::Matrix;

constexpr double kEps32 = 0x1p-24;   // unit roundoff of fp32
constexpr double kEpsBf16 = 0x1p-8;  // and of bf16
constexpr double kEpsF16 = 0x1p-11;  // and of fp16

/// Unit roundoff of what a kernel stores; 0 for fp32, whose rounding counts with the sum's.
inline double stored_roundoff(DType dtype) {
  return dtype == DType::BF16 ? kEpsBf16 : dtype == DType::F16 ? kEpsF16 : 0.0;
}

/// Error bound of a sum of `length` products whose absolute values sum to `magnitude`, computed in
/// fp32 and stored in `dtype`: gamma_n = n eps (Higham 2002, section 3.1) with 8 more operations.
inline double tolerance(DType dtype, std::int64_t length, double magnitude) {
  return magnitude * (static_cast<double>(length + 8) * kEps32 + stored_roundoff(dtype));
}

inline std::uint16_t bf16_of(float value) {  // round to nearest even by comparing both neighbours
  const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const auto high = static_cast<std::uint16_t>(low + 1);
  const auto widen = [](std::uint16_t bits) {
    return double{std::bit_cast<float>(std::uint32_t{bits} << 16)};
  };
  const double below = std::fabs(double{value} - widen(low));
  const double above = std::fabs(widen(high) - double{value});
  if (below == above) return low % 2 == 0 ? low : high;
  return below < above ? low : high;
}

/// Bits of a 16-bit type. GCC's _Float16 rounds to nearest even.
inline std::uint16_t half_of(float value, DType dtype) {
  return dtype == DType::F16 ? std::bit_cast<std::uint16_t>(static_cast<_Float16>(value))
                             : bf16_of(value);
}
inline float value_of_half(std::uint16_t bits, DType dtype) {
  return dtype == DType::F16 ? static_cast<float>(std::bit_cast<_Float16>(bits))
                             : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

inline double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  if (dtype == DType::F32) return double{single};
  return double{value_of_half(half_of(single, dtype), dtype)};
}

/// Random values that `dtype` holds exactly, so that kernel and reference start from the same
/// numbers.
inline Matrix random_in(DType dtype, std::int64_t rows, std::int64_t columns, std::uint32_t seed,
                        double scale = 1.0) {
  Matrix result = reference::random_matrix(rows, columns, seed, scale);
  for (double& value : result.values) value = rounded(value, dtype);
  return result;
}

/// A block of a backend's memory.
class DeviceMemory {
 public:
  DeviceMemory(Backend& backend, std::int64_t bytes)
      : backend_(&backend), data_(backend.allocate(bytes)) {}
  ~DeviceMemory() { backend_->free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  Backend* backend_;
  void* data_;
};

/// Values of any trivially copyable type in device memory.
template <class T>
class DeviceVector {
 public:
  DeviceVector(Backend& backend, const std::vector<T>& values)
      : backend_(&backend), size_(values.size()), memory_(backend, bytes()) {
    backend.copy_to_device(memory_.data(), values.data(), bytes());
  }
  DeviceVector(Backend& backend, std::size_t size, T value = {})
      : DeviceVector(backend, std::vector<T>(size, value)) {}
  T* data() const { return static_cast<T*>(memory_.data()); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    backend_->synchronize();
    backend_->copy_to_host(values.data(), memory_.data(), bytes());
    return values;
  }

 private:
  std::int64_t bytes() const { return static_cast<std::int64_t>(size_ * sizeof(T)); }
  Backend* backend_;
  std::size_t size_;
  DeviceMemory memory_;
};

/// A matrix in device memory whose rows are `padding` elements further apart than they are long.
/// The padding holds a mark; `read` checks that nothing wrote there.
class DeviceMatrix {
 public:
  DeviceMatrix(Backend& backend, const Matrix& values, DType dtype = DType::F32,
               std::int64_t padding = 0)
      : backend_(&backend),
        dtype_(dtype),
        rows_(values.rows),
        columns_(values.columns),
        stride_(values.columns + padding),
        memory_(backend, values.rows * stride_ * size_of(dtype)) {
    std::vector<float> single(static_cast<std::size_t>(rows_ * stride_), kMark);
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t column = 0; column < columns_; ++column)
        single[static_cast<std::size_t>(row * stride_ + column)] =
            static_cast<float>(values(row, column));
    if (dtype == DType::F32) {
      backend.copy_to_device(memory_.data(), single.data(), bytes());
    } else {
      std::vector<std::uint16_t> half;
      for (const float value : single) half.push_back(half_of(value, dtype));
      backend.copy_to_device(memory_.data(), half.data(), bytes());
    }
  }
  /// Not yet computed: filled with another mark, so that a missing write shows.
  DeviceMatrix(Backend& backend, std::int64_t rows, std::int64_t columns, DType dtype = DType::F32,
               std::int64_t padding = 0)
      : DeviceMatrix(backend, unwritten(rows, columns), dtype, padding) {}

  void* data() const { return memory_.data(); }
  float* floats() const { return static_cast<float*>(memory_.data()); }
  std::int64_t stride() const { return stride_; }

  /// Every byte, padding included.
  std::vector<std::uint8_t> bits() const {
    std::vector<std::uint8_t> result(static_cast<std::size_t>(bytes()));
    backend_->synchronize();
    backend_->copy_to_host(result.data(), memory_.data(), bytes());
    return result;
  }

  Matrix read() const {
    const std::vector<std::uint8_t> raw = bits();
    Matrix result(rows_, columns_);
    bool padding_is_intact = true;
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t column = 0; column < stride_; ++column) {
        const float value = element(raw, row * stride_ + column);
        if (column < columns_)
          result(row, column) = double{value};
        else
          padding_is_intact = padding_is_intact && value == kMark;
      }
    }
    CHECK(padding_is_intact);
    return result;
  }

 private:
  static constexpr float kMark = 1024.0F;
  static Matrix unwritten(std::int64_t rows, std::int64_t columns) {
    Matrix result(rows, columns);
    for (double& value : result.values) value = 4096.0;
    return result;
  }
  std::int64_t bytes() const { return rows_ * stride_ * size_of(dtype_); }
  float element(const std::vector<std::uint8_t>& raw, std::int64_t index) const {
    const auto at = static_cast<std::size_t>(index * size_of(dtype_));
    if (dtype_ == DType::F32) {
      float value = 0;
      std::memcpy(&value, &raw[at], 4);
      return value;
    }
    std::uint16_t half = 0;
    std::memcpy(&half, &raw[at], 2);
    return value_of_half(half, dtype_);
  }

  Backend* backend_;
  DType dtype_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t stride_;
  DeviceMemory memory_;
};

/// Padding that keeps rows of a multiple of 8 elements aligned to 16 bytes, as GPUs want them, and
/// leaves all others unaligned.
inline std::int64_t row_padding(std::int64_t size, std::int64_t otherwise) {
  return size % 8 == 0 ? 8 : otherwise;
}

/// Runs `op` with exactly the scratch that it asks for.
inline void run(Backend& backend, const Operation& op) {
  const std::int64_t bytes = backend.scratch_bytes(op);
  const DeviceMemory scratch(backend, bytes);
  backend.set_scratch(scratch.data(), bytes);
  backend.run(op);
  backend.synchronize();
  backend.set_scratch(nullptr, 0);
}

/// Calls body(backend) for every implementation to be tested.
template <class Body>
void for_each_backend(const Body& body) {
  for (const auto& backend : tested_backends()) {
    INFO(backend->name());
    body(*backend);
  }
}

inline bool is_cpu(Backend& backend) {
  return backend.name().find("cpu") != std::string::npos;
}

/// oneDNN multiplies bf16 only where the CPU has AVX-512 (fp16 is multiplied in fp32); the emulated
/// GPU does not multiply fp16.
inline bool multiplies(Backend& backend, DType dtype) {
  if (dtype == DType::F16) return backend.name().find("emulator") == std::string::npos;
  return dtype == DType::F32 || best_cpu_isa() == CpuIsa::Avx512 || !is_cpu(backend);
}

/// One check for the whole matrix; the worst element is named. `bound(row, column)` is the error
/// allowed.
template <class Bound>
void check_close(const Matrix& actual, const Matrix& expected, const Bound& bound) {
  REQUIRE(actual.values.size() == expected.values.size());
  double worst = 0.0;
  std::int64_t worst_row = 0;
  std::int64_t worst_column = 0;
  for (std::int64_t row = 0; row < actual.rows; ++row) {
    for (std::int64_t column = 0; column < actual.columns; ++column) {
      const double a = actual(row, column);
      const double e = expected(row, column);
      if (a == e) continue;  // also equal infinities
      const double error = std::fabs(a - e) / bound(row, column);
      if (!(error <= worst)) {  // also NaN
        worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
        worst_row = row;
        worst_column = column;
      }
    }
  }
  INFO("worst element (" << worst_row << ", " << worst_column
                         << "): " << actual(worst_row, worst_column) << ", expected "
                         << expected(worst_row, worst_column));
  CHECK(worst <= 1.0);
}

inline void check_close(const Matrix& actual, const Matrix& expected, double bound) {
  check_close(actual, expected, [bound](std::int64_t, std::int64_t) { return bound; });
}

}  // namespace meshplan::kernels::test
