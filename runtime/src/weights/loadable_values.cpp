#include "weights/loadable_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <vector>

#include "core/error.hpp"
#include "runtime/weights/tensor_box.hpp"
#include "weights/safetensors.hpp"

namespace meshplan::runtime {
namespace {

/// The least magnitude that rounds to infinity: half a unit above the largest number.
float least_overflow(DType dtype) {
  switch (dtype) {
    case DType::F32:
      return std::numeric_limits<float>::infinity();
    case DType::F16:
      return 65520.0F;
    case DType::BF16:
      return std::bit_cast<float>(0x7f7f8000U);
    default:
      throw InvariantError("weights are F32, F16 or BF16");
  }
}

/// Numbers of a tensor of any dtype that weights are read from, a part at a time.
class TensorReader {
 public:
  explicit TensorReader(const SafeTensor& tensor) : tensor_(tensor), dtype_(tensor.dtype()) {}

  std::int64_t size() const { return std::ssize(tensor_.data) / size_of(dtype_); }

  /// Elements [begin, begin + count), rounded to fp32. Valid until the next call.
  std::span<const float> read(std::int64_t begin, std::int64_t count) {
    values_.resize(static_cast<std::size_t>(count));
    const TensorBox box{{0}, {count}};
    copy_overlap({.data = tensor_.data.data() + begin * size_of(dtype_),
                  .dtype = dtype_,
                  .box = box,
                  .strides = {1}},
                 {.data = values_.data(), .box = box, .strides = {1}});
    return values_;
  }

  /// As it is in the file: fp64 may hold what fp32 does not.
  double at(std::int64_t index) {
    if (dtype_ != DType::F64) return static_cast<double>(read(index, 1).front());
    double value = 0;
    std::memcpy(&value, tensor_.data.data() + index * size_of(dtype_), sizeof value);
    return value;
  }

 private:
  const SafeTensor& tensor_;
  DType dtype_;
  std::vector<float> values_;
};

/// Of element `flat` in row-major order.
std::vector<std::int64_t> index_of(std::int64_t flat, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

}  // namespace

bool all_finite(std::span<const float> values, DType dtype) {
  const float bound = least_overflow(dtype);
  int broken = 0;  // no early exit: the loop is vectorized
  for (const float value : values) broken |= static_cast<int>(!(std::abs(value) < bound));
  return broken == 0;
}

std::optional<std::string> describe_not_finite(const std::string& file, const std::string& tensor,
                                               const SafeTensor& data, DType dtype) {
  constexpr std::int64_t kPart = std::int64_t{1} << 16;
  const float bound = least_overflow(dtype);
  TensorReader reader(data);
  std::int64_t first = -1, count = 0;
  for (std::int64_t begin = 0; begin < reader.size(); begin += kPart) {
    const auto part = reader.read(begin, std::min(kPart, reader.size() - begin));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (std::abs(part[i]) < bound) continue;
      if (count++ == 0) first = begin + static_cast<std::int64_t>(i);
    }
  }
  if (count == 0) return std::nullopt;
  return fmt::format("{}: {}: {} of {} values {} not finite in {}, the first at [{}]: {:g}", file,
                     tensor, count, reader.size(), count == 1 ? "is" : "are", name_of(dtype),
                     fmt::join(index_of(first, data.shape), ", "), reader.at(first));
}

}  // namespace meshplan::runtime
