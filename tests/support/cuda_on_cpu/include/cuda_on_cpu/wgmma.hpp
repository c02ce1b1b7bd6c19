// wgmma (Hopper's products by a warpgroup), as the PTX ISA defines it: D (64, n) += A (64, 16)
// B (16, n), both operands in shared memory, described by 64-bit matrix descriptors. Sums appear in
// the accumulators at the wait alone, so that a forgotten wait shows; operands must be the same
// when the product is issued and when it ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_on_cpu {

/// Where a pointer into the block's dynamic shared memory lies in the shared window. The memory
/// begins at a multiple of 16 bytes alone, as on a GPU.
unsigned shared_address(const void* shared);

struct WgmmaShape {
  int columns = 0;         // n: 8, 16, ..., 256
  bool a_by_rows = false;  // imm-trans-a
  bool b_by_rows = false;  // imm-trans-b
  std::uint64_t a = 0;     // descriptors
  std::uint64_t b = 0;
  bool operator==(const WgmmaShape&) const = default;
};

/// Starts D += A B for this thread's warpgroup of 128.
/// @param sums  of this thread, columns / 2: the accumulators, which the wait writes
/// @param to_float  converts the operands' numbers
/// @throws Fault if a descriptor has a base offset, which is not modelled, if operands were copied
/// there and not shown (show_to_wgmma), if accumulators may
/// have been touched since a wait and no wgmma_fence came after it, or if threads of a warpgroup
/// issue different products
void wgmma(const WgmmaShape& shape, float* sums, float (*to_float)(std::uint16_t bits));

void wgmma_fence();
/// Ends a group of this thread's products.
void wgmma_commit();
/// Ends this thread's groups of products but the last `most_pending`.
/// @throws Fault if operands or accumulators changed while a product that ends here ran
void wgmma_wait(std::size_t most_pending);

/// fence.proxy.async: this thread's finished copies may be read by products from now on.
void show_to_wgmma();
/// This thread has copied 16 bytes to shared memory; products may not read them yet.
void note_copied(const void* shared);

/// At the end of a block. @throws Fault if a product was not waited for, or only some threads of a
/// warpgroup have issued it
void check_products_ended();

}  // namespace cuda_on_cpu
