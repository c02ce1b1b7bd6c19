#include "runtime/train/loss_scale.hpp"

#include <algorithm>

namespace meshplan::runtime {

bool LossScaler::update(bool finite) {
  constexpr double kMost = 0x1p96;  // times a gradient it must stay an fp32 number
  if (!finite) {
    if (state_.scale <= 1) return false;
    state_.scale = std::max(1.0, state_.scale * options_.backoff);
    state_.good_steps = 0;
    ++state_.skipped_steps;
    return true;
  }
  if (++state_.good_steps < options_.growth_interval) return true;
  state_.scale = std::min(kMost, state_.scale * options_.growth);
  state_.good_steps = 0;
  return true;
}

}  // namespace meshplan::runtime
