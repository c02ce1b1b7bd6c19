#include "program/schedule/schedule.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "core/error.hpp"
#include "core/index.hpp"

namespace meshplan::program {
namespace {

struct Seen {
  int forward = 0;
  int input = 0;
  int weight = 0;
};

Task later(Task task, int microbatches) {
  task.microbatch += microbatches;
  if (task.kind == TaskKind::Overlapped) task.backward_microbatch += microbatches;
  return task;
}

// Each stage runs its list in order; a pass over all stages that starts nothing is a circular wait.
class WaitCheck {
 public:
  WaitCheck(const Schedule& schedule, int num_microbatches)
      : schedule_(schedule),
        num_microbatches_(num_microbatches),
        forward_done_(at(schedule.num_virtual_stages() * num_microbatches), false),
        backward_done_(forward_done_),
        next_(schedule.tasks.size(), 0) {}

  std::vector<std::string> run() {
    for (bool progressed = true; progressed;) {
      progressed = false;
      for (int stage = 0; stage < schedule_.num_stages(); ++stage)
        progressed = advance(stage) || progressed;
    }
    std::vector<std::string> errors;
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      const auto& tasks = schedule_.tasks[at(stage)];
      const std::size_t stuck = next_[at(stage)];
      if (stuck < tasks.size())
        errors.push_back(fmt::format(
            "stage {} waits forever at its task {} (micro-batch {}, chunk {}): circular wait",
            stage, stuck, tasks[stuck].microbatch, tasks[stuck].chunk));
    }
    return errors;
  }

 private:
  std::size_t index(int virtual_stage, int microbatch) const {
    return at(virtual_stage * num_microbatches_ + microbatch);
  }
  int virtual_stage_of(int stage, const Task& part) const {
    return virtual_stage(schedule_.placement, schedule_.num_stages(), {stage, part.chunk});
  }

  bool ready(int stage, const Task& part) const {
    const int own = virtual_stage_of(stage, part);
    if (part.kind == TaskKind::Forward)
      return own == 0 || forward_done_[index(own - 1, part.microbatch)];
    if (!gives_input_gradient(part)) return backward_done_[index(own, part.microbatch)];
    return forward_done_[index(own, part.microbatch)] &&
           (own + 1 == schedule_.num_virtual_stages() ||
            backward_done_[index(own + 1, part.microbatch)]);
  }

  bool advance(int stage) {
    const auto& tasks = schedule_.tasks[at(stage)];
    std::size_t& next = next_[at(stage)];
    const std::size_t before = next;
    for (; next < tasks.size(); ++next) {
      const TaskParts parts = parts_of(tasks[next]);
      if (!std::ranges::all_of(parts, [&](const Task& part) { return ready(stage, part); })) break;
      for (const Task& part : parts) {
        const std::size_t own = index(virtual_stage_of(stage, part), part.microbatch);
        if (part.kind == TaskKind::Forward) forward_done_[own] = true;
        if (gives_input_gradient(part)) backward_done_[own] = true;
      }
    }
    return next > before;
  }

  const Schedule& schedule_;
  int num_microbatches_;
  std::vector<bool> forward_done_;  // by virtual stage and micro-batch
  std::vector<bool> backward_done_;
  std::vector<std::size_t> next_;  // of each stage: the task that it is at
};

std::vector<std::string> wrong_counts(const Schedule& schedule, int num_microbatches) {
  std::vector<std::string> errors;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    // A list that is far too short would need more memory to say what is missing.
    const std::int64_t needed = std::int64_t{num_microbatches} * schedule.num_chunks;
    std::int64_t given = 0;
    for (const Task& task : schedule.tasks[at(stage)])
      given += static_cast<int>(parts_of(task).size());
    if (given < needed)
      return {fmt::format("stage {}: {} tasks, but {} micro-batches of {} chunk{} need at least {}",
                          stage, given, num_microbatches, schedule.num_chunks,
                          schedule.num_chunks == 1 ? "" : "s", needed)};
    std::vector<Seen> seen(static_cast<std::size_t>(needed));
    for (const Task& task : schedule.tasks[at(stage)])
      for (const Task& part : parts_of(task)) {
        if (part.microbatch < 0 || part.microbatch >= num_microbatches || part.chunk < 0 ||
            part.chunk >= schedule.num_chunks)
          return {fmt::format("stage {}: micro-batch {} of chunk {} does not exist", stage,
                              part.microbatch, part.chunk)};
        Seen& entry = seen[at(part.chunk * num_microbatches + part.microbatch)];
        entry.forward += part.kind == TaskKind::Forward ? 1 : 0;
        entry.input += gives_input_gradient(part) ? 1 : 0;
        entry.weight += gives_weight_gradient(part) ? 1 : 0;
      }
    for (int chunk = 0; chunk < schedule.num_chunks; ++chunk)
      for (int m = 0; m < num_microbatches; ++m) {
        const Seen& entry = seen[at(chunk * num_microbatches + m)];
        const auto expect_once = [&](const char* what, int count) {
          if (count != 1)
            errors.push_back(
                fmt::format("stage {}: {} of micro-batch {} (chunk {}) runs {} times, not once",
                            stage, what, m, chunk, count));
        };
        expect_once("forward", entry.forward);
        expect_once("backward", entry.input);
        expect_once("weight gradient", entry.weight);
      }
  }
  return errors;
}

}  // namespace

