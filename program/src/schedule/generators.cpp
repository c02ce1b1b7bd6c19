#include "program/schedule/generators.hpp"

#include <algorithm>
#include <iterator>

#include "core/error.hpp"
#include "schedule/stage_tasks.hpp"
#include "schedule/zero_bubble.hpp"

namespace meshplan::program {
namespace {

/// `warmup` forwards, then one forward and one backward in turn, then the backwards that are left.
std::vector<Task> alternate(const std::vector<Task>& forwards, const std::vector<Task>& backwards,
                            int warmup) {
  std::vector<Task> tasks(forwards.begin(), forwards.begin() + warmup);
  auto next = backwards.begin();
  for (auto task = forwards.begin() + warmup; task != forwards.end(); ++task) {
    tasks.push_back(*task);
    tasks.push_back(*next++);
  }
  tasks.insert(tasks.end(), next, backwards.end());
  return tasks;
}

/// Runs together each forward from `warmup` on and the backward behind it.
std::vector<Task> in_pairs(const std::vector<Task>& tasks, int warmup) {
  std::vector<Task> paired(tasks.begin(), tasks.begin() + warmup);
  for (auto task = tasks.begin() + warmup; task != tasks.end(); ++task) {
    if (task->kind == TaskKind::Forward) continue;
    const Task& before = *std::prev(task);
    const bool pairs = task != tasks.begin() + warmup && before.kind == TaskKind::Forward;
    paired.push_back(pairs ? Task{.kind = TaskKind::Overlapped,
                                  .microbatch = before.microbatch,
                                  .chunk = before.chunk,
                                  .backward_microbatch = task->microbatch,
                                  .backward_chunk = task->chunk}
                           : *task);
  }
  return paired;
}

/// 1F1B over chunks in a loop. Micro-batches go through the chunks in groups of pp, so that a
/// rank's next chunk is fed just when the first of the group has gone round. A last group that is
/// not whole is a whole one with tasks left out: larger groups would have less bubble, but let a
/// stage run further ahead of the next than one message.
/// @param paired  forwards run together with the backwards behind them, after one forward more
Schedule in_groups(int num_stages, int num_microbatches, int num_chunks, bool paired) {
  const auto groups = static_cast<int>(
      generated_microbatches(ScheduleKind::Interleaved, num_stages, num_microbatches) / num_stages);
  std::vector<Task> forwards, backwards;
  for (int group = 0; group < groups; ++group)
    for (int chunk = 0; chunk < num_chunks; ++chunk)
      for (int m = group * num_stages; m < (group + 1) * num_stages; ++m) {
        forwards.push_back(forward(m, chunk));
        backwards.push_back(backward(m, num_chunks - 1 - chunk));
      }
  Schedule schedule{.tasks = {}, .num_chunks = num_chunks};
  for (int stage = 0; stage < num_stages; ++stage) {
    const int ahead =
        2 * (num_stages - 1 - stage) + (num_chunks - 1) * num_stages + (paired ? 1 : 0);
    const int warmup = std::min(ahead, static_cast<int>(forwards.size()));
    std::vector<Task> tasks = alternate(forwards, backwards, warmup);
    if (paired) tasks = in_pairs(tasks, warmup);
    schedule.tasks.push_back(of_first(num_microbatches, tasks));
  }
  return schedule;
}

std::vector<Task> dualpipe_v_stage(int pp, int stage, int num_microbatches) {
  const auto full =
      static_cast<int>(generated_microbatches(ScheduleKind::DualPipeV, pp, num_microbatches));
  const int after = pp - 1 - stage;  // ranks between this one and the turn of the V
  VBuilder v;
  for (int i = 0; i < 2 * after; ++i) v.forward(0);
  for (int i = 0; i <= stage; ++i) {
    v.forward(0);
    v.forward(1);
  }
  for (int i = 0; i < after; ++i) {
    v.both_gradients(1);
    v.forward(1);
  }
  for (int i = 0; i < full - 2 * pp + stage + 1; ++i) {
    if (i == 0 && after == 0) {  // the turn: nothing to overlap with yet
      v.forward(0);
      v.backward(1);
    } else {
      v.overlapped(0, 1);
    }
    v.overlapped(1, 0);
  }
  for (int i = 0; i < after; ++i) {
    v.backward(1);
    v.overlapped(1, 0);
  }
  // Cool-down: from the middle on, input gradients go ahead of weight gradients.
  bool split = false;
  const auto cool_down = [&](int chunk) { split ? v.input_gradient(chunk) : v.backward(chunk); };
  const int half = (stage + 1) / 2;
  for (int i = 0; i <= stage; ++i) {
    if (i == half && stage % 2 == 1) split = true;
    cool_down(1);
    if (i == half && stage % 2 == 0) split = true;
    cool_down(0);
  }
  for (int i = 0; i < after; ++i) {
    v.oldest_weight_gradient();
    cool_down(0);
  }
  for (const int chunk : {1, 0})
    while (v.owes(chunk)) v.oldest_weight_gradient();
  return v.take(num_microbatches);
}

}  // namespace

Schedule gpipe(int num_stages, int num_microbatches) {
  std::vector<Task> tasks;
  for (int m = 0; m < num_microbatches; ++m) tasks.push_back(forward(m));
  for (int m = 0; m < num_microbatches; ++m) tasks.push_back(backward(m));
  return {std::vector<std::vector<Task>>(static_cast<std::size_t>(num_stages), tasks)};
}

Schedule one_f_one_b(int num_stages, int num_microbatches) {
  std::vector<Task> forwards, backwards;
  for (int m = 0; m < num_microbatches; ++m) {
    forwards.push_back(forward(m));
    backwards.push_back(backward(m));
  }
  Schedule schedule;
  for (int stage = 0; stage < num_stages; ++stage)
    schedule.tasks.push_back(
        alternate(forwards, backwards, std::min(num_stages - 1 - stage, num_microbatches)));
  return schedule;
}

Schedule interleaved(int num_stages, int num_microbatches, int num_chunks) {
  if (num_chunks == 1) return one_f_one_b(num_stages, num_microbatches);
  return in_groups(num_stages, num_microbatches, num_chunks, /*paired=*/false);
}

Schedule overlapped_one_f_one_b(int num_stages, int num_microbatches, int num_chunks) {
  return in_groups(num_stages, num_microbatches, num_chunks, /*paired=*/true);
}

Schedule dualpipe_v(int num_stages, int num_microbatches) {
  Schedule schedule{.tasks = {}, .num_chunks = 2, .placement = ChunkPlacement::V};
  for (int stage = 0; stage < num_stages; ++stage)
    schedule.tasks.push_back(dualpipe_v_stage(num_stages, stage, num_microbatches));
  return schedule;
}

std::optional<int> fixed_chunks(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::GPipe:
    case ScheduleKind::OneFOneB:
    case ScheduleKind::ZbH1:
      return 1;
    case ScheduleKind::ZbV:
    case ScheduleKind::DualPipeV:
      return 2;
    case ScheduleKind::Interleaved:
    case ScheduleKind::OverlappedOneFOneB:
    case ScheduleKind::Custom:
      return std::nullopt;
  }
  throw InvariantError("unknown schedule");
}

