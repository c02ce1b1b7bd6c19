#include "schedule/stage_tasks.hpp"

#include <algorithm>
#include <iterator>

namespace meshplan::program {

std::vector<Task> of_first(int num_microbatches, const std::vector<Task>& tasks) {
  std::vector<Task> kept;
  for (const Task& task : tasks) {
    const TaskParts parts = parts_of(task);
    const auto is_kept = [&](const Task& part) { return part.microbatch < num_microbatches; };
    if (std::ranges::all_of(parts, is_kept))
      kept.push_back(task);
    else
      std::ranges::copy_if(parts, std::back_inserter(kept), is_kept);
  }
  return kept;
}

}  // namespace meshplan::program
