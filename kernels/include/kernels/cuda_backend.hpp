#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/attention/attention.hpp"
#include "kernels/backend.hpp"
#include "kernels/product_tuning.hpp"

struct CUstream_st;  // cudaStream_t is a pointer to it: no CUDA header is needed here

namespace meshplan::kernels {

/// Computes on one NVIDIA GPU. `run`, `copy`, `zero` and `copy_to_device` enqueue on one stream and
/// return; `copy_to_host` and `synchronize` wait for it. `copy_to_device` has read pageable memory
/// when it returns; memory pinned by CUDA must stay unchanged until the stream has passed.
/// Errors of work that was enqueued earlier surface in whichever later call sees them first.
/// @throws CudaError (kernels/cuda_error.hpp) from every call that enqueues or waits
class CudaBackend : public Backend {
 public:
  virtual int device_index() const = 0;
  /// The stream that operations are enqueued on; owned by the backend unless it was given one. Work
  /// of other streams is ordered against it by events.
  virtual CUstream_st* stream() const = 0;
  /// Null unless CudaBackendOptions::tune_products.
  virtual ProductTuning* product_tuning() { return nullptr; }
};

struct CudaBackendOptions {
  CUstream_st* stream = nullptr;  // null: a non-blocking stream of its own
  bool allow_tf32 = false;        // fp32 matrix products in TF32: 10 instead of 23 mantissa bits
  /// Time cuBLASLt's best candidates at the first run of a product and keep the fastest. Another
  /// process may choose another one, whose sums differ in the last bits.
  bool autotune_gemm = false;
  /// Keep what CudaBackend::product_tuning needs: the products that are to run.
  bool tune_products = false;
  /// Whose kernels run operations that leave it open; `log` is told once per shape.
  AttentionLibrary attention = AttentionLibrary::Auto;
  std::function<void(const std::string&)> log;  // one line of what was chosen; null = silent
};

/// @throws ConfigError if there is no such device, CudaError if it cannot be used
std::unique_ptr<CudaBackend> make_cuda_backend(int device_index,
                                               const CudaBackendOptions& options = {});

struct CudaDevices {
  int count = 0;
  std::string reason;  // why there is none; empty when count > 0
};
/// What this process can use; never throws for a machine without GPU or driver.
CudaDevices cuda_devices();

}  // namespace meshplan::kernels