int fewest_chunks(ScheduleKind kind) {
  return fixed_chunks(kind).value_or(kind == ScheduleKind::Interleaved ? 2 : 1);
}

std::int64_t generated_microbatches(ScheduleKind kind, int num_stages,
                                    std::int64_t num_microbatches) {
  const auto stages = std::int64_t{num_stages};
  switch (kind) {
    case ScheduleKind::Interleaved:
    case ScheduleKind::OverlappedOneFOneB:
      return (num_microbatches + stages - 1) / stages * stages;
    case ScheduleKind::ZbV:  // until the first has come back
      return std::max(2 * stages - 1, num_microbatches);
    case ScheduleKind::DualPipeV:
      return std::max(2 * stages, num_microbatches);
    default:
      return num_microbatches;
  }
}

Schedule make_schedule(ScheduleKind kind, int num_stages, int num_microbatches, int num_chunks) {
  switch (kind) {
    case ScheduleKind::GPipe:
      return gpipe(num_stages, num_microbatches);
    case ScheduleKind::OneFOneB:
      return one_f_one_b(num_stages, num_microbatches);
    case ScheduleKind::Interleaved:
      return interleaved(num_stages, num_microbatches, num_chunks);
    case ScheduleKind::OverlappedOneFOneB:
      return overlapped_one_f_one_b(num_stages, num_microbatches, num_chunks);
    case ScheduleKind::ZbH1:
      return zb_h1(num_stages, num_microbatches);
    case ScheduleKind::ZbV:
      return zb_v(num_stages, num_microbatches);
    case ScheduleKind::DualPipeV:
      return dualpipe_v(num_stages, num_microbatches);
    case ScheduleKind::Custom:
      break;
  }
  throw InvariantError("schedule without a generator");
}

}  // namespace meshplan::program
