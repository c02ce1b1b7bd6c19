// Attention on cuDNN's fused kernels, through its graph API (no frontend library).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/context.hpp"
#include "kernels/attention/attention.hpp"

namespace meshplan::kernels::cuda {

/// Plans are made once per shape, strides and alignment, and kept.
///
/// cuDNN does not tell which of its backward kernels are deterministic. Where a choice asks for
/// one, its first run on the device is repeated: engines whose bits differ from run to run are
/// given up for good, one after the other. Equal runs prove nothing, so that only the form of the
/// graph that has an order to keep (QueryGradientSum::FromScores) is tried at all.
///
/// A backward pass that wants more scratch than was planned runs in parts: sequences, then heads.
class CudnnAttention {
 public:
  /// @param log  one line of a kernel that was given up; null = silent
  explicit CudnnAttention(std::function<void(const std::string&)> log);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Empty if cuDNN has a kernel for this as the operation's choice allows it; otherwise why not.
  std::string refusal(const Context& context, const AttentionForward& op);
  std::string refusal(const Context& context, const AttentionBackward& op);

  /// What follows holds for operations that are not refused.
  std::int64_t scratch_bytes(const Context& context, const AttentionForward& op);
  std::int64_t scratch_bytes(const Context& context, const AttentionBackward& op);
  void run(const Context& context, const AttentionForward& op);
  /// @return false if no kernel repeats its results: the operation is refused from now on
  bool run(const Context& context, const AttentionBackward& op);

 private:
  class Impl;

  std::int64_t part_bytes(const AttentionBackward& part);
  std::vector<AttentionBackward> parts_that_fit(const AttentionBackward& op);
  bool run_part(const Context& context, const AttentionBackward& part);
  void enqueue(const Context& context, const AttentionBackward& op);
  int first_difference(const Context& context, const AttentionBackward& op);

  std::function<void(const std::string&)> log_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshplan::kernels::cuda
