// The three products of a dense layer, on oneDNN (docs/decisions/001-gemm-library.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/kernel_table.hpp"
#include "kernels/products/linear.hpp"

namespace meshplan::kernels {

/// Owns a oneDNN engine and the primitives of every shape seen so far. Each is created at the first
/// `scratch_bytes` or `run` of its shape; after that neither allocates, except that fp32 gradients
/// use oneDNN's sgemm, which takes up to 7 MB a call for packing from malloc and gives it back.
/// oneDNN 2.6 has no fp16 product on CPUs: fp16 operands are widened into the scratch, multiplied
/// in fp32 and rounded once.
class Matmul {
 public:
  Matmul(int num_threads, const KernelTable& table);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  std::int64_t scratch_bytes(const LinearForward& op);
  std::int64_t scratch_bytes(const LinearInputGrad& op);
  std::int64_t scratch_bytes(const LinearWeightGrad& op);

  /// @param scratch  at least `scratch_bytes(op)`, aligned to 64 bytes
  void run(const LinearForward& op, std::span<std::byte> scratch);
  void run(const LinearInputGrad& op, std::span<std::byte> scratch);
  void run(const LinearWeightGrad& op, std::span<std::byte> scratch);  // dweight only

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshplan::kernels
