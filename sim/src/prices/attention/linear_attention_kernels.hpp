// The kernels of linear attention, one after another, as flash-linear-attention and mamba launch
// them.
#pragma once

#include <vector>

#include "sim/prices/linear_attention.hpp"

namespace meshplan::sim {

/// One launch.
struct ChunkKernel {
  double flops = 0;
  double bytes = 0;
  double decays = 0;               // exponentials of a pair of tokens and a channel
  bool chunk_after_chunk = false;  // passes a state on
};

std::vector<ChunkKernel> chunk_kernels(const LinearAttentionWork& work);

}  // namespace meshplan::sim
