// Dynamic loss scaling for fp16: gradients are computed times a factor that keeps them in range.
#pragma once

#include <cstdint>

#include "program/plan/plan.hpp"

namespace meshplan::runtime {

/// What the gradient of a token's loss is multiplied by, but for a loss scale: 1 / tokens of the
/// global batch that count in the loss.
float gradient_scale_of(double loss_tokens);

/// fp16 keeps 5 bits of exponent: gradients below 6e-8 would vanish.
bool scales_loss(const program::Workload& workload);

/// Micikevicius et al. 2018, section 3.2; names and values of PyTorch's GradScaler.
struct LossScaling {
  double initial = 65536;
  double growth = 2;           // factor after `growth_interval` steps without an overflow
  double backoff = 0.5;        // factor after a step whose gradients were not finite
  int growth_interval = 2000;  // steps
};

/// Where the scaling of a run stands; a checkpoint keeps it.
struct LossScaleState {
  double scale = 1;
  std::int64_t good_steps = 0;     // since the scale changed last
  std::int64_t skipped_steps = 0;  // of the run: they updated nothing
};

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
