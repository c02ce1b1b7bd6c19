// Runs the threads of a block as fibers on one host thread: each runs until it waits for others. A
// wait that cannot end (a barrier or warp operation that some threads never reach) is a Fault, as
// are launches that no GPU would accept. Blocks run one after the other; their order and that of
// threads change from launch to launch, so that a missing barrier shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace cuda_on_cpu {

constexpr int kWarp = 32;
constexpr std::size_t kMaxSharedBytes = 227 << 10;  // sm_90, CUDA C++ programming guide, table 27

/// The kernel did something that hangs or faults on a GPU.
class Fault : public std::logic_error {
  using std::logic_error::logic_error;
};

/// Runs `kernel` once for every thread of every block. Shared memory starts as 0xff bytes (NaN,
/// -1) in every block.
/// @param most_shared_bytes  dynamic and static that the kernel may have
/// @throws Fault
void launch(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
            const std::function<void()>& kernel, std::size_t most_shared_bytes = kMaxSharedBytes);

/// Kernels launched in this process so far, products of the stand-in for cuBLASLt among them.
std::int64_t kernels_launched();
/// Counts what stands in for a library's kernel.
void count_library_kernel();

/// The block's dynamic shared memory.
void* dynamic_shared();
std::size_t dynamic_shared_bytes();

/// Blocks started in this process so far: state of a block's threads is void where it has changed.
std::uint64_t blocks_started();
/// Threads of the block.
std::size_t num_threads();
/// This thread's number in the block.
std::size_t thread_number();

/// A piece of static shared memory: filled with 0xff at the start of each block.
class StaticShared {
 public:
  StaticShared(void* memory, std::size_t bytes);
  /// The kernel that runs has it.
  void use();

 private:
  std::size_t bytes_;
  std::uint64_t launch_ = 0;  // that counted it last
};

/// Waits until all threads of the block are here.
void block_barrier();
/// Waits for them, too; returns the sum of `value` over the threads.
int block_barrier_sum(int value);

/// Waits until all lanes of `mask` have called it with the same `mask` and `complete`. The last one
/// calls complete(lanes): lanes[i] is what lane i passed, null for lanes that take no part.
using WarpFunction = void (*)(void* const lanes[kWarp]);
void warp_call(unsigned mask, void* mine, WarpFunction complete);

/// This thread's number in its warp.
int lane();

}  // namespace cuda_on_cpu
