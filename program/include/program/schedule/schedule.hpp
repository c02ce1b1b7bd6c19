// A pipeline schedule is data: generators emit it, one validator checks it, the simulator and the
// runtime walk it. docs/pipeline.md draws every schedule.
//
// The model is cut into pp * vpp virtual stages, numbered in the order of the forward pass; each
// rank of the pipeline (a stage) holds vpp of them, its chunks.
#pragma once

#include <cstdint>
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

/// A forward and a full backward for an overlapped task, the task itself for all others.
std::vector<Task> parts_of(const Task& task);

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
enum class ScheduleKind { GPipe, OneFOneB, Interleaved, ZbH1, ZbV, DualPipeV, Custom };

/// All forwards, then all backwards. Huang et al. 2019, section 2.3.
Schedule gpipe(int num_stages, int num_microbatches);

/// Warm-up of pp - 1 - stage forwards, then one forward and one backward in turn.
/// Narayanan et al. 2021 (PipeDream-flush), section 2.2.1.
Schedule one_f_one_b(int num_stages, int num_microbatches);

/// 1F1B over `num_chunks` chunks a rank: micro-batches go through the chunks in groups of pp.
/// Narayanan et al. 2021, section 2.2.2. Any number of micro-batches: a last group that is not
/// whole takes the time of a whole one.
Schedule interleaved(int num_stages, int num_microbatches, int num_chunks);

/// 1F1B whose weight gradients are put off to fill the cool-down, by `stage` micro-batches, so that
/// no stage holds more than 1F1B's first one. Qi et al. 2023, section 3.1 and figure 3.
Schedule zb_h1(int num_stages, int num_microbatches);

/// Two chunks a rank in a V, weight gradients apart. Without bubble where forward, input gradient
/// and weight gradient take equally long. Qi et al. 2023, section 6.
Schedule zb_v(int num_stages, int num_microbatches);

/// Two chunks a rank in a V; in the steady state each forward is overlapped with a backward.
/// DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1, cut in half as in DualPipe's repository.
Schedule dualpipe_v(int num_stages, int num_microbatches);

/// Micro-batches that a schedule is made for before those that do not exist are left out: enough to
/// fill the pipeline of a V, and whole groups where it is interleaved.
std::int64_t generated_microbatches(ScheduleKind kind, int num_stages,
                                    std::int64_t num_microbatches);

/// @param num_chunks  read by Interleaved only
Schedule make_schedule(ScheduleKind kind, int num_stages, int num_microbatches, int num_chunks = 1);

/// Is `longer` what `tasks` would be with [first, end) again and again behind `end`, each time
/// `microbatches` later? Both are tasks of one stage.
bool only_repeats(const std::vector<Task>& longer, const std::vector<Task>& tasks, int first,
                  int end, int microbatches);

/// Does any task leave its weight gradients to a later one?
bool splits_backward(const Schedule& schedule);

/// The most micro-batches of chunks whose activations `stage` holds at once, from their forward to
/// their last gradient.
int max_in_flight(const Schedule& schedule, int stage);

/// Every rule that `schedule` breaks, in words; empty if it is valid: each forward and backward
/// exactly once per micro-batch and chunk, forward before backward, and no circular wait between
/// stages (each stage runs its list in order; a forward waits for the virtual stage before, a
/// backward for the one after, an overlapped task for both).
std::vector<std::string> schedule_errors(const Schedule& schedule, int num_microbatches);

/// One line a stage in PyTorch's form (torch.distributed.pipelining, `compute_only`): "0F0,0F1,0B0"
/// are forward and backward of virtual stage 0; I and W are the halves of a backward,
/// "(0F1;3B0)OVERLAP_F_B" is an overlapped pair.
std::string to_csv(const Schedule& schedule);

/// Reads what to_csv() or PyTorch writes. Empty cells (idle) are skipped, and so are PyTorch's
/// communication actions, for lowering inserts its own.
/// @throws ConfigError naming file, line and cell
Schedule parse_schedule_csv(std::string_view text, const std::string& file);

}  // namespace meshplan::program
