#include "program/schedule.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"

namespace meshplan::program {
namespace {

Task forward(int microbatch) {
  return {.kind = TaskKind::Forward, .microbatch = microbatch};
}
Task backward(int microbatch) {
  return {.kind = TaskKind::BackwardFull, .microbatch = microbatch};
}

bool is_forward(const Task& task) {
  return task.kind == TaskKind::Forward;
}
// The part of the backward pass that produces the gradient for the stage before.
bool gives_input_gradient(const Task& task) {
  return task.kind == TaskKind::BackwardFull || task.kind == TaskKind::BackwardInput;
}

struct Seen {
  int forward = 0;
  int input = 0;
  int weight = 0;
};

// Each stage runs its list in order; a pass over all stages that starts nothing is a circular wait.
std::vector<std::string> circular_waits(const Schedule& schedule, int num_microbatches,
                                        int num_chunks) {
  const int num_stages = static_cast<int>(schedule.tasks.size());
  const int num_virtual = num_stages * num_chunks;
  const auto flags = [&] {
    return std::vector<bool>(static_cast<std::size_t>(num_virtual * num_microbatches), false);
  };
  std::vector<bool> forward_done = flags();
  std::vector<bool> backward_done = flags();
  const auto at = [&](int virtual_stage, int microbatch) {
    return static_cast<std::size_t>(virtual_stage * num_microbatches + microbatch);
  };
  std::vector<std::size_t> next(schedule.tasks.size(), 0);
  bool progressed = true;
  while (progressed) {
    progressed = false;
    for (int stage = 0; stage < num_stages; ++stage) {
      const auto& tasks = schedule.tasks[static_cast<std::size_t>(stage)];
      for (std::size_t& i = next[static_cast<std::size_t>(stage)]; i < tasks.size(); ++i) {
        const Task& task = tasks[i];
        const int virtual_stage = task.chunk * num_stages + stage;
        const std::size_t own = at(virtual_stage, task.microbatch);
        if (is_forward(task)) {
          if (virtual_stage > 0 && !forward_done[at(virtual_stage - 1, task.microbatch)]) break;
          forward_done[own] = true;
        } else if (gives_input_gradient(task)) {
          if (!forward_done[own]) break;
          if (virtual_stage + 1 < num_virtual &&
              !backward_done[at(virtual_stage + 1, task.microbatch)])
            break;
          backward_done[own] = true;
        } else if (!backward_done[own]) {
          break;
        }
        progressed = true;
      }
    }
  }
  std::vector<std::string> errors;
  for (int stage = 0; stage < num_stages; ++stage) {
    const auto& tasks = schedule.tasks[static_cast<std::size_t>(stage)];
    const std::size_t stuck = next[static_cast<std::size_t>(stage)];
    if (stuck < tasks.size())
      errors.push_back(fmt::format(
          "stage {} waits forever at its task {} (micro-batch {}, chunk {}): circular wait", stage,
          stuck, tasks[stuck].microbatch, tasks[stuck].chunk));
  }
  return errors;
}

}  // namespace

Schedule gpipe(int num_stages, int num_microbatches) {
  std::vector<Task> tasks;
  for (int m = 0; m < num_microbatches; ++m) tasks.push_back(forward(m));
  for (int m = 0; m < num_microbatches; ++m) tasks.push_back(backward(m));
  return {std::vector<std::vector<Task>>(static_cast<std::size_t>(num_stages), tasks)};
}

Schedule one_f_one_b(int num_stages, int num_microbatches) {
  Schedule schedule;
  for (int stage = 0; stage < num_stages; ++stage) {
    const int warmup = std::min(num_stages - 1 - stage, num_microbatches);
    std::vector<Task> tasks;
    for (int m = 0; m < warmup; ++m) tasks.push_back(forward(m));
    for (int m = warmup; m < num_microbatches; ++m) {
      tasks.push_back(forward(m));
      tasks.push_back(backward(m - warmup));
    }
    for (int m = num_microbatches - warmup; m < num_microbatches; ++m) tasks.push_back(backward(m));
    schedule.tasks.push_back(std::move(tasks));
  }
  return schedule;
}

Schedule make_schedule(ScheduleKind kind, int num_stages, int num_microbatches) {
  switch (kind) {
    case ScheduleKind::GPipe:
      return gpipe(num_stages, num_microbatches);
    case ScheduleKind::OneFOneB:
      return one_f_one_b(num_stages, num_microbatches);
  }
  throw InvariantError("schedule without a generator");
}

int max_in_flight(const Schedule& schedule, int stage) {
  int held = 0;
  int most = 0;
  for (const Task& task : schedule.tasks[static_cast<std::size_t>(stage)]) {
    if (is_forward(task)) most = std::max(most, ++held);
    if (task.kind == TaskKind::BackwardFull || task.kind == TaskKind::BackwardWeight) --held;
  }
  return most;
}

std::vector<std::string> schedule_errors(const Schedule& schedule, int num_microbatches,
                                         int num_chunks) {
  std::vector<std::string> errors;
  for (std::size_t stage = 0; stage < schedule.tasks.size(); ++stage) {
    std::vector<Seen> seen(static_cast<std::size_t>(num_microbatches * num_chunks));
    for (const Task& task : schedule.tasks[stage]) {
      if (task.microbatch < 0 || task.microbatch >= num_microbatches || task.chunk < 0 ||
          task.chunk >= num_chunks) {
        errors.push_back(fmt::format("stage {}: micro-batch {} of chunk {} does not exist", stage,
                                     task.microbatch, task.chunk));
        return errors;
      }
      Seen& entry = seen[static_cast<std::size_t>(task.chunk * num_microbatches + task.microbatch)];
      if (is_forward(task)) ++entry.forward;
      if (gives_input_gradient(task)) ++entry.input;
      if (task.kind == TaskKind::BackwardFull || task.kind == TaskKind::BackwardWeight)
        ++entry.weight;
    }
    for (int chunk = 0; chunk < num_chunks; ++chunk)
      for (int m = 0; m < num_microbatches; ++m) {
        const Seen& entry = seen[static_cast<std::size_t>(chunk * num_microbatches + m)];
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
  if (errors.empty()) errors = circular_waits(schedule, num_microbatches, num_chunks);
  return errors;
}

}  // namespace meshplan::program
