#include "device/digest.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <utility>
#include <vector>

namespace meshplan::kernels::cuda::test {

TEST_CASE("A digest tells bits apart by value and place, and skips what lies between rows",
          "[kernels][cuda]") {
  constexpr std::int64_t kRows = 700, kColumns = 40, kStride = 56;
  alignas(64) std::array<std::byte, kDigestScratchBytes> scratch{};
  const Context context{.scratch = scratch};
  std::vector<std::uint16_t> numbers(kRows * kStride);
  const auto digest = [&] {
    const std::array<Bits, 2> parts = {
        Bits{numbers.data(), kRows / 2, kColumns, kStride},
        Bits{numbers.data() + kRows / 2 * kStride, kRows / 2, kColumns, kStride}};
    return digest_of(context, parts);
  };
  CHECK(digest() == 0);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i * 31);
  const std::uint64_t first = digest();
  CHECK(first != 0);
  CHECK(digest() == first);
  numbers[kColumns + 3] ^= 1;  // beside a row
  CHECK(digest() == first);
  numbers[5 * kStride + 7] ^= 1;
  CHECK(digest() != first);
  numbers[5 * kStride + 7] ^= 1;
  std::swap(numbers[kStride], numbers[600 * kStride + 1]);
  CHECK(digest() != first);
}

}  // namespace meshplan::kernels::cuda::test
