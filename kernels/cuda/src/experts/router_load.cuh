// The load of the sequences that a rank's tokens belong to.
#pragma once

#include "device/device.cuh"
#include "kernels/experts/router.hpp"

namespace meshplan::kernels::cuda {

/// Tokens of expert x in the sequence of token t, on all ranks.
__device__ inline float load_of(const SequenceCounts& counts, int experts, std::int64_t t, int x) {
  const int chunks = counts.cp > 1 ? 2 : 1;
  const std::int64_t sequence = (counts.first_token + t) / counts.seq_len / chunks * chunks;
  float load = 0.0F;
  for (int part = 0; part < counts.parts; ++part)
    for (int chunk = 0; chunk < chunks; ++chunk)
      load += counts.load[(part * counts.sequences + sequence + chunk) * experts + x];
  return load;
}

}  // namespace meshplan::kernels::cuda
