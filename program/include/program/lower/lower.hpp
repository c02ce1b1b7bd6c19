#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "program/plan/lowering_profile.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// Lowers one stage of a plan. Pure. @throws ConfigError listing what check(plan) finds
Program lower(const Plan& plan, int stage, Pass pass = Pass::Training,
              const LoweringProfile& profile = meshplan_profile());

struct StagesInCommon;

/// Lowers stages of one plan when they are asked for; what they have in common is made once.
class StageLowering {
 public:
  /// @param graph  of the plan's model, or one with as many layers
  StageLowering(Plan plan, models::ModelGraph graph, Pass pass = Pass::Training,
                const LoweringProfile& profile = meshplan_profile());

  /// @throws ConfigError listing what check(plan) finds
  Program lower(int stage) const;

 private:
  Plan plan_;
  Pass pass_;
  LoweringProfile profile_;
  std::shared_ptr<StagesInCommon> common_;
};

/// Lowers another graph of the plan's model: one that splits its linear layers otherwise.
Program lower(const Plan& plan, const models::ModelGraph& graph, int stage,
              Pass pass = Pass::Training, const LoweringProfile& profile = meshplan_profile());

/// Gives a training program micro-batches of another size, as many as before. What is computed, and
/// in which order, does not depend on it: this takes a fraction of lowering a plan of that size.
/// The waits stay those of the size before. They are of what an operation reads; those of memory
/// that is used again might be others, so the program is to be priced, not to be run.
void set_micro_batch_size(Program& program, int size);

/// What each stage's program would plan, without listing its operations.
/// @throws ConfigError as lower_all; more micro-batches than that can list are no fault
std::vector<MemoryPlan> lower_memory(const Plan& plan);

/// One program per stage.
std::vector<Program> lower_all(const Plan& plan, Pass pass = Pass::Training,
                               const LoweringProfile& profile = meshplan_profile());

/// Which operations merged programs list one by one all the same.
struct ListedOperations {
  int first_tasks = 6;  // all of so many of each stage, in which weights are still being gathered
  // Those of blocks (by name) and kinds. With sequence parallelism the head gathers its input anew
  // while the task before still runs.
  std::set<std::pair<std::string, TaskKind>> passes = {{"head", TaskKind::BackwardFull},
                                                       {"head", TaskKind::BackwardInput}};
};

/// Lowers all stages for the simulator, for any number of micro-batches: a layer runs as one
/// LayerPassOp in the tasks between a stage's first and last ones. What is not merged: the first
/// two visits to each chunk, everything from where the first gradients are complete, and the
/// communication that a task begins and ends with, for it runs beside the tasks before and after.
/// @returns nothing where more than half of all operations would be listed: with other
/// communication or copies between those of a layer (ZeRO-2 and 3, offloaded activations), tasks
/// that overlap two layers, few micro-batches
std::optional<std::vector<Program>> lower_merged(const Plan& plan,
                                                 const ListedOperations& listed = {});

}  // namespace meshplan::program
