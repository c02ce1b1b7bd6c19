// Memory that outlives a task, planned from a stage's task list: for lowering, which needs
// the addresses, and for the estimator, which needs the sum.
#pragma once

#include <array>
#include <vector>

#include "program/program.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::program {

struct ActivationPlan {
  std::int64_t bytes = 0;         // of Region::Saved
  std::vector<KeptBytes> places;  // offset by layer * num_microbatches + microbatch, and Keep
  BoundarySlots boundary;
  int transient_slots = 1;  // two where a forward and a backward overlap
};

/// What a chunk keeps of a micro-batch: its layers' parts. Inputs that only the
/// forward pass reads take turns in two places, for one is read while the next is written.
class ChunkKeeps {
 public:
  /// Layers in the order of the forward pass.
  /// @param input  what the layer's input is kept as
  void add(const KeptBytes& layer, std::optional<Keep> input = {});
  const KeptBytes& bytes() const { return bytes_; }
  /// What a layer keeps, and where its inputs that only the forward pass reads begin among all of
  /// them.
  struct Layer {
    KeptBytes bytes{};
    std::int64_t in_forward = 0;
  };
  const std::vector<Layer>& layers() const { return layers_; }
  /// What the first layer's input is kept as.
  std::optional<Keep> input() const { return input_; }

 private:
  KeptBytes bytes_{};
  bool second_ = false;  // place for the next input
  std::vector<Layer> layers_;
  std::optional<Keep> input_;
};

/// Places everything that stage `stage` keeps between tasks, layer by layer, such that what lives
/// at the same time does not overlap: task by task, what lives longest first, each at the lowest
/// free place (first fit). Where that takes more than lives at once, other ways are tried, and the
/// tightest is taken: what is brief or large from above, or each in the smallest free place. An
/// output that goes to the next chunk of the same rank is written where that chunk keeps its input,
/// so that one lives from then on. An input that is received lives from the task before: where it
/// lies nobody is at work then, and the transfer need not wait for memory.
/// @param per_chunk  what each chunk keeps of a micro-batch
/// @param training   false: a forward-only pass, which keeps nothing beyond its task
/// @param has_backward  by chunk: do gradients pass it? empty = all
ActivationPlan plan_activations(const Schedule& schedule, int stage, int num_microbatches,
                                const std::vector<ChunkKeeps>& per_chunk, bool training = true,
                                std::vector<bool> has_backward = {});

/// Micro-batches of which a chunk keeps something at once, by Keep.
using KeptCounts = std::array<int, kNumKeeps>;

/// What the fullest tasks of a stage keep, by chunk: whatever it is that chunks keep of a
/// micro-batch, the most bytes that live at once (kept_by_task) live in one of them. No placement
/// undercuts them, and plan_activations reaches them where every backward is whole and a rank has
/// one chunk. @returns such that none has less than another everywhere
std::vector<std::vector<KeptCounts>> fullest_tasks(const Schedule& schedule, int stage,
                                                   int num_microbatches);

struct StageSlots {
  BoundarySlots boundary;
  int transient = 1;  // two where a forward and a backward overlap
};
StageSlots stage_slots(const Schedule& schedule, int stage, int num_microbatches);

/// What a stage keeps: bytes that live while a task runs, and from its end until the next begins.
struct TaskMemory {
  std::int64_t during = 0;
  std::int64_t after = 0;
};

/// @returns in the order of the stage's tasks
std::vector<TaskMemory> kept_by_task(const Schedule& schedule, int stage, int num_microbatches,
                                     const std::vector<KeptBytes>& per_chunk);

}  // namespace meshplan::program
