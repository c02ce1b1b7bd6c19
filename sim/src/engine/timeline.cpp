#include "sim/engine/timeline.hpp"

#include <algorithm>
#include <numeric>

#include "schedules/task_solver.hpp"

namespace meshplan::sim {

double Timeline::bubble_fraction() const {
  const double work = std::accumulate(busy.begin(), busy.end(), 0.0);
  return end > 0 ? 1 - work / (end * static_cast<double>(busy.size())) : 0;
}

Timeline timeline(const program::Schedule& schedule, const TaskDurations& durations) {
  const double backward = durations.input + durations.weight;
  const SolverChunk chunk{.forward = durations.forward,
                          .backward_first = backward,
                          .backward = backward,
                          .input = durations.input,
                          .weight_first = durations.weight,
                          .weight = durations.weight};
  SolverInput input;
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    input.stages.emplace_back();
    input.stages.back().chunks.assign(static_cast<std::size_t>(schedule.num_chunks), chunk);
    input.transfers.push_back(0);
  }
  SolverOutput solved = solve_tasks(schedule, input);
  return {.begin = std::move(solved.begin),
          .busy = std::move(solved.busy),
          .end = *std::ranges::max_element(solved.end)};
}

}  // namespace meshplan::sim
