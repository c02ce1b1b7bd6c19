// Dynamic loss scaling for fp16: gradients are computed times a factor that keeps them in range.
#pragma once

#include "runtime/weights/checkpoint.hpp"

namespace meshplan::runtime {

/// Every rank has one; all see the same reduced norm, so all decide alike.
class LossScaler {
 public:
  explicit LossScaler(const LossScaling& options)
      : options_(options), state_{.scale = options.initial} {}

  const LossScaleState& state() const { return state_; }
  void resume(const LossScaleState& state) { state_ = state; }

  /// After a step. @param finite  were its gradients?
  /// @returns false if they were not even at a scale of 1: then it is no matter of scale
  bool update(bool finite);

 private:
  LossScaling options_;
  LossScaleState state_;
};

}  // namespace meshplan::runtime
