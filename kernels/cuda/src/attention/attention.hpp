// Attention of one backend: cuDNN where it has a kernel, our own otherwise.
#pragma once

#include <compare>
#include <functional>
#include <set>
#include <string>

#include "attention/cudnn_attention.hpp"
#include "device/context.hpp"
#include "kernels/cuda_backend.hpp"

namespace meshplan::kernels::cuda {

/// "attention backward bf16 sequences 2 queries 1024 ..."
std::string describe(const AttentionForward& op);
std::string describe(const AttentionBackward& op);

class AttentionKernels {
 public:
  /// @param wanted  by operations that leave it open
  AttentionKernels(AttentionLibrary wanted, std::function<void(const std::string&)> log)
      : default_(wanted), log_(std::move(log)), cudnn_(log_) {}
  std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
  std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
  void run(const Context& context, const AttentionForward& op);
  void run(const Context& context, const AttentionBackward& op);

 private:
  /// @throws ConfigError if cuDNN was asked for by name and refuses
  template <class Op>
  bool uses_cudnn(const Context& context, const Op& op);
  template <class Op>
  std::int64_t scratch_of(const Context& context, const Op& op);

  AttentionLibrary default_;
  std::function<void(const std::string&)> log_;
  std::set<std::string> said_;
  CudnnAttention cudnn_;
};

}  // namespace meshplan::kernels::cuda
