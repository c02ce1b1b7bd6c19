#pragma once

#include <cstdint>
#include <vector>

#include "kernels/mixers/ssd.hpp"
#include "reference/matrix.hpp"

namespace meshplan::reference {

/// What a state-space mixer reads, and its gradient with respect to it.
struct SsdInputs {
  Matrix xbc;            // (T, H P + 2 G N)
  Matrix dt;             // (T, H)
  Matrix a_log;          // (1, H)
  Matrix d;              // (1, H)
  Matrix dt_bias;        // (1, H)
  Matrix initial_state;  // (B, H P N)
};

struct SsdOutputs {
  Matrix y;            // (T, H P)
  Matrix final_state;  // (B, H P N)
};

struct Ssd {
  kernels::SsdShape shape;
  kernels::StepLimits limits;
  std::vector<std::int32_t> positions;  // of each token; empty: sequences are whole

  /// Token by token.
  SsdOutputs forward(const SsdInputs& inputs) const;

  /// The adjoint of `forward`, token by token from the last one. With `magnitudes`, decays, steps
  /// and their slopes are as they are and all else takes its absolute value, so that each sum is
  /// that of its terms' absolute values.
  SsdInputs backward(const SsdInputs& inputs, const SsdOutputs& gradient,
                     bool magnitudes = false) const;

  /// `forward` with such sums.
  SsdOutputs forward_magnitudes(const SsdInputs& inputs) const;
};

}  // namespace meshplan::reference
