// Copies from global to shared memory that run beside the thread that asked for them (cp.async).
#pragma once

#include "device/device.cuh"

namespace meshplan::kernels::cuda {

/// Starts to copy 16 bytes from global to shared memory, past the registers; both are aligned to 16
/// bytes.
__device__ inline void copy_async(void* shared, const void* global) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(address), "l"(global)
               : "memory");
#else
  cuda_on_cpu::copy_async(shared, global, 16);
#endif
}
/// As above where `exists`; else writes 16 zeros and reads nothing.
__device__ inline void copy_async_or_zero(void* shared, const void* global, bool exists) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global),
               "r"(exists ? 16 : 0)
               : "memory");
#else
  cuda_on_cpu::copy_async(shared, global, 16, exists ? 16 : 0);
#endif
}
/// Makes a group of this thread's copies since the last one; a group may be empty.
__device__ inline void commit_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
  cuda_on_cpu::commit_copies();
#endif
}
/// Waits for this thread's groups of copies but the last `most_pending`; a barrier then shows them
/// to the block.
template <int most_pending>
__device__ void wait_for_copies_but() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;\n" ::"n"(most_pending) : "memory");
#else
  cuda_on_cpu::wait_for_copies_but(most_pending);
#endif
}
/// Waits for all of this thread's copies; a barrier then shows them to the block.
__device__ inline void wait_for_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;\n" ::: "memory");
#else
  cuda_on_cpu::wait_for_copies();
#endif
}

}  // namespace meshplan::kernels::cuda
