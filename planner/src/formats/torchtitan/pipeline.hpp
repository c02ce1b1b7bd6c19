// Pipelines in torchtitan's words: schedules of torch.distributed.pipelining, and which layers a
// virtual stage holds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::planner::torchtitan {

struct ScheduleWords {
  std::string name;                // pipeline_parallel_schedule
  std::optional<std::string> csv;  // the tasks, where no name makes the plan's schedule
};
/// @throws ConfigError as program::schedule_of
ScheduleWords schedule_words(const program::Plan& plan);

/// How many chunks a rank has under a named schedule unless more is said; absent for a name that
/// torchtitan does not have.
struct NamedSchedule {
  std::string_view name;
  program::ScheduleKind kind;
  bool one_stage = true;  // a rank
};
const NamedSchedule* named_schedule(std::string_view name);
std::vector<std::string> schedule_names();

/// Layers that torchtitan gives each virtual stage by itself, extra ones to the first stages
/// (pipeline_parallel.py, _generate_llm_fqn_per_model_part). Empty where it refuses the numbers.
/// @param input_weight  layers that the embedding counts as; output_weight: norm and head
std::vector<int> own_division(int num_layers, int stages, int input_weight, int output_weight);

/// Names of the modules of each virtual stage.
std::vector<std::vector<std::string>> modules_of(const std::vector<int>& layers_per_stage);
/// The reverse. @throws ConfigError naming the part that is out of order. @param where  for
/// messages
std::vector<int> layers_of(const std::vector<std::vector<std::string>>& modules, int num_layers,
                           const std::string& where);

/// Puts a division into a plan in its shortest form: nothing if it is the plan's own even one,
/// counting the ends if that gives it, else layer by layer.
void set_division(program::Plan& plan, std::vector<int> layers);

}  // namespace meshplan::planner::torchtitan
