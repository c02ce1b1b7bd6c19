// A warp's share of small matrix products: C (16, 8) += A (16, kDepth) B (kDepth, 8).
//
// Lane l has row g = l / 4 and t = l % 4. It holds of C: c[0], c[1] = C[g][2t], C[g][2t + 1] and
// c[2], c[3] = C[g + 8][2t], C[g + 8][2t + 1] (PTX ISA, "Matrix fragments for mma.m16n8k16"). bf16
// and fp16 use tensor cores; fp32 plain FMA on fragments of the same ownership, so that kernels are
// written once and fp32 keeps all its bits (TF32 would not).
#pragma once

#include <cstring>
#include <type_traits>

#include "device/device.cuh"

namespace meshplan::kernels::cuda {

__device__ inline int lane_row() {
  return static_cast<int>(threadIdx.x % kWarp) / 4;
}
__device__ inline int lane_column() {
  return 2 * static_cast<int>(threadIdx.x % 4);
}

template <class T>
struct Fragments;

template <>
struct Fragments<float> {
  static constexpr int kDepth = 8;
  struct A {
    float row[2][kDepth];  // rows g and g + 8
  };
  struct B {
    float column[2][kDepth];  // columns 2t and 2t + 1
  };

  /// A from row-major shared memory at its element (0, 0).
  __device__ static A load_a(const float* tile, int stride) {
    A a;
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < kDepth; ++k) a.row[half][k] = tile[(lane_row() + 8 * half) * stride + k];
    return a;
  }
  /// A from memory that holds A^T row-major.
  __device__ static A load_a_columns(const float* tile, int stride) {
    A a;
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < kDepth; ++k) a.row[half][k] = tile[k * stride + lane_row() + 8 * half];
    return a;
  }
  /// B (kDepth, 16), as two fragments, from memory that holds B^T row-major.
  __device__ static void load_b(B (&b)[2], const float* tile, int stride) {
    for (int part = 0; part < 2; ++part)
      for (int j = 0; j < 2; ++j)
        for (int k = 0; k < kDepth; ++k)
          b[part].column[j][k] = tile[(8 * part + lane_column() + j) * stride + k];
  }
  /// B (kDepth, 16) from memory that holds B row-major.
  __device__ static void load_b_rows(B (&b)[2], const float* tile, int stride) {
    for (int part = 0; part < 2; ++part)
      for (int j = 0; j < 2; ++j)
        for (int k = 0; k < kDepth; ++k)
          b[part].column[j][k] = tile[k * stride + 8 * part + lane_column() + j];
  }
  /// A from C tiles that lie side by side, kDepth / 8 of them: the four lanes of a row exchange.
  __device__ static A from_accumulators(const float (*c)[4]) {
    A a;
    const int quad = static_cast<int>(threadIdx.x % kWarp) & ~3;
    for (int t = 0; t < 4; ++t) {
      for (int i = 0; i < 4; ++i)
        a.row[i / 2][2 * t + i % 2] = __shfl_sync(kAllLanes, (*c)[i], quad + t);
    }
    return a;
  }
  __device__ static void multiply(float (&c)[4], const A& a, const B& b) {
    for (int k = 0; k < kDepth; ++k)
      for (int i = 0; i < 4; ++i) c[i] += a.row[i / 2][k] * b.column[i % 2][k];
  }
};

/// T is __nv_bfloat16 or __half.
template <class T>
struct Fragments16 {
  static constexpr int kDepth = 16;
  /// Two neighbouring elements, the lower one first in memory, in each register.
  struct A {
    unsigned pair[4];  // (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
  };
  struct B {
    unsigned pair[2];  // (2t, g), (2t + 8, g): pairs go down a column
  };

