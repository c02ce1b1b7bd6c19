#include "schedule/stage_tasks.hpp"

namespace meshplan::program {

std::vector<Task> of_first(int num_microbatches, const std::vector<Task>& tasks) {
  std::vector<Task> kept;
  for (const Task& task : tasks) {
    std::vector<Task> parts = parts_of(task);
    const std::size_t all = parts.size();
    std::erase_if(parts, [&](const Task& part) { return part.microbatch >= num_microbatches; });
    if (parts.size() == all)
      kept.push_back(task);
    else
      kept.insert(kept.end(), parts.begin(), parts.end());
  }
  return kept;
}

}  // namespace meshplan::program
