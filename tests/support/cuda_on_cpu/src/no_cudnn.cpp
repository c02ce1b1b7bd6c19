// cuDNN is not emulated: attention runs on our own kernels.
#include "attention/cudnn_attention.hpp"
#include "core/error.hpp"

namespace meshplan::kernels::cuda {

class CudnnAttention::Impl {};
CudnnAttention::CudnnAttention(std::function<void(const std::string&)> /*log*/) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::refusal(const Context& /*context*/, const AttentionForward& /*op*/) {
  return "there is no cuDNN";
}
std::string CudnnAttention::refusal(const Context& /*context*/, const AttentionBackward& /*op*/) {
  return "there is no cuDNN";
}
std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/,
                                           const AttentionForward& /*op*/) {
  throw InvariantError("there is no cuDNN");
}
std::int64_t CudnnAttention::scratch_bytes(const Context& /*context*/,
                                           const AttentionBackward& /*op*/) {
  throw InvariantError("there is no cuDNN");
}
void CudnnAttention::run(const Context& /*context*/, const AttentionForward& /*op*/) {
  throw InvariantError("there is no cuDNN");
}
bool CudnnAttention::run(const Context& /*context*/, const AttentionBackward& /*op*/) {
  throw InvariantError("there is no cuDNN");
}

}  // namespace meshplan::kernels::cuda
