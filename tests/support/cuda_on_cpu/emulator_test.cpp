// The emulator itself: kernels that are wrong must fail, kernels that are right must not.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <vector>

namespace cuda_on_cpu {

namespace {

using Catch::Contains;

TEST_CASE("every thread of every block runs once with its own index", "[cuda_on_cpu]") {
  std::vector<int> runs(2 * 3 * 5 * 7);
  launch(dim3(2, 3), dim3(5, 7), 0, [&] {
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
    ++runs[block * 35 + thread];
  });
  CHECK(runs == std::vector<int>(210, 1));
}

TEST_CASE("a barrier separates writes from reads of shared memory", "[cuda_on_cpu]") {
  std::vector<int> out(96);
  launch(dim3(1), dim3(96), 96 * sizeof(int), [&] {
    auto* shared = static_cast<int*>(dynamic_shared());
    for (int round = 0; round < 3; ++round) {
      shared[threadIdx.x] = static_cast<int>(threadIdx.x) + round;
      __syncthreads();
      out[threadIdx.x] += shared[95 - threadIdx.x];
      __syncthreads();
    }
  });
  for (int i = 0; i < 96; ++i) CHECK(out[static_cast<std::size_t>(i)] == 3 * (95 - i) + 3);
}

TEST_CASE("a missing barrier gives wrong results", "[cuda_on_cpu]") {
  std::vector<int> out(64);
  launch(dim3(1), dim3(64), 64 * sizeof(int), [&] {
    auto* shared = static_cast<int*>(dynamic_shared());
    shared[threadIdx.x] = 1;
    out[threadIdx.x] = shared[63 - threadIdx.x];
  });
  CHECK(out != std::vector<int>(64, 1));
}

TEST_CASE("a barrier that not all threads reach is a fault", "[cuda_on_cpu]") {
  CHECK_THROWS_WITH(launch(dim3(1), dim3(64), 0,
                           [] {
                             if (threadIdx.x != 7) __syncthreads();
                           }),
                    Contains("63 threads wait at a barrier") && Contains("1 have left"));
  int runs = 0;
  launch(dim3(1), dim3(64), 0, [&] { ++runs; });  // and the next launch works
  CHECK(runs == 64);
}

TEST_CASE("a warp operation that a lane of the mask never calls is a fault", "[cuda_on_cpu]") {
  CHECK_THROWS_WITH(launch(dim3(1), dim3(32), 0,
                           [] {
                             if (threadIdx.x < 31) __shfl_xor_sync(0xffffffffU, 1, 1);
                           }),
                    Contains("31 in a warp operation"));
  CHECK_THROWS_WITH(launch(dim3(1), dim3(32), 0, [] { __syncwarp(0xfU); }),
                    Contains("not in its own mask"));
}

TEST_CASE("launches that no GPU accepts are faults", "[cuda_on_cpu]") {
  CHECK_THROWS_AS(launch(dim3(1), dim3(1025), 0, [] {}), Fault);
  CHECK_THROWS_AS(launch(dim3(1, 65536), dim3(1), 0, [] {}), Fault);
  CHECK_THROWS_AS(launch(dim3(1), dim3(1), kMaxSharedBytes + 1, [] {}), Fault);
}

TEST_CASE("static shared memory counts beside dynamic", "[cuda_on_cpu]") {
  static float storage[256];
  static StaticShared memory(storage, sizeof storage);
  const std::size_t most = 48 << 10;
  const auto run = [&](std::size_t dynamic) {
    launch(
        dim3(2), dim3(32), dynamic, [] { memory.use(); }, most);
  };
  CHECK_NOTHROW(run(most - sizeof storage));
  CHECK_THROWS_WITH(run(most - sizeof storage + 4), Contains("1024 of static"));
  CHECK_NOTHROW(launch(
      dim3(1), dim3(1), most, [] {}, most));
}

TEST_CASE("shared memory starts as NaN in every block", "[cuda_on_cpu]") {
  int nans = 0;
  launch(dim3(3), dim3(1), sizeof(float), [&] {
    auto* shared = static_cast<float*>(dynamic_shared());
    nans += std::isnan(*shared) ? 1 : 0;
    *shared = 0.0F;
  });
  CHECK(nans == 3);
}

TEST_CASE("shuffles move values between the lanes that CUDA names", "[cuda_on_cpu]") {
  struct Result {
    int xor5, up3, down3, from9, up1_of_8;
  };
  std::vector<Result> results(64);
  launch(dim3(1), dim3(64), 0, [&] {
    const int value = static_cast<int>(threadIdx.x);
    results[threadIdx.x] = {
        __shfl_xor_sync(0xffffffffU, value, 5), __shfl_up_sync(0xffffffffU, value, 3),
        __shfl_down_sync(0xffffffffU, value, 3), __shfl_sync(0xffffffffU, value, 9),
        __shfl_up_sync(0xffffffffU, value, 1, 8)};
  });
  for (int i = 0; i < 64; ++i) {
    const int warp = i / 32 * 32;
    const int lane = i % 32;
    const Result& r = results[static_cast<std::size_t>(i)];
    CHECK(r.xor5 == warp + (lane ^ 5));
    CHECK(r.up3 == (lane < 3 ? i : i - 3));
    CHECK(r.down3 == (lane > 28 ? i : i + 3));
    CHECK(r.from9 == warp + 9);
    CHECK(r.up1_of_8 == (lane % 8 == 0 ? i : i - 1));
  }
}

TEST_CASE("votes and matches see the lanes of the mask", "[cuda_on_cpu]") {
  std::vector<unsigned> ballots(32);
  std::vector<unsigned> matches(32);
  std::vector<int> counts(32);
  launch(dim3(1), dim3(32), 0, [&] {
    const bool even = threadIdx.x % 2 == 0;
    if (even)
      ballots[threadIdx.x] = __ballot_sync(0x55555555U, threadIdx.x < 8 ? 1 : 0);
    else
      ballots[threadIdx.x] = __ballot_sync(0xaaaaaaaaU, 1);
    matches[threadIdx.x] = __match_any_sync(0xffffffffU, threadIdx.x % 16);
    counts[threadIdx.x] = __syncthreads_count(threadIdx.x < 11 ? 1 : 0);
  });
  CHECK(ballots[0] == 0x55U);
  CHECK(ballots[31] == 0xaaaaaaaaU);
  CHECK(matches[3] == 0x00080008U);
  CHECK(counts == std::vector<int>(32, 11));
}

TEST_CASE("an exception in a kernel reaches the caller of the launch", "[cuda_on_cpu]") {
  CHECK_THROWS_WITH(launch(dim3(1), dim3(64), 0,
                           [] {
                             if (threadIdx.x == 40) throw std::runtime_error("in thread 40");
                             __syncthreads();
                           }),
                    "in thread 40");
}

}  // namespace

}  // namespace cuda_on_cpu
