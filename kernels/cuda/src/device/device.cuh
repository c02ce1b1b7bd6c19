// What every kernel uses: element types, wide loads and stores, block shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "device/context.hpp"

namespace meshplan::kernels::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}

/// Rounds to nearest even; NaN stays NaN.
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

/// Shared memory of the block, one object per type: a struct that a kernel (or a block-wide
/// function) defines for itself. Uninitialized. Two users of one type need a barrier between them.
template <class Storage>
__device__ Storage& block_shared() {
#if defined(__CUDACC__)
  __shared__ Storage storage;
#else  // tests/support/cuda_on_cpu
  static Storage storage;
  static cuda_on_cpu::StaticShared memory(&storage, sizeof storage);
  memory.use();
#endif
  return storage;
}

/// Shared memory whose size the launch gives.
template <class T>
__device__ T* dynamic_shared() {
#if defined(__CUDACC__)
  extern __shared__ uint4 dynamic_shared_words[];
  return reinterpret_cast<T*>(dynamic_shared_words);
#else
  return static_cast<T*>(cuda_on_cpu::dynamic_shared());
#endif
}

/// `n` floats that a thread holds at once.
template <int n>
struct Pack {
  float at[n];
  __device__ float& operator[](int i) { return at[i]; }
  __device__ float operator[](int i) const { return at[i]; }
};

/// n elements from memory, 16 bytes at a time; `p` is aligned to min(16, n * sizeof(T)) bytes.
template <int n, class T>
__device__ Pack<n> load_pack(const T* p) {
  constexpr int kBytes = n * static_cast<int>(sizeof(T));
  T raw[n];
  if constexpr (kBytes % 16 == 0) {
    uint4 words[kBytes / 16];
    for (int i = 0; i < kBytes / 16; ++i) words[i] = reinterpret_cast<const uint4*>(p)[i];
    memcpy(raw, words, kBytes);
  } else if constexpr (kBytes == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(p);
    memcpy(raw, &words, kBytes);
  } else {
    static_assert(n == 1, "packs are one element or a multiple of 8 bytes");
    raw[0] = *p;
  }
  Pack<n> pack;
  for (int i = 0; i < n; ++i) pack[i] = to_float(raw[i]);
  return pack;
}

/// The reverse of load_pack.
template <int n, class T>
__device__ void store_pack(T* p, const Pack<n>& pack) {
  constexpr int kBytes = n * static_cast<int>(sizeof(T));
  T raw[n];
  for (int i = 0; i < n; ++i) raw[i] = from_float<T>(pack[i]);
  if constexpr (kBytes % 16 == 0) {
    uint4 words[kBytes / 16];
    memcpy(words, raw, kBytes);
    for (int i = 0; i < kBytes / 16; ++i) reinterpret_cast<uint4*>(p)[i] = words[i];
  } else if constexpr (kBytes == 8) {
    uint2 words;
    memcpy(&words, raw, kBytes);
    *reinterpret_cast<uint2*>(p) = words;
  } else {
    static_assert(n == 1, "packs are one element or a multiple of 8 bytes");
    *p = raw[0];
  }
}

}  // namespace meshplan::kernels::cuda
