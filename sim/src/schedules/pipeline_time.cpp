#include "schedules/pipeline_time.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "program/schedule/generators.hpp"
#include "schedules/compiled_schedule.hpp"

namespace meshplan::sim {
namespace {

double seconds_of(const PipelineInput& input, int num_microbatches) {
  const int stages = static_cast<int>(input.stages.size());
  const int chunks = static_cast<int>(input.stages.front().size());
  SolverInput tasks{.transfers = {input.transfers.begin(), input.transfers.end() - 1},
                    .wrap_transfer = input.transfers.back()};
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    const std::vector<ChunkTime>& stage = input.stages[s];
    // A task receives and sends.
    const double busy =
        input.transfer_busy *
        (input.transfers[s] + (s > 0 ? input.transfers[s - 1] : input.transfers.back()));
    std::vector<SolverChunk>& own = tasks.stages.emplace_back().chunks;
    for (const ChunkTime& chunk : stage)
      own.push_back({.forward = chunk.forward + busy,
                     .backward_first = chunk.backward + busy,
                     .backward = chunk.backward + busy});
  }
  SolverOutput solved;
  known_pipeline(input.schedule, stages, num_microbatches, chunks).solve(tasks, solved);
  return *std::ranges::max_element(solved.end);
}

}  // namespace

CompiledSchedule& known_pipeline(program::ScheduleKind kind, int stages, int num_microbatches,
                                 int chunks) {
  constexpr std::int64_t kMostTasks = 1'000'000;  // some 100 MB
  thread_local std::map<std::tuple<program::ScheduleKind, int, int, int>, CompiledSchedule> known;
  thread_local std::int64_t tasks = 0;
  const std::tuple key(kind, stages, num_microbatches, chunks);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  tasks += 2LL * stages * num_microbatches * chunks;
  if (tasks > kMostTasks) {
    known.clear();
    tasks = 2LL * stages * num_microbatches * chunks;
  }
  return known.try_emplace(key, program::make_schedule(kind, stages, num_microbatches, chunks))
      .first->second;
}

double pipeline_seconds(const PipelineInput& input) {
  const int stages = static_cast<int>(input.stages.size());
  const int m = input.num_microbatches;
  require_invariant(stages == 1 || input.transfers.size() == input.stages.size(),
                    "each stage sends to another one");
  if (stages == 1) {
    double sum = 0;
    for (const ChunkTime& chunk : input.stages.front()) sum += chunk.forward + chunk.backward;
    return m * sum;
  }
  // After a few rounds every stage repeats itself once per group of `stages` micro-batches; where
  // stages differ, in the end in no less than the slowest takes for them.
  double slowest = 0;
  for (const std::vector<ChunkTime>& chunks : input.stages) {
    double busy = 0;
    for (const ChunkTime& chunk : chunks) busy += chunk.forward + chunk.backward;
    slowest = std::max(slowest, busy);
  }
  const int played = 5 * stages + m % stages;
  if (m <= played) return seconds_of(input, m);
  const double shorter = seconds_of(input, played - stages);
  const double longer = seconds_of(input, played);
  return longer + std::max(longer - shorter, stages * slowest) * (m - played) / stages;
}

}  // namespace meshplan::sim
