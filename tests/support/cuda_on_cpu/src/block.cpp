#include "cuda_on_cpu/block.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda_on_cpu/wgmma.hpp"
#include "fiber.hpp"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_on_cpu {

namespace {

constexpr int kPoison = 0xff;
constexpr unsigned kMaxThreads = 1024;  // CUDA C++ programming guide, table 27
constexpr unsigned kMaxGridYz = 65535;

enum class State { Ready, AtBarrier, InWarpCall, Left };

struct Thread {
  uint3 index{};
  State state = State::Ready;
  unsigned mask = 0;
  void* data = nullptr;
  WarpFunction complete = nullptr;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<std::unique_ptr<Fiber>> fibers;  // kept between launches
  std::vector<std::size_t> order;
  std::mt19937 random{1};
  const std::function<void()>* kernel = nullptr;
  std::size_t current = 0;
  std::size_t at_barrier = 0;
  int sum = 0;         // of those that are at the barrier
  int result_sum = 0;  // of the last barrier
  std::exception_ptr error;
  std::byte* dynamic_shared = nullptr;
  std::size_t dynamic_bytes = 0;
  std::uint64_t started = 0;  // blocks of all launches
  std::vector<std::pair<void*, std::size_t>> static_shared;
  std::uint64_t launch = 0;  // number of the one that runs
  std::uint64_t library_kernels = 0;
  std::size_t static_bytes = 0;  // that its kernel has used so far
};

Block& block() {
  static Block instance;
  return instance;
}

void wait(State state) {
  Block& b = block();
  const std::size_t self = b.current;
  b.threads[self].state = state;
  b.fibers[self]->suspend();
}

void thread_main() {
  Block& b = block();
  for (;;) {
    try {
      (*b.kernel)();
    } catch (...) {
      b.error = std::current_exception();
    }
    wait(State::Left);
  }
}

std::string describe() {
  const Block& b = block();
  const auto count = [&](State state) {
    return std::count_if(b.threads.begin(), b.threads.end(),
                         [&](const Thread& thread) { return thread.state == state; });
  };
  return fmt::format(
      "block ({}, {}, {}): {} threads wait at a barrier, {} in a warp operation, {} have left",
      blockIdx.x, blockIdx.y, blockIdx.z, count(State::AtBarrier), count(State::InWarpCall),
      count(State::Left));
}

void fill_shared(std::size_t dynamic_bytes) {
  Block& b = block();
  if (dynamic_bytes > 0) std::memset(b.dynamic_shared, kPoison, dynamic_bytes);
  for (const auto& [memory, bytes] : b.static_shared) std::memset(memory, kPoison, bytes);
}

/// Whether a thread has ended the block by throwing.
void run_block() {
  Block& b = block();
  for (Thread& thread : b.threads) thread.state = State::Ready;
  b.at_barrier = 0;
  b.sum = 0;
  ++b.started;
  std::size_t left = 0;
  while (left < b.threads.size()) {
    bool progress = false;
    for (const std::size_t i : b.order) {
      if (b.threads[i].state != State::Ready) continue;
      progress = true;
      b.current = i;
      threadIdx = b.threads[i].index;
      b.fibers[i]->resume();
      if (b.error) return;
      if (b.threads[i].state == State::Left) ++left;
    }
    if (!progress) {
      b.error = std::make_exception_ptr(Fault("deadlock in " + describe()));
      return;
    }
  }
  try {
    check_products_ended();
  } catch (const Fault&) {
    b.error = std::current_exception();
  }
}

void prepare(dim3 size) {
  Block& b = block();
  b.threads.clear();
  for (unsigned z = 0; z < size.z; ++z)
    for (unsigned y = 0; y < size.y; ++y)
      for (unsigned x = 0; x < size.x; ++x) b.threads.push_back({.index = {x, y, z}});
  while (b.fibers.size() < b.threads.size())
    b.fibers.push_back(std::make_unique<Fiber>(thread_main));
  b.order.resize(b.threads.size());
  std::iota(b.order.begin(), b.order.end(), std::size_t{0});
  std::shuffle(b.order.begin(), b.order.end(), b.random);
}

std::vector<uint3> shuffled_blocks(dim3 grid) {
  std::vector<uint3> blocks;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) blocks.push_back({x, y, z});
  std::shuffle(blocks.begin(), blocks.end(), block().random);
  return blocks;
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

void launch(dim3 grid, dim3 size, std::size_t dynamic_shared_bytes,
            const std::function<void()>& kernel, std::size_t most_shared_bytes) {
  const unsigned threads = size.x * size.y * size.z;
  if (threads == 0 || threads > kMaxThreads)
    throw Fault(fmt::format("a block of {} threads", threads));
  if (grid.y > kMaxGridYz || grid.z > kMaxGridYz)
    throw Fault(fmt::format("a grid of {} x {} x {} blocks", grid.x, grid.y, grid.z));
  if (dynamic_shared_bytes > kMaxSharedBytes)
    throw Fault(fmt::format("{} bytes of shared memory", dynamic_shared_bytes));
  Block& b = block();
  prepare(size);
  b.kernel = &kernel;
  ++b.launch;
  b.static_bytes = 0;
  // Exactly as many bytes as asked for, so that AddressSanitizer sees what goes beyond.
  void* memory = nullptr;
  if (dynamic_shared_bytes > 0 && posix_memalign(&memory, 128, dynamic_shared_bytes) != 0)
    throw std::bad_alloc();
  const std::unique_ptr<void, FreeMemory> owner(memory);
  b.dynamic_shared = static_cast<std::byte*>(memory);
  b.dynamic_bytes = dynamic_shared_bytes;
  blockDim = size;
  gridDim = grid;
  for (const uint3& index : shuffled_blocks(grid)) {
    blockIdx = index;
    fill_shared(dynamic_shared_bytes);
    run_block();
    if (b.error) {
      for (auto& fiber : b.fibers) fiber->reset();
      std::rethrow_exception(std::exchange(b.error, nullptr));
    }
  }
  if (dynamic_shared_bytes + b.static_bytes > most_shared_bytes)
    throw Fault(
        fmt::format("{} bytes of dynamic and {} of static shared memory; the launch allows {}",
                    dynamic_shared_bytes, b.static_bytes, most_shared_bytes));
}

std::int64_t kernels_launched() {
  return static_cast<std::int64_t>(block().launch + block().library_kernels);
}

void count_library_kernel() {
  ++block().library_kernels;
}

void* dynamic_shared() {
  return block().dynamic_shared;
}
std::size_t dynamic_shared_bytes() {
  return block().dynamic_bytes;
}
std::uint64_t blocks_started() {
  return block().started;
}
std::size_t num_threads() {
  return block().threads.size();
}
std::size_t thread_number() {
  return block().current;
}

StaticShared::StaticShared(void* memory, std::size_t bytes) : bytes_(bytes) {
  block().static_shared.emplace_back(memory, bytes);
  std::memset(memory, kPoison, bytes);
}

void StaticShared::use() {
  Block& b = block();
  if (launch_ == b.launch) return;
  launch_ = b.launch;
  b.static_bytes += bytes_;
}

void block_barrier() {
  block_barrier_sum(0);
}

int block_barrier_sum(int value) {
  Block& b = block();
  b.sum += value;
  if (++b.at_barrier < b.threads.size()) {
    wait(State::AtBarrier);
    return b.result_sum;  // nobody passes the next barrier before all have read this
  }
  b.at_barrier = 0;
  b.result_sum = std::exchange(b.sum, 0);
  for (Thread& thread : b.threads)
    if (thread.state == State::AtBarrier) thread.state = State::Ready;
  return b.result_sum;
}

int lane() {
  return static_cast<int>(block().current % kWarp);
}

void warp_call(unsigned mask, void* mine, WarpFunction complete) {
  Block& b = block();
  const std::size_t self = b.current;
  const std::size_t first = self / kWarp * kWarp;
  if ((mask >> (self - first) & 1U) == 0)
    throw Fault(fmt::format("lane {} is not in its own mask {:#x}", self - first, mask));
  Thread& me = b.threads[self];
  me.mask = mask;
  me.data = mine;
  me.complete = complete;
  void* lanes[kWarp] = {};
  for (std::size_t i = 0; i < kWarp && first + i < b.threads.size(); ++i) {
    if ((mask >> i & 1U) == 0) continue;
    const Thread& other = b.threads[first + i];
    const bool here = first + i == self || (other.state == State::InWarpCall &&
                                            other.mask == mask && other.complete == complete);
    if (!here) {
      wait(State::InWarpCall);
      return;
    }
    lanes[i] = other.data;
  }
  complete(lanes);
  for (std::size_t i = 0; i < kWarp; ++i)
    if (lanes[i] != nullptr && first + i != self) b.threads[first + i].state = State::Ready;
}

}  // namespace cuda_on_cpu
