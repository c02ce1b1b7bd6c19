// Memory that outlives a task, planned from a stage's task list: for lowering, which needs
// the addresses, and for the estimator, which needs the sum.
#pragma once

#include <vector>

#include "program/program.hpp"
#include "program/schedule.hpp"

namespace meshplan::program {

struct ActivationPlan {
  std::int64_t bytes = 0;         // of Region::Saved
  std::vector<KeptBytes> places;  // offset by chunk * num_microbatches + microbatch, and Keep
  BoundarySlots boundary;
  int transient_slots = 1;  // two where a forward and a backward overlap
};

/// Places everything that stage `stage` keeps between tasks, such that what lives at the same time
/// does not overlap: larger ones first, each at the lowest free place from its first task to its
/// last ("greedy by size", Pisarchyk & Lee 2020, section 5.2). An output that goes to the next
/// chunk of the same rank is written where that chunk keeps its input, so that one lives from then
/// on.
/// @param per_chunk  bytes that each chunk keeps of a micro-batch
/// @param training   false: a forward-only pass, which keeps nothing beyond its task
/// @param has_backward  by chunk: do gradients pass it? empty = all
ActivationPlan plan_activations(const Schedule& schedule, int stage, int num_microbatches,
                                const std::vector<KeptBytes>& per_chunk, bool training = true,
                                std::vector<bool> has_backward = {});

/// What a chunk keeps of a micro-batch: its layers' parts one after the other. Inputs that only the
/// forward pass reads take turns in two places, for one is read while the next is written.
class ChunkKeeps {
 public:
  /// Layers in the order of the forward pass. @returns where the layer's part begins
  KeptBytes add(const KeptBytes& layer);
  const KeptBytes& bytes() const { return bytes_; }

 private:
  KeptBytes bytes_{};
  bool second_ = false;  // place for the next input
};

/// The same without places, in time linear in the tasks: `bytes` is the most that lives at once,
/// which no placement undercuts. The search prices thousands of schedules of hundreds of
/// micro-batches; the greedy placement's cost grows with the square of what lives at once.
ActivationPlan estimate_activations(const Schedule& schedule, int stage, int num_microbatches,
                                    const std::vector<KeptBytes>& per_chunk);

/// What a stage keeps: bytes that live while a task runs, and from its end until the next begins.
struct TaskMemory {
  std::int64_t during = 0;
  std::int64_t after = 0;
};

/// @returns in the order of the stage's tasks; the most of `during` is estimate_activations'
/// `bytes`
std::vector<TaskMemory> kept_by_task(const Schedule& schedule, int stage, int num_microbatches,
                                     const std::vector<KeptBytes>& per_chunk);

}  // namespace meshplan::program
