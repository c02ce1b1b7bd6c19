// A value scaled by a learned gate: y = x sigmoid(gate), with one gate for each row (the shared
// expert of Qwen2-MoE) or for each element.
//
// T tokens, F features, G = 1 or F gates of a row.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"

namespace meshplan::kernels {

/// All operands are contiguous. Traffic: 2 T F + T G elements.
struct SigmoidGateForward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;   // F
  std::int64_t gates = 1;  // G
  DType dtype = DType::F32;
  const void* x = nullptr;     // (T, F)
  const void* gate = nullptr;  // (T, G)
  void* y = nullptr;           // (T, F)
};

/// dx = dy s and dgate = s (1 - s) times dy x, summed over the row where it has one gate; s =
/// sigmoid(gate). Traffic: 3 T F + 2 T G elements.
struct SigmoidGateBackward {
  std::int64_t tokens = 0;
  std::int64_t size = 0;
  std::int64_t gates = 1;
  DType dtype = DType::F32;
  const void* dy = nullptr;    // (T, F)
  const void* x = nullptr;     // (T, F)
  const void* gate = nullptr;  // (T, G)
  void* dx = nullptr;          // (T, F)
  void* dgate = nullptr;       // (T, G)
};

}  // namespace meshplan::kernels
