#pragma once

#include <memory>
#include <unordered_map>

#include "attention/attention.hpp"
#include "kernels/cuda/handles.hpp"
#include "kernels/cuda_backend.hpp"
#include "products/linear.hpp"

namespace meshplan::kernels::cuda {

class StreamBackend final : public CudaBackend {
 public:
  StreamBackend(int device_index, const CudaBackendOptions& options);
  ~StreamBackend() override;

  std::string name() const override;
  int num_threads() const override { return 1; }
  bool reads_group_offsets() const override { return true; }
  int device_index() const override { return context_.device; }
  CUstream_st* stream() const override { return context_.stream; }
  ProductTuning* product_tuning() override;

  void* allocate(std::int64_t bytes) override;
  void free(void* memory) noexcept override;
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void copy_to_device(void* to, const void* from_host, std::int64_t bytes) override;
  void copy_to_host(void* to_host, const void* from, std::int64_t bytes) override;
  void zero(void* memory, std::int64_t bytes) override;
  void synchronize() override;

  std::int64_t scratch_bytes(const Operation& operation) override;
  void set_scratch(void* memory, std::int64_t bytes) override;
  void run(const Operation& operation) override;

 private:
  class Tuning;

  /// Keeps the operation for product_tuning().
  template <class Op>
  void note_product(const Op& op);

  /// CUDA's current device belongs to the host thread, not to us.
  void use_device() const;

  struct FreeMemory {
    void operator()(unsigned* memory) const noexcept;
  };

  Context context_;
  std::string device_name_;
  Stream own_stream_;
  std::unique_ptr<unsigned, FreeMemory> tickets_;
  LinearKernels linear_;
  AttentionKernels attention_;
  std::unique_ptr<Tuning> tuning_;
  std::unordered_map<void*, void*> allocations_;  // what we handed out -> what CUDA gave
};

}  // namespace meshplan::kernels::cuda
