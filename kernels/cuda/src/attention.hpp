// Attention of one backend: cuDNN where it has a kernel, our own otherwise.
#pragma once

#include <compare>
#include <functional>
#include <set>
#include <string>

#include "context.hpp"
#include "cudnn_attention.hpp"
#include "kernels/cuda_backend.hpp"

namespace meshplan::kernels::cuda {

class AttentionKernels {
 public:
  AttentionKernels(AttentionLibrary wanted, std::function<void(const std::string&)> log)
      : wanted_(wanted), log_(std::move(log)) {}
  std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
  std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
  void run(const Context& context, const AttentionForward& op);
  void run(const Context& context, const AttentionBackward& op);

 private:
  /// @throws ConfigError if cuDNN was asked for by name and refuses
  template <class Op>
  bool uses_cudnn(const Context& context, const Op& op);

  AttentionLibrary wanted_;
  std::function<void(const std::string&)> log_;
  std::set<std::string> said_;
  CudnnAttention cudnn_;
};

}  // namespace meshplan::kernels::cuda
