// What a stage of the small pipeline, a chunk and a stage of the plan are summed up from.
#pragma once

#include <algorithm>

namespace meshplan::sim {

/// What adds up over the layers of a chunk, and over the chunks of a stage.
struct CostSums {
  double update_seconds = 0;  // clip coefficient and optimizer
  double update_launches = 0;
  double norm_seconds = 0;        // squared norm of the gradients
  double once_seconds = 0;        // what the first micro-batch does for all: weights in FP8
  double quantized_bytes = 0;     // weights in FP8
  double elements = 0;            // parameters, without frozen ones
  double frozen_elements = 0;     // parameters that are not trained
  double untrained_elements = 0;  // parameters besides, which no gradient moves
  double partial_elements = 0;    // parameters whose gradients are reduced over tp first

  /// this + times * other
  CostSums plus(double times, const CostSums& other) const {
    return {update_seconds + times * other.update_seconds,
            update_launches + times * other.update_launches,
            norm_seconds + times * other.norm_seconds,
            once_seconds + times * other.once_seconds,
            quantized_bytes + times * other.quantized_bytes,
            elements + times * other.elements,
            frozen_elements + times * other.frozen_elements,
            untrained_elements + times * other.untrained_elements,
            partial_elements + times * other.partial_elements};
  }
};

/// Memory that users take in turn, so that the largest one counts.
struct SlotBytes {
  double transient = 0;  // a slot
  double boundary = 0;   // a slot
  double scalar = 0;
  double workspace = 0;
  double staging = 0;  // of offloaded activations: all slots

  SlotBytes covering(const SlotBytes& other) const {
    return {std::max(transient, other.transient), std::max(boundary, other.boundary),
            std::max(scalar, other.scalar), std::max(workspace, other.workspace),
            std::max(staging, other.staging)};
  }
};

}  // namespace meshplan::sim
