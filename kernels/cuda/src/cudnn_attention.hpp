// Attention on cuDNN's fused kernels, through its graph API (no frontend library).
#pragma once

#include <memory>

#include "context.hpp"
#include "kernels/attention.hpp"

namespace meshplan::kernels::cuda {

/// Plans are made once per shape, strides and alignment, and kept.
class CudnnAttention {
 public:
  CudnnAttention();
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Empty if cuDNN has a deterministic kernel for this; otherwise why not.
  std::string refusal(const Context& context, const AttentionForward& op);
  std::string refusal(const Context& context, const AttentionBackward& op);

  /// Of an operation that is not refused.
  std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
  std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
  void run(const Context& context, const AttentionForward& op);
  void run(const Context& context, const AttentionBackward& op);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshplan::kernels::cuda
