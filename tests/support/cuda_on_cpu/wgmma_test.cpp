// The emulated wgmma and cp.async: operands laid out by hand, sums by three loops, and every rule
// that a kernel can break is a fault.
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <vector>

namespace cuda_on_cpu {

namespace {

using Catch::Contains;

constexpr int kRows = 64;
constexpr int kDepth = 16;

/// Small whole numbers, so that sums are exact whatever their order.
float to_float(std::uint16_t bits) {
  return static_cast<float>(static_cast<std::int16_t>(bits));
}

struct Matrix {
  int rows, depth;
  std::vector<std::uint16_t> values;
  std::uint16_t at(int row, int k) const {
    return values[static_cast<std::size_t>(row * depth + k)];
  }
};
Matrix random_matrix(int rows, int depth, unsigned seed) {
  std::mt19937 random(seed);
  Matrix m{rows, depth, {}};
  for (int i = 0; i < rows * depth; ++i)
    m.values.push_back(static_cast<std::uint16_t>(static_cast<int>(random() % 33) - 16));
  return m;
}

/// A layout of an operand: where its numbers lie, counted by hand in words of 16 bytes from the
/// figures of the PTX ISA ("Shared memory matrix layout"), and the descriptor that says so.
struct Layout {
  const char* name;
  bool by_rows;
  std::uint64_t mode;                 // of the descriptor
  unsigned leading, stride;           // bytes
  std::function<int(int, int)> word;  // of 8 numbers (row, k) to the next 8 along the major one
};

/// For matrices of (rows, 16). By depth, `c` is which 8 of the depth; by rows, of the rows.
std::vector<Layout> layouts(int rows) {
  const unsigned r = static_cast<unsigned>(rows);
  return {
      // rows of 128 bytes, of which these 16 numbers are the first two words; 8 rows a pattern
      {"128 by depth", false, 1, 16, 1024, [](int row, int c) { return row * 8 + (c ^ row % 8); }},
      // rows of 64 bytes; two rows share a place of the swizzle
      {"64 by depth", false, 2, 16, 512,
       [](int row, int c) { return row * 4 + (c ^ row / 2 % 4); }},
      {"32 by depth", false, 3, 16, 256,
       [](int row, int c) { return row * 2 + (c ^ row / 4 % 2); }},
      // matrices of 8 rows by 16 bytes, those of one depth after each other
      {"none by depth", false, 0, 16 * r, 128, [rows](int row, int c) { return c * rows + row; }},
      // 64 rows in a line; 16 lines, then the next 64 rows
      {"128 by rows", true, 1, 2048, 1024,
       [](int c, int k) { return c / 8 * 128 + k * 8 + (c % 8 ^ k % 8); }},
      {"64 by rows", true, 2, 1024, 512,
       [](int c, int k) { return c / 4 * 64 + k * 4 + (c % 4 ^ k / 2 % 4); }},
      {"32 by rows", true, 3, 512, 256,
       [](int c, int k) { return c / 2 * 32 + k * 2 + (c % 2 ^ k / 4 % 2); }},
      // 8 rows by 8 of the depth in 128 bytes; the other 8 of the depth follow
      {"none by rows", true, 0, 128, 256, [](int c, int k) { return c * 16 + k / 8 * 8 + k % 8; }},
  };
}

void lay_out(const Layout& layout, const Matrix& m, std::uint16_t* to) {
  for (int row = 0; row < m.rows; ++row)
    for (int k = 0; k < m.depth; ++k) {
      const int word = layout.by_rows ? layout.word(row / 8, k) : layout.word(row, k / 8);
      to[8 * word + (layout.by_rows ? row : k) % 8] = m.at(row, k);
    }
}

std::uint64_t describe(const Layout& layout, const void* shared) {
  return std::uint64_t{shared_address(shared) / 16} | std::uint64_t{layout.leading / 16} << 16 |
         std::uint64_t{layout.stride / 16} << 32 | layout.mode << 62;
}

std::byte* aligned_shared() {
  auto* shared = static_cast<std::byte*>(dynamic_shared());
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}

constexpr std::size_t kBytesOfA = 8192;
constexpr std::size_t kShared = 1024 + kBytesOfA + 32768;

/// D of one product, row-major (64, columns), each thread's sums from where the ISA's figure of
/// the accumulator fragment has them.
std::vector<float> product(const Layout& of_a, const Layout& of_b, const Matrix& a,
                           const Matrix& b) {
  const int columns = b.rows;
  std::vector<float> d(static_cast<std::size_t>(kRows * columns));
  launch(dim3(1), dim3(128), kShared, [&] {
    std::byte* shared = aligned_shared();
    if (threadIdx.x == 0) {
      lay_out(of_a, a, reinterpret_cast<std::uint16_t*>(shared));
      lay_out(of_b, b, reinterpret_cast<std::uint16_t*>(shared + kBytesOfA));
    }
    __syncthreads();
    float sums[128] = {};
    wgmma_fence();
    wgmma({columns, of_a.by_rows, of_b.by_rows, describe(of_a, shared),
           describe(of_b, shared + kBytesOfA)},
          sums, to_float);
    wgmma_commit();
    wgmma_wait(0);
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = 0; i < columns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + (i / 2 % 2) * 8;
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      d[static_cast<std::size_t>(row * columns + column)] = sums[i];
    }
  });
  return d;
}

std::vector<float> three_loops(const Matrix& a, const Matrix& b) {
  std::vector<float> d;
  for (int row = 0; row < a.rows; ++row)
    for (int column = 0; column < b.rows; ++column) {
      float sum = 0.0F;
      for (int k = 0; k < a.depth; ++k) sum += to_float(a.at(row, k)) * to_float(b.at(column, k));
      d.push_back(sum);
    }
  return d;
}

/// One product of zeros by all threads of a block, between `before` and `after`, which get the
/// accumulators and the operands' memory.
using Step = std::function<void(float*, std::byte*)>;
void one_product(const Step& before, const Step& after, unsigned threads = 128) {
  const Layout by_depth = layouts(kRows)[0];
  launch(dim3(1), dim3(threads), kShared, [&] {
    std::byte* shared = aligned_shared();
    if (threadIdx.x == 0) std::memset(shared, 0, 2 * kBytesOfA);
    __syncthreads();
    float sums[4] = {};
    before(sums, shared);
    __syncthreads();
    wgmma({8, false, false, describe(by_depth, shared), describe(by_depth, shared)}, sums,
          to_float);
    wgmma_commit();
    after(sums, shared);
  });
}
const Step kFence = [](float*, std::byte*) { wgmma_fence(); };
const Step kWait = [](float*, std::byte*) { wgmma_wait(0); };

}  // namespace

