#include "stacks/memory/sharded_memory.hpp"

#include <algorithm>

#include "core/index.hpp"
#include "prices/element_bytes.hpp"
#include "stacks/shard_prices.hpp"

namespace meshplan::sim {
namespace {

/// The largest of the layers, each on its own.
struct LargestLayer {
  double gathered = 0;     // bytes of its parameters
  double trained = 0;      // parameters
  double working_set = 0;  // bytes of everything that its backward reads
  double dropped = 0;      // what forward makes of it and does not keep
};

/// Bytes of parameters that are gathered.
double bytes_gathered(const LayerWork& layer, const TrainingRun& run,
                      const ExecutionProfile& profile) {
  const double trained = layer.trained.all();
  return trained * gathered_bytes(run, profile) +
         (layer.parameters.all() - trained) * frozen_gathered_bytes(run, profile);
}

LargestLayer largest_layer(const StageWork& work, const TrainingRun& run,
                           const ExecutionProfile& profile) {
  LargestLayer largest;
  for (const ChunkWork& chunk : work.stages.front())
    for (const LayerCount& layers : chunk.layers) {
      const LayerWork& layer = work.works[at(layers.work)];
      largest.gathered = std::max(largest.gathered, bytes_gathered(layer, run, profile));
      largest.trained = std::max(largest.trained, layer.trained.all());
      largest.working_set = std::max(largest.working_set, layer.transient_bytes);
      largest.dropped = std::max(largest.dropped, layer.transient_bytes - layer.saved_bytes);
    }
  return largest;
}

}  // namespace

ShardedPeak sharded_peak(const TrainingRun& run, const ExecutionProfile& profile,
                         const StageWork& work, const RunMemory& kept) {
  const LargestLayer layer = largest_layer(work, run, profile);
  const double gathered = layer.gathered;
  const double summed = layer.trained * profile.reduce_bytes;
  const double head = work.head.parameters.dense * kHalfBytes;
  const double head_gradient = work.head.trained.dense * kHalfBytes;
  const double embedding = work.tied ? 0 : work.embedding.parameters.dense * kHalfBytes;
  const double embedding_gradient = work.tied ? 0 : work.embedding.trained.dense * kHalfBytes;
  // One unit of both stays gathered for the whole step, and the gradient of the head until its end.
  const auto in_units = [&](double first, double second) {
    return profile.head_in_own_unit ? std::max(first, second) : first + second;
  };
  const double root = in_units(head, embedding);
  const double held = profile.head_in_own_unit ? 0 : root + head_gradient;

  const double at_head = (profile.head_in_own_unit ? head : root) + gathered +
                         work.head.logits * profile.logit_bytes + work.head.saved_bytes;
  const double live =
      std::min(profile.live_parameters, work.parameters(0).all()) * gathered_bytes(run, profile);
  const double ahead = std::max(2 * gathered, live);
  const double in_layer = ahead + summed + std::max(layer.working_set, layer.trained * kHalfBytes);
  const bool one_microbatch = run.num_microbatches() == 1;

  ShardedPeak peak;
  peak.allocated = std::max(at_head - (one_microbatch ? kept.gradients : 0), held + in_layer);
  peak.allocated =
      std::max(peak.allocated, work.head.logits * profile.metric_logit_bytes - kept.activations);

  double pools = 0;
  if (profile.shard_copies == ShardCopies::All) pools = std::max(root, ahead);
  if (profile.shard_copies == ShardCopies::Gradients && profile.reduce_bytes > kHalfBytes)
    pools = std::max(
        summed, in_units(head_gradient, embedding_gradient) / kHalfBytes * profile.reduce_bytes);
  const double logit_blocks = std::max(profile.logit_block_bytes, profile.logit_bytes);
  const double blocks = work.head.logits * logit_blocks + work.head.saved_bytes;
  peak.reserved = pools + root + ahead + std::max(layer.dropped + blocks, in_layer);
  peak.reserved = std::max(peak.reserved, peak.allocated);
  return peak;
}

}  // namespace meshplan::sim
