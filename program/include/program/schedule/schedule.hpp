// A pipeline schedule is data: generators emit it, one validator checks it, the simulator and the
// runtime walk it. docs/pipeline.md draws every schedule.
//
// The model is cut into pp * vpp virtual stages, numbered in the order of the forward pass; each
// rank of the pipeline (a stage) holds vpp of them, its chunks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshplan::program {

enum class TaskKind { Forward, BackwardFull, BackwardInput, BackwardWeight, Overlapped };

/// Work of one stage on one micro-batch. `chunk` is the virtual stage held by this rank.
/// Overlapped runs this forward together with the full backward of (`backward_microbatch`,
/// `backward_chunk`).
struct Task {
  TaskKind kind = TaskKind::Forward;
  int microbatch = 0;
  int chunk = 0;
  int backward_microbatch = 0;
  int backward_chunk = 0;
  bool operator==(const Task&) const = default;
};

/// One task or two, without memory of their own on the heap: schedules have millions.
class TaskParts {
 public:
  explicit TaskParts(const Task& only) : parts_{only}, size_(1) {}
  TaskParts(const Task& first, const Task& second) : parts_{first, second}, size_(2) {}

  const Task* begin() const { return parts_.data(); }
  const Task* end() const { return begin() + size_; }
  std::size_t size() const { return size_; }
  const Task& front() const { return parts_.front(); }
  const Task& back() const { return parts_[size_ - 1]; }

 private:
  std::array<Task, 2> parts_;
  std::size_t size_;
};

/// A forward and a full backward for an overlapped task, the task itself for all others.
TaskParts parts_of(const Task& task);

/// Does it produce the gradient for the virtual stage before?
bool gives_input_gradient(const Task& task);
/// Does it complete the gradients of the weights for this micro-batch?
bool gives_weight_gradient(const Task& task);

/// Which rank holds which virtual stage.
enum class ChunkPlacement {
  Loop,  // chunk c of rank r is virtual stage c * pp + r (Narayanan et al. 2021, section 2.2.2)
  V,     // even chunks as in a loop, odd ones from the last rank to the first: for two chunks, rank
         // r holds r and 2 pp - 1 - r (Qi et al. 2023, section 6)
};

struct ChunkPlace {
  int stage = 0;
  int chunk = 0;
  bool operator==(const ChunkPlace&) const = default;
};
int virtual_stage(ChunkPlacement placement, int num_stages, ChunkPlace place);
ChunkPlace place_of(ChunkPlacement placement, int num_stages, int virtual_stage);

/// tasks[stage], in execution order.
struct Schedule {
  std::vector<std::vector<Task>> tasks;
  int num_chunks = 1;
  ChunkPlacement placement = ChunkPlacement::Loop;

  int num_stages() const { return static_cast<int>(tasks.size()); }
  int num_virtual_stages() const { return num_stages() * num_chunks; }
  bool operator==(const Schedule&) const = default;
};

/// Custom: the tasks are written in the plan.
enum class ScheduleKind {
  GPipe,
  OneFOneB,
  Interleaved,
  OverlappedOneFOneB,
  ZbH1,
  ZbV,
  DualPipeV,
  Custom
};

/// Chunks that each rank has under such a schedule; absent where the plan says how many: two or
/// more interleaved ones, any number of custom ones and under 1F1B in pairs.
std::optional<int> fixed_chunks(ScheduleKind kind);
/// The fewest that they can be.
int fewest_chunks(ScheduleKind kind);

/// Is `longer` what `tasks` would be with [first, end) again and again behind `end`, each time
/// `microbatches` later? Both are tasks of one stage.
bool only_repeats(const std::vector<Task>& longer, const std::vector<Task>& tasks, int first,
                  int end, int microbatches);

/// Does every schedule of the kind run each backward as a whole, beside no forward?
bool has_whole_backwards(ScheduleKind kind);
/// Does it run forwards together with backwards of other micro-batches?
bool overlaps_tasks(ScheduleKind kind);
/// Are its chunks in a loop, as many as the plan says?
bool loops_over_chunks(ScheduleKind kind);

/// Does any task leave its weight gradients to a later one?
bool splits_backward(const Schedule& schedule);

/// The most micro-batches of chunks whose activations `stage` holds at once, from their forward to
/// their last gradient.
int max_in_flight(const Schedule& schedule, int stage);
/// The most of what they keep, where a micro-batch keeps `of_chunk` in each chunk of the stage.
double most_in_flight(const Schedule& schedule, int stage, std::span<const double> of_chunk);

/// Every rule that `schedule` breaks, in words; empty if it is valid: each forward and backward
/// exactly once per micro-batch and chunk, forward before backward, and no circular wait between
/// stages (each stage runs its list in order; a forward waits for the virtual stage before, a
/// backward for the one after, an overlapped task for both).
std::vector<std::string> schedule_errors(const Schedule& schedule, int num_microbatches);

}  // namespace meshplan::program
