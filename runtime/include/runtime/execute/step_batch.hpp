#pragma once

#include <cstdint>
#include <vector>

namespace meshplan::runtime {

/// Rows of a step's micro-batches that this rank needs: ids and targets, each (microbatches, T).
/// With packed documents also where these lie, by micro-batch as program::batch_sizes() says.
struct StepBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> targets;  // -1 does not count in the loss
  std::vector<std::int32_t> positions = {};
  std::vector<std::int32_t> key_ranges = {};
  std::vector<std::int32_t> order = {};
  double loss_tokens = 0;  // of the global batch that count in the loss; 0 = all
};

}  // namespace meshplan::runtime
