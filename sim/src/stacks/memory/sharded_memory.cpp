#include "stacks/memory/sharded_memory.hpp"

#include <algorithm>

#include "core/index.hpp"
#include "prices/element_bytes.hpp"
#include "stacks/shard_prices.hpp"

namespace meshplan::sim {
namespace {

/// The largest of the layers, each on its own.
struct LargestLayer {
  double parameters = 0;
  double working_set = 0;  // bytes of everything that its backward reads
  double dropped = 0;      // what forward makes of it and does not keep
};

LargestLayer largest_layer(const StageWork& work) {
  LargestLayer largest;
  for (const ChunkWork& chunk : work.stages.front())
    for (const LayerCount& layers : chunk.layers) {
      const LayerWork& layer = work.works[at(layers.work)];
      largest.parameters =
          std::max(largest.parameters, layer.dense_parameters + layer.expert_parameters);
      largest.working_set = std::max(largest.working_set, layer.transient_bytes);
      largest.dropped = std::max(largest.dropped, layer.transient_bytes - layer.saved_bytes);
    }
  return largest;
}

}  // namespace

ShardedPeak sharded_peak(const TrainingRun& run, const ExecutionProfile& profile,
                         const StageWork& work, double gradients) {
  const LargestLayer layer = largest_layer(work);
  const double gathered = layer.parameters * gathered_bytes(run, profile);
  const double summed = layer.parameters * profile.reduce_bytes;
  const double head = work.head.dense_parameters * kHalfBytes;
  const double embedding = work.tied ? 0 : work.embedding.dense_parameters * kHalfBytes;
  // One unit of both stays gathered for the whole step, and the gradient of the head until its end.
  const double root = profile.head_in_own_unit ? std::max(head, embedding) : head + embedding;
  const double held = profile.head_in_own_unit ? 0 : root + head;

  const double at_head = (profile.head_in_own_unit ? head : root) + gathered +
                         work.head.logits * profile.logit_bytes + work.head.saved_bytes;
  const double in_layer =
      2 * gathered + summed + std::max(layer.working_set, layer.parameters * kHalfBytes);
  const bool one_microbatch = run.num_microbatches() == 1;

  ShardedPeak peak;
  peak.allocated = std::max(at_head - (one_microbatch ? gradients : 0), held + in_layer);

  double pools = 0;
  if (profile.shard_copies == ShardCopies::All) pools = std::max(root, 2 * gathered);
  if (profile.shard_copies == ShardCopies::Gradients && profile.reduce_bytes > kHalfBytes)
    pools = std::max(summed, root / kHalfBytes * profile.reduce_bytes);
  const double logit_blocks = std::max(profile.logit_block_bytes, profile.logit_bytes);
  const double blocks = work.head.logits * logit_blocks + work.head.saved_bytes;
  peak.reserved = pools + root + 2 * gathered + std::max(layer.dropped + blocks, in_layer);
  peak.reserved = std::max(peak.reserved, peak.allocated);
  return peak;
}

}  // namespace meshplan::sim