  __device__ static unsigned pack(float low, float high) {
    const T both[2] = {from_float<T>(low), from_float<T>(high)};
    unsigned word;
    memcpy(&word, both, sizeof(word));
    return word;
  }
  __device__ static A from_accumulators(const float (*c)[4]) {
    return {{pack(c[0][0], c[0][1]), pack(c[0][2], c[0][3]), pack(c[1][0], c[1][1]),
             pack(c[1][2], c[1][3])}};
  }

#if defined(__CUDACC__)
  __device__ static A load_a(const T* tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    A a;
    load_matrices<false>(a.pair[0], a.pair[1], a.pair[2], a.pair[3],
                         tile + lane % 16 * stride + lane / 16 * 8);
    return a;
  }
  __device__ static A load_a_columns(const T* tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    A a;
    load_matrices<true>(a.pair[0], a.pair[1], a.pair[2], a.pair[3],
                        tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
    return a;
  }
  __device__ static void load_b(B (&b)[2], const T* tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    load_matrices<false>(b[0].pair[0], b[0].pair[1], b[1].pair[0], b[1].pair[1],
                         tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
  }
  __device__ static void load_b_rows(B (&b)[2], const T* tile, int stride) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    load_matrices<true>(b[0].pair[0], b[0].pair[1], b[1].pair[0], b[1].pair[1],
                        tile + lane % 16 * stride + lane / 16 * 8);
  }
  __device__ static void multiply(float (&c)[4], const A& a, const B& b) {
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]),
            "r"(b.pair[1]));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
          "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a.pair[0]), "r"(a.pair[1]), "r"(a.pair[2]), "r"(a.pair[3]), "r"(b.pair[0]),
            "r"(b.pair[1]));
  }

 private:
  /// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
  template <bool transposed>
  __device__ static void load_matrices(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                       const T* row) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                   : "r"(address)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                   : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                   : "r"(address)
                   : "memory");
  }
#else
  // What the instructions above do, for the emulator.
  __device__ static unsigned pair_of(T low, T high) {
    const T both[2] = {low, high};
    unsigned word;
    memcpy(&word, both, sizeof(word));
    return word;
  }
  __device__ static A load_a(const T* tile, int stride) {
    A a;
    for (int i = 0; i < 4; ++i) {
      const auto* at = tile + (lane_row() + i % 2 * 8) * stride + lane_column() + i / 2 * 8;
      a.pair[i] = pair_of(at[0], at[1]);
    }
    return a;
  }
  __device__ static A load_a_columns(const T* tile, int stride) {
    A a;
    for (int i = 0; i < 4; ++i) {
      const auto* at = tile + (lane_column() + i / 2 * 8) * stride + lane_row() + i % 2 * 8;
      a.pair[i] = pair_of(at[0], at[stride]);
    }
    return a;
  }
  __device__ static void load_b(B (&b)[2], const T* tile, int stride) {
    for (int i = 0; i < 4; ++i) {
      const auto* at = tile + (lane_row() + i / 2 * 8) * stride + lane_column() + i % 2 * 8;
      b[i / 2].pair[i % 2] = pair_of(at[0], at[1]);
    }
  }
  __device__ static void load_b_rows(B (&b)[2], const T* tile, int stride) {
    for (int i = 0; i < 4; ++i) {
      const auto* at = tile + (lane_column() + i % 2 * 8) * stride + lane_row() + i / 2 * 8;
      b[i / 2].pair[i % 2] = pair_of(at[0], at[stride]);
    }
  }
  struct Operands {
    float* c;
    const A* a;
    const B* b;
  };
  static float element(unsigned pair, int which) {
    T both[2];
    memcpy(both, &pair, sizeof(pair));
    return to_float(both[which]);
  }
  /// Once for the whole warp, element by element.
  static void multiply_all(void* const lanes[kWarp]) {
    const auto of = [&](int lane) { return static_cast<Operands*>(lanes[lane]); };
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float sum = 0.0F;
        for (int k = 0; k < kDepth; ++k) {
          const unsigned a = of(row % 8 * 4 + k % 8 / 2)->a->pair[row / 8 + k / 8 * 2];
          const unsigned b = of(column * 4 + k % 8 / 2)->b->pair[k / 8];
          sum += element(a, k % 2) * element(b, k % 2);
        }
        of(row % 8 * 4 + column / 2)->c[row / 8 * 2 + column % 2] += sum;
      }
    }
  }
  __device__ static void multiply(float (&c)[4], const A& a, const B& b) {
    Operands mine{c, &a, &b};
    cuda_on_cpu::warp_call(kAllLanes, &mine, multiply_all);
  }
#endif
};

template <>
struct Fragments<__nv_bfloat16> : Fragments16<__nv_bfloat16> {};
template <>
struct Fragments<__half> : Fragments16<__half> {};

}  // namespace meshplan::kernels::cuda
