// What fully sharded units, layers' working sets and the head add to the peak of a stage whose
// parameters are gathered layer by layer, and what PyTorch's caching allocator holds for it.
#pragma once

#include "sim/stacks/run_prediction.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {

struct ShardedPeak {
  double allocated = 0;  // bytes, beside parameters, gradients, optimizer and kept activations
  double reserved = 0;   // beside the same: pools of streams, blocks that nothing else fits into
};

/// Two moments can be the peak. When the loss is differentiated, the activations of all layers and
/// the logits are there, but no gradient of the only micro-batch yet. When a layer is
/// differentiated, its working set, its parameters and those of the layer before it are, what the
/// sum of the layer behind it reads, and at the end its gradients (PyTorch,
/// torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, post_backward: gradients are copied
/// for their sum after the parameters are freed; the sum before is waited for first).
///
/// The allocator keeps a pool for each stream, and a block serves no larger request (PyTorch,
/// c10/cuda/CUDACachingAllocator.cpp, get_free_block). So what is gathered lies beside all else
/// (_fsdp_collectives.py, foreach_all_gather allocates on the stream of its copy; foreach_reduce
/// does for sums of gradients); FSDP 1 gathers into what computes, but widens gradients on a stream
/// of their own (fsdp/_runtime_utils.py, _post_backward_hook). And the logits' blocks are found in
/// none of the layers', whose backward then cuts its own out of the logits'.
/// @param run        shards layers (TrainingRun::shards_layers)
/// A third is there where a stack computes metrics from the logits once backward is over, when no
/// activation is left (ExecutionProfile::metric_logit_bytes).
/// @param kept  gradients and activations beside which the peak stands
ShardedPeak sharded_peak(const TrainingRun& run, const ExecutionProfile& profile,
                         const StageWork& work, const RunMemory& kept);

}  // namespace meshplan::sim