TaskParts parts_of(const Task& task) {
  if (task.kind != TaskKind::Overlapped) return TaskParts(task);
  return {Task{.kind = TaskKind::Forward, .microbatch = task.microbatch, .chunk = task.chunk},
          Task{.kind = TaskKind::BackwardFull,
               .microbatch = task.backward_microbatch,
               .chunk = task.backward_chunk}};
}

bool gives_input_gradient(const Task& task) {
  return task.kind == TaskKind::BackwardFull || task.kind == TaskKind::BackwardInput;
}

bool gives_weight_gradient(const Task& task) {
  return task.kind == TaskKind::BackwardFull || task.kind == TaskKind::BackwardWeight;
}

int virtual_stage(ChunkPlacement placement, int num_stages, ChunkPlace place) {
  const bool returns = placement == ChunkPlacement::V && place.chunk % 2 == 1;
  return place.chunk * num_stages + (returns ? num_stages - 1 - place.stage : place.stage);
}

ChunkPlace place_of(ChunkPlacement placement, int num_stages, int virtual_stage) {
  const ChunkPlace loop{.stage = virtual_stage % num_stages, .chunk = virtual_stage / num_stages};
  const bool returns = placement == ChunkPlacement::V && loop.chunk % 2 == 1;
  return {.stage = returns ? num_stages - 1 - loop.stage : loop.stage, .chunk = loop.chunk};
}

bool only_repeats(const std::vector<Task>& longer, const std::vector<Task>& tasks, int first,
                  int end, int microbatches) {
  const int length = end - first;
  const int missing = static_cast<int>(longer.size()) - static_cast<int>(tasks.size());
  if (first < 0 || length <= 0 || missing < 0 || missing % length != 0) return false;
  for (int i = 0; i < static_cast<int>(longer.size()); ++i) {
    const int beyond = i - end;
    const int times = beyond < 0 ? 0 : std::min(beyond / length + 1, missing / length);
    const int source = i - times * length;
    if (longer[at(i)] != later(tasks[at(source)], times * microbatches)) return false;
  }
  return true;
}

bool has_whole_backwards(ScheduleKind kind) {
  return kind == ScheduleKind::GPipe || kind == ScheduleKind::OneFOneB ||
         kind == ScheduleKind::Interleaved;
}

bool overlaps_tasks(ScheduleKind kind) {
  return kind == ScheduleKind::OverlappedOneFOneB || kind == ScheduleKind::DualPipeV;
}

bool loops_over_chunks(ScheduleKind kind) {
  return kind == ScheduleKind::Interleaved || kind == ScheduleKind::OverlappedOneFOneB;
}

bool splits_backward(const Schedule& schedule) {
  return std::ranges::any_of(schedule.tasks, [](const std::vector<Task>& tasks) {
    return std::ranges::find(tasks, TaskKind::BackwardInput, &Task::kind) != tasks.end();
  });
}

double most_in_flight(const Schedule& schedule, int stage, std::span<const double> of_chunk) {
  require_invariant(std::ssize(of_chunk) >= schedule.num_chunks, "what each chunk keeps is known");
  double held = 0;
  double most = 0;
  for (const Task& task : schedule.tasks[at(stage)])
    for (const Task& part : parts_of(task)) {
      if (part.kind == TaskKind::Forward) most = std::max(most, held += of_chunk[at(part.chunk)]);
      if (gives_weight_gradient(part)) held -= of_chunk[at(part.chunk)];
    }
  return most;
}

int max_in_flight(const Schedule& schedule, int stage) {
  int chunks = schedule.num_chunks;
  for (const Task& task : schedule.tasks[at(stage)])
    for (const Task& part : parts_of(task)) chunks = std::max(chunks, part.chunk + 1);
  const std::vector<double> one_each(at(chunks), 1);
  return static_cast<int>(most_in_flight(schedule, stage, one_each));
}

std::vector<std::string> schedule_errors(const Schedule& schedule, int num_microbatches) {
  std::vector<std::string> errors = wrong_counts(schedule, num_microbatches);
  if (errors.empty()) errors = WaitCheck(schedule, num_microbatches).run();
  return errors;
}

}  // namespace meshplan::program
