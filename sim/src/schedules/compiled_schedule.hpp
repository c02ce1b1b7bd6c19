// A pipeline schedule prepared for being priced again and again: its tasks in an order in which
// each finds what it needs, and how many micro-batches each chunk keeps at once; either when it is
// first asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/uncovered.hpp"
#include "program/memory/activations.hpp"
#include "program/schedule/schedule.hpp"
#include "schedules/task_solver.hpp"

namespace meshplan::sim {

/// Kinds of tasks that a schedule has.
enum class TaskMix {
  Full,
  Split,
  Overlapped,  // and some that are split
  OverlappedFull,
};
/// Are weight gradients put off by some?
constexpr bool splits(TaskMix mix) {
  return mix == TaskMix::Split || mix == TaskMix::Overlapped;
}
constexpr bool overlaps(TaskMix mix) {
  return mix == TaskMix::Overlapped || mix == TaskMix::OverlappedFull;
}

/// What a stage keeps from task to task.
struct StageActivations {
  double bytes = 0;
  int boundary_slots = 1;
  int transient_slots = 1;
};

class CompiledSchedule {
 public:
  explicit CompiledSchedule(program::Schedule schedule);

  const program::Schedule& schedule() const { return schedule_; }
  TaskMix mix() const { return mix_; }
  int num_microbatches() const { return num_microbatches_; }

  /// solve_tasks without `begin`. `out` is overwritten; its memory is used again.
  void solve(const SolverInput& input, SolverOutput& out);

  /// The most that a stage keeps at once.
  /// @param per_chunk  bytes that each chunk of the stage keeps of a micro-batch
  /// @param num_microbatches  that the schedule stands for: a chunk that keeps all of this one's
  /// (GPipe) keeps as many
  StageActivations activations(int stage, std::span<const program::KeptBytes> per_chunk,
                               int num_microbatches);

 private:
  /// A task of a stage whose devices are its own: everything is an index, so that a step has no
  /// branch.
  struct Step {
    std::int32_t source = 0;    // into `ends_`; slot 0 is always 0: needs nothing
    std::int32_t result = 0;    // into `ends_`; slot 1 is never read
    std::int32_t duration = 0;  // into `durations_`
    std::int32_t delay = 0;     // into `delays_`
    std::int32_t gradient = 0;  // into `gradients_`; slot 0 is never read
    std::int32_t stage = 0;
  };
  /// Micro-batches that each chunk keeps during a task.
  struct Load {
    std::vector<int> live;        // by chunk
    std::optional<int> between;   // chunk whose gradients are at hand
    std::optional<int> arriving;  // chunk whose input is received for the next task
    bool operator==(const Load&) const = default;
  };
  struct CoversLoad {
    bool operator()(const Load& more, const Load& less) const;
  };
  struct StageLoads {
    Uncovered<Load, CoversLoad> fullest;
    int boundary_slots = 1;
    int transient_slots = 1;
    std::vector<std::vector<program::KeptCounts>> counts;  // instead, where a chunk keeps what
                                                           // another made, or gradients are split
  };

  bool runs_alone(const SolverInput& input) const;
  void compile_steps();
  StageLoads compile_stage(int stage) const;
  std::optional<int> received_by(int stage, const program::Task& task) const;
  Step step_of(int stage, const program::Task& task, std::vector<bool>& has_gradients) const;
  std::int32_t slot(bool forward, int virtual_stage, int microbatch) const;

  program::Schedule schedule_;
  TaskMix mix_ = TaskMix::Full;
  int num_microbatches_ = 0;
  std::vector<Step> steps_;
  std::vector<std::vector<int>> counts_;          // by stage: how often each duration occurs
  std::vector<std::optional<StageLoads>> loads_;  // by stage
  std::vector<double> ends_, durations_, delays_, gradients_;
};

}  // namespace meshplan::sim