TEST_CASE("wgmma reads operands in every layout of the ISA", "[cuda_on_cpu][wgmma]") {
  for (const int columns : {64, 128, 256}) {
    const Matrix a = random_matrix(kRows, kDepth, 1);
    const Matrix b = random_matrix(columns, kDepth, 2);
    const std::vector<float> expected = three_loops(a, b);
    for (const Layout& of_a : layouts(kRows))
      for (const Layout& of_b : layouts(columns)) {
        INFO(of_a.name << ", " << of_b.name << ", " << columns << " columns");
        CHECK(product(of_a, of_b, a, b) == expected);
      }
  }
}

TEST_CASE("wgmma's sums appear at the wait and add up", "[cuda_on_cpu][wgmma]") {
  const Layout by_depth = layouts(kRows)[0];
  launch(dim3(1), dim3(128), kShared, [&] {
    std::byte* shared = aligned_shared();
    if (threadIdx.x == 0)
      lay_out(by_depth, Matrix{kRows, kDepth, std::vector<std::uint16_t>(1024, 1)},
              reinterpret_cast<std::uint16_t*>(shared));
    __syncthreads();
    const WgmmaShape shape{8, false, false, describe(by_depth, shared), describe(by_depth, shared)};
    float sums[4] = {};
    wgmma_fence();
    for (int i = 0; i < 3; ++i) {
      wgmma(shape, sums, to_float);
      wgmma_commit();
    }
    const auto require = [&](float sum) {
      if (sums[3] != sum) throw std::runtime_error("another sum");
    };
    require(0.0F);
    wgmma_wait(2);
    require(16.0F);
    wgmma_wait(0);
    require(48.0F);
  });
}

