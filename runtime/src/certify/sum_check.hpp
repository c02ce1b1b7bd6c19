// Can these inputs add up to that result?
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace meshplan::runtime {

/// A part of a reduction: what each rank gave, in the order of the ranks, and the result.
struct SumPart {
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  std::int64_t count = 0;
  std::vector<const std::byte*> given;
  const std::byte* result = nullptr;
};

struct OddElement {
  std::int64_t index = 0;
  double value = 0;
  double expected = 0;
};

/// The first element that no order of adding can give.
///
/// One or two ranks have one order: the result is that of reduce_in_order(), bit by bit. So is a
/// minimum, a maximum or a reduction of integers of any number of ranks, but for the sign of a
/// zero. Else |result - sum| <= n u sum|x_i|: n - 1 additions and, for a mean, a division each
/// round their result by at most u of it, and no partial sum exceeds sum|x_i| (Higham 2002,
/// section 4.2). 16-bit partial sums are rounded to fp32 and, on their way, to 16 bits: u is the
/// sum of both. A product has n u of itself, where no
/// partial one leaves the range of normal numbers.
std::optional<OddElement> first_odd_element(const SumPart& part);

/// The first element in which two buffers differ by a bit.
std::optional<OddElement> first_other_element(DType dtype, const std::byte* value,
                                              const std::byte* expected, std::int64_t count);

}  // namespace meshplan::runtime
