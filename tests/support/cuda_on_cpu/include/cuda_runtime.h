// Stands in for CUDA's header: the part of CUDA C++ and of the runtime API that kernels/cuda uses,
// in plain C++. There are no floating-point atomics on purpose: reductions are deterministic.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "cuda_on_cpu/async_copy.hpp"
#include "cuda_on_cpu/block.hpp"
#include "cuda_on_cpu/wgmma.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static  // one block runs at a time; `block_shared` also fills it with NaN
#define __constant__ static
#define __align__(n) alignas(n)
#define __restrict__ __restrict

// vector types

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}

// barriers

constexpr int warpSize = cuda_on_cpu::kWarp;

inline void __syncthreads() {
  cuda_on_cpu::block_barrier();
}
inline int __syncthreads_count(int predicate) {
  return cuda_on_cpu::block_barrier_sum(predicate != 0 ? 1 : 0);
}
inline int __syncthreads_or(int predicate) {
  return __syncthreads_count(predicate) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate) {
  return __syncthreads_count(predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  int nothing = 0;
  cuda_on_cpu::warp_call(mask, &nothing, [](void* const*) {});
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// warp operations

namespace cuda_on_cpu {

template <class T>
struct Shuffle {
  T value;
  int source;
  T result;
};

template <class T>
T shuffle(unsigned mask, T value, int source) {
  Shuffle<T> mine{value, source, value};
  warp_call(mask, &mine, [](void* const lanes[kWarp]) {
    for (int i = 0; i < kWarp; ++i) {
      if (lanes[i] == nullptr) continue;
      auto& to = *static_cast<Shuffle<T>*>(lanes[i]);
      if (lanes[to.source] != nullptr)
        to.result = static_cast<Shuffle<T>*>(lanes[to.source])->value;
      else
        std::memset(static_cast<void*>(&to.result), 0xff, sizeof(T));  // undefined on a GPU
    }
  });
  return mine.result;
}

template <class T, class Combine>
T warp_reduce(unsigned mask, T value, Combine) {
  struct Lane {
    T value, result;
  } mine{value, value};
  warp_call(mask, &mine, [](void* const lanes[kWarp]) {
    bool first = true;
    T total{};
    for (int i = 0; i < kWarp; ++i) {
      if (lanes[i] == nullptr) continue;
      const T value_of_lane = static_cast<Lane*>(lanes[i])->value;
      total = first ? value_of_lane : Combine()(total, value_of_lane);
      first = false;
    }
    for (int i = 0; i < kWarp; ++i)
      if (lanes[i] != nullptr) static_cast<Lane*>(lanes[i])->result = total;
  });
  return mine.result;
}

}  // namespace cuda_on_cpu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const int segment = cuda_on_cpu::lane() & ~(width - 1);
  return cuda_on_cpu::shuffle(mask, value, segment + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const int lane = cuda_on_cpu::lane();
  const int source = lane ^ lane_mask;
  return cuda_on_cpu::shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = cuda_on_cpu::lane();
  const int source = lane - static_cast<int>(delta);
  return cuda_on_cpu::shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = cuda_on_cpu::lane();
  const int source = lane + static_cast<int>(delta);
  return cuda_on_cpu::shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  struct Or {
    unsigned operator()(unsigned a, unsigned b) const { return a | b; }
  };
  return cuda_on_cpu::warp_reduce(mask, predicate != 0 ? 1U << cuda_on_cpu::lane() : 0U, Or{});
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  struct Lane {
    T value;
    unsigned result;
  } mine{value, 0};
  cuda_on_cpu::warp_call(mask, &mine, [](void* const lanes[cuda_on_cpu::kWarp]) {
    for (int i = 0; i < cuda_on_cpu::kWarp; ++i) {
      if (lanes[i] == nullptr) continue;
      auto& to = *static_cast<Lane*>(lanes[i]);
      for (int j = 0; j < cuda_on_cpu::kWarp; ++j)
        if (lanes[j] != nullptr && static_cast<Lane*>(lanes[j])->value == to.value)
          to.result |= 1U << j;
    }
  });
  return mine.result;
}

// arithmetic; std:: has the rest

using std::isfinite;
using std::isnan;
inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float x) {
  return 1.0F / x;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}

// integer atomics: threads are fibers, so these are plain

template <class T>
T atomicAdd(T* address, T value) {
  static_assert(std::is_integral_v<T>, "floating-point atomics are not deterministic");
  return std::exchange(*address, static_cast<T>(*address + value));
}
template <class T>
T atomicMax(T* address, T value) {
  static_assert(std::is_integral_v<T>);
  return std::exchange(*address, *address < value ? value : *address);
}

// runtime API; one "device", everything runs at once

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDevice = 101,
};
struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;

struct cudaDeviceProp {
  char name[256];
  int major;
  int minor;
  int multiProcessorCount;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
/// Filled with 0xff bytes (NaN), so that a read before the first write shows.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
/// Of the host's clock, since a launch has ended when it returns.
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaFuncGetName(const char** name, const void* function);
/// Launches with more than 48 KiB of shared memory fail without it, as on a GPU.
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);

namespace cuda_on_cpu {
/// cudaErrorInvalidValue where the kernel may not use that much dynamic shared memory.
cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& config);
/// That it may have in all.
std::size_t most_shared_bytes(const void* kernel);
}  // namespace cuda_on_cpu

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const void* address = reinterpret_cast<const void*>(kernel);
  const cudaError_t status = cuda_on_cpu::check_launch(address, *config);
  if (status != cudaSuccess) return status;
  const std::tuple<Params...> parameters(std::forward<Args>(args)...);
  cuda_on_cpu::launch(
      config->gridDim, config->blockDim, config->dynamicSmemBytes,
      [&] { std::apply(kernel, parameters); }, cuda_on_cpu::most_shared_bytes(address));
  return cudaSuccess;
}