TEST_CASE("wgmma without what must come before or after it is a fault", "[cuda_on_cpu][wgmma]") {
  const Step nothing = [](float*, std::byte*) {};
  CHECK_NOTHROW(one_product(kFence, kWait));
  CHECK_THROWS_WITH(one_product(nothing, kWait), Contains("without wgmma.fence"));
  CHECK_THROWS_WITH(one_product(kFence, nothing), Contains("without waiting"));
  CHECK_THROWS_WITH(one_product(kFence,
                                [](float* sums, std::byte*) {
                                  sums[0] = 1.0F;
                                  wgmma_wait(0);
                                }),
                    Contains("accumulators were touched"));
  CHECK_THROWS_WITH(one_product(kFence,
                                [](float*, std::byte* shared) {
                                  std::memset(shared, 1, kBytesOfA);
                                  wgmma_wait(0);
                                }),
                    Contains("operands in shared memory changed"));
  CHECK_THROWS_WITH(one_product(kFence, kWait, 64), Contains("block of 64 threads"));
}

TEST_CASE("threads of a warpgroup must issue the same products", "[cuda_on_cpu][wgmma]") {
  const Layout by_depth = layouts(kRows)[0];
  const auto run = [&](int differently) {
    launch(dim3(1), dim3(128), kShared, [&] {
      std::byte* shared = aligned_shared();
      const bool other = threadIdx.x == 77;
      const std::uint64_t a = describe(by_depth, shared + (differently == 1 && other ? 32 : 0));
      float sums[4] = {};
      wgmma_fence();
      for (int i = 0; i < (differently == 2 && other ? 1 : 2); ++i)
        wgmma({8, false, false, a, a}, sums, to_float);
      wgmma_commit();
      wgmma_wait(0);
    });
  };
  CHECK_NOTHROW(run(0));
  CHECK_THROWS_WITH(run(1), Contains("another product than its warpgroup"));
  CHECK_THROWS_WITH(run(2), Contains("77 has issued 1 products, its warpgroup 2"));
}

TEST_CASE("operands that do not begin where a swizzle pattern begins are a fault",
          "[cuda_on_cpu][wgmma]") {
  const Layout by_depth = layouts(kRows)[0];
  CHECK_THROWS_WITH(launch(dim3(1), dim3(128), kShared,
                           [&] {
                             std::byte* shared = aligned_shared() + 128;
                             const std::uint64_t a = describe(by_depth, shared);
                             float sums[4] = {};
                             wgmma_fence();
                             wgmma({8, false, false, a, a}, sums, to_float);
                           }),
                    Contains("first line of a swizzle pattern"));
}

TEST_CASE("copies reach wgmma only when they have been waited for and shown",
          "[cuda_on_cpu][wgmma]") {
  alignas(16) static const std::uint16_t source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto run = [](bool show) {
    one_product(
        [&](float*, std::byte* shared) {
          wgmma_fence();
          if (threadIdx.x != 5) return;
          copy_async(shared, source, 16);
          wait_for_copies();
          if (show) show_to_wgmma();
        },
        kWait);
  };
  CHECK_NOTHROW(run(true));
  CHECK_THROWS_WITH(run(false), Contains("what thread 5 has copied"));
}

TEST_CASE("a copy to what a product reads is a fault", "[cuda_on_cpu][wgmma]") {
  alignas(16) static const std::uint16_t source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK_THROWS_WITH(one_product(kFence,
                                [](float*, std::byte* shared) {
                                  for (std::size_t to = 0; to < kBytesOfA; to += 16)
                                    copy_async(shared + to, source, 16);
                                  wgmma_wait(0);
                                }),
                    Contains("operands in shared memory changed"));
}

TEST_CASE("groups of copies are done in order, zeros for what has no source", "[cuda_on_cpu]") {
  alignas(16) static const std::uint16_t source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<std::vector<std::uint16_t>> seen;
  launch(dim3(1), dim3(1), 48, [&] {
    auto* shared = static_cast<std::uint16_t*>(dynamic_shared());
    const auto look = [&] { seen.push_back({shared[0], shared[8], shared[16], shared[18]}); };
    copy_async(shared, source, 16);
    commit_copies();
    copy_async(shared + 8, nullptr, 16, 0);
    commit_copies();
    copy_async(shared + 16, source, 16, 4);
    commit_copies();
    look();
    wait_for_copies_but(2);
    look();
    wait_for_copies_but(1);
    look();
    wait_for_copies();
    look();
  });
  constexpr std::uint16_t kPoison = 0xffff;
  CHECK(seen == std::vector<std::vector<std::uint16_t>>{{kPoison, kPoison, kPoison, kPoison},
                                                        {1, kPoison, kPoison, kPoison},
                                                        {1, 0, kPoison, kPoison},
                                                        {1, 0, 1, 0}});
}

}  // namespace cuda_on_cpu
