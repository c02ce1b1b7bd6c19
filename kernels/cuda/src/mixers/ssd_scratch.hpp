// What the kernels of a state-space mixer leave each other in scratch, and the first of them.
#pragma once

#include "device/context.hpp"
#include "kernels/mixers/ssd.hpp"

namespace meshplan::kernels::cuda {

/// Steps dt' and running sums of dt' A since the chunk's begin, each sum a multiple of 2^-8 and a
/// small rest, so that differences are exact to fp32; and where documents begin.
struct SsdDecays {
  float* step = nullptr;          // (T, H)
  float* high = nullptr;          // (T, H)
  float* low = nullptr;           // (T, H)
  std::int32_t* begin = nullptr;  // (T) in the chunk, -1 = before it; null = all before it
};

struct SsdScratch {
  SsdDecays decays;
  // backward only
  float* x_dot = nullptr;        // (T, H): x times the gradient of x dt'
  float* end_dot = nullptr;      // (T, H): of it, what comes through the state behind the chunk
  float* d_dot = nullptr;        // (T, H): x dy
  double* decay_grad = nullptr;  // (T, H)
  float* state_grads = nullptr;  // (B, K, H, P, N): of the state behind each chunk
  float* partials = nullptr;     // (B K, 3 H): of a_log, d and dt_bias
  std::int64_t bytes = 0;
};

/// @param memory  null to ask for `bytes`
SsdScratch ssd_scratch(const SsdForward& op, std::byte* memory);
SsdScratch ssd_scratch(const SsdBackward& op, std::byte* memory);

/// Fills in `decays`.
void enqueue_ssd_decays(const Context& context, const SsdForward& op, const SsdDecays& decays);
void enqueue_ssd_decays(const Context& context, const SsdBackward& op, const SsdDecays& decays);

}  // namespace meshplan::kernels::cuda
