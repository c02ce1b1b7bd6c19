// Products by a warpgroup (128 threads) of Hopper: C (64, 256) += A (64, 16) B (16, 256), operands
// in shared memory. sm_90a only. Rules and layouts: PTX ISA, "Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions".
//
// An operand lies in shared memory as lines of 128 bytes whose 16-byte pieces are swizzled: piece p
// of line l is stored at place p ^ (l % 8). Eight lines are a pattern, which begins at a multiple
// of kSwizzlePattern bytes. "By depth": a line holds 64 numbers of one row, along the summed
// dimension, lines follow the rows. "By rows": a line holds 64 rows (or columns of B) at one depth,
// lines follow the depth, and after `depth of the tile` of them come the next 64 rows.
#pragma once

#include <cstddef>
#include <type_traits>

#include "device/device.cuh"

namespace meshplan::kernels::cuda {

/// Whether this pass of the compiler is for sm_90a, or for the emulator.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDACC__)
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif

constexpr int kWarpgroup = 128;
constexpr int kWgmmaRows = 64;
constexpr int kWgmmaColumns = 256;
constexpr int kWgmmaDepth = 16;

constexpr int kSwizzleLine = 128;  // bytes
constexpr int kSwizzlePattern = 8 * kSwizzleLine;

/// Byte at which 16-byte piece `piece` of line `line` is stored.
__device__ constexpr int swizzled(int line, int piece) {
  return line * kSwizzleLine + (piece ^ line % 8) * 16;
}

/// Which dimension of an operand follows itself in memory; the value is the instruction's
/// imm-trans.
enum class Major { Depth = 0, Rows = 1 };

/// C of a warpgroup: c[n] is of columns [8 n, 8 n + 8), a warp's 16 rows have mma's ownership
/// (fragments.cuh), and warp w of the group has rows [16 w, 16 w + 16).
using WgmmaSums = float[kWgmmaColumns / 8][4];

/// Address in shared memory as descriptors and instructions take it.
__device__ inline unsigned shared_address(const void* shared) {
#if defined(__CUDACC__)
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
#else
  return cuda_on_cpu::shared_address(shared);
#endif
}

/// Describes an operand with the 128-byte swizzle. @param address  of its element (0, 0)
/// @param next_rows  bytes from 64 rows to the next 64 (Major::Rows; else not read)
/// Table "Matrix descriptor": address, leading and stride offset in units of 16 bytes at bits 0, 16
/// and 32, swizzle mode at bit 62. The stride offset is from a pattern to the next.
__device__ inline std::uint64_t wgmma_operand(unsigned address, unsigned next_rows) {
  constexpr std::uint64_t kSwizzle128 = 1;
  const auto units = [](unsigned bytes) { return std::uint64_t{(bytes & 0x3ffffU) >> 4}; };
  return units(address) | units(next_rows) << 16 | units(kSwizzlePattern) << 32 | kSwizzle128 << 62;
}

/// Orders this thread's accesses to its accumulators, and before the first product all that it
/// wrote to them, before the products that follow.
__device__ inline void wgmma_fence() {
#if defined(__CUDACC__)
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#else
  cuda_on_cpu::wgmma_fence();
#endif
}
/// Makes a group of the products since the last one.
__device__ inline void wgmma_commit() {
#if defined(__CUDACC__)
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
#else
  cuda_on_cpu::wgmma_commit();
#endif
}
/// Waits for the groups of products but the last `most_pending`: shared memory that they read may
/// then be written, and with 0 accumulators may be read.
template <int most_pending>
__device__ void wgmma_wait() {
#if defined(__CUDACC__)
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(most_pending) : "memory");
#else
  cuda_on_cpu::wgmma_wait(most_pending);
#endif
}
/// Makes what this thread wrote to shared memory (copies that it has waited for included) visible
/// to products, which read it through another path (the async proxy).
__device__ inline void show_to_wgmma() {
#if defined(__CUDACC__)
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
#else
  cuda_on_cpu::show_to_wgmma();
#endif
}

#if defined(__CUDACC__)
#define MESHPLAN_SUMS4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define MESHPLAN_SUMS16(n) \
  MESHPLAN_SUMS4(n), MESHPLAN_SUMS4(n + 1), MESHPLAN_SUMS4(n + 2), MESHPLAN_SUMS4(n + 3)
#define MESHPLAN_SUMS                                                              \
  MESHPLAN_SUMS16(0), MESHPLAN_SUMS16(4), MESHPLAN_SUMS16(8), MESHPLAN_SUMS16(12), \
      MESHPLAN_SUMS16(16), MESHPLAN_SUMS16(20), MESHPLAN_SUMS16(24), MESHPLAN_SUMS16(28)
// %0 to %127: accumulators; operands; whether to add (always); signs (plus); majors.
#define MESHPLAN_WGMMA_OF(type)                                                                 \
  asm volatile(                                                                                 \
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"                                         \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type                              \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "   \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "   \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "   \
      "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "   \
      "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "     \
      "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "    \
      "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "                     \
      "%128, %129, add, 1, 1, %131, %132;\n}\n"                                                 \
      : MESHPLAN_SUMS                                                                           \
      : "l"(a), "l"(b), "n"(1), "n"(static_cast<int>(a_major)), "n"(static_cast<int>(b_major)))
#endif

/// Starts c += A B for this warpgroup; T is __nv_bfloat16 or __half. `c` may be touched again after
/// wgmma_wait.
template <class T, Major a_major, Major b_major>
__device__ void wgmma(WgmmaSums& c, std::uint64_t a, std::uint64_t b) {
#if !defined(__CUDACC__)
  cuda_on_cpu::wgmma({.columns = kWgmmaColumns,
                      .a_by_rows = a_major == Major::Rows,
                      .b_by_rows = b_major == Major::Rows,
                      .a = a,
                      .b = b},
                     &c[0][0], [](std::uint16_t bits) {
                       T value;
                       memcpy(&value, &bits, sizeof value);
                       return to_float(value);
                     });
#else
  if constexpr (std::is_same_v<T, __half>)
    MESHPLAN_WGMMA_OF("f16");
  else
    MESHPLAN_WGMMA_OF("bf16");
#endif
}

/// Keeps the compiler from moving what it does with `c` across this place: its zeros come before
/// the fence that follows, its reads after the wait that stands above.
__device__ inline void settle_wgmma_sums([[maybe_unused]] WgmmaSums& c) {
#if defined(__CUDACC__)
  asm volatile("" : MESHPLAN_SUMS::"memory");
#endif
}

#if defined(__CUDACC__)
#undef MESHPLAN_WGMMA_OF
#undef MESHPLAN_SUMS
#undef MESHPLAN_SUMS16
#undef MESHPLAN_SUMS4
#endif

}  // namespace meshplan::kernels::cuda
