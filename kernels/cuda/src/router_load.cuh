// The load of the sequences that a rank's tokens belong to.
#pragma once

#include "device.cuh"
#include "kernels/router.hpp"

namespace meshplan::kernels::cuda {

/// Tokens of expert x in the sequence of token t, on all ranks.
__device__ inline float load_of(const SequenceCounts& counts, int experts, std::int64_t t, int x) {
  const std::int64_t sequence = (counts.first_token + t) / counts.seq_len;
  float load = 0.0F;
  for (int part = 0; part < counts.parts; ++part)
    load += counts.load[(part * counts.sequences + sequence) * experts + x];
  return load;
}

}  // namespace meshplan::kernels::cuda
