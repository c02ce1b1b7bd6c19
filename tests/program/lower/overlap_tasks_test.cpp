// The order in which two tasks take turns.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/index.hpp"
#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plans.hpp"

namespace meshplan::program::overlapping {  // files are compiled together
namespace {

Plan mixture(ScheduleKind schedule, const ParallelConfig& parallel, int node_ranks) {
  models::ModelSpec model = models::load_preset("deepseek-v3");
  model.mtp_layers = 0;
  Plan plan = test::make_plan(model, parallel, 8);
  plan.model.num_layers = 8;
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.schedule = schedule;
  plan.expert_node_ranks = node_ranks;
  return plan;
}

/// Operations of layers of a task, and of one of its micro-batches alone.
std::vector<OperationInstance> of_task(const Program& program, int task, int microbatch = -1) {
  std::vector<OperationInstance> found;
  for (const OperationInstance& instance : program.instances)
    if (instance.task == task && instance.layer &&
        (microbatch < 0 || instance.microbatch == microbatch))
      found.push_back(instance);
  return found;
}

bool is_exchange(const Operation& operation) {
  const auto* collective = std::get_if<CollectiveOp>(&operation.work);
  return collective != nullptr && collective->collective == Collective::AllToAllV &&
         operation.name.ends_with("all_to_all");
}

/// Does the other micro-batch compute between an exchange and its first reader?
bool is_filled(const Program& program, const std::vector<OperationInstance>& task,
               std::size_t exchange) {
  const OperationInstance& own = task[exchange];
  const Block& block = program.blocks[at(layer_of(program, own).block)];
  const ValueId made = root_of(block, operation_of(program, own).outputs.front());
  for (std::size_t i = exchange + 1; i < task.size(); ++i) {
    const Operation& next = operation_of(program, task[i]);
    if (task[i].microbatch != own.microbatch) {
      if (next.lane == Lane::Compute) return true;
    } else if (task[i].layer == own.layer && std::ranges::any_of(next.inputs, [&](ValueId id) {
                 return root_of(block, id) == made;
               })) {
      return false;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("while one micro-batch's tokens travel the other one computes", "[program][overlap]") {
  struct Case {
    ScheduleKind schedule;
    ParallelConfig parallel;
  };
  for (const Case& one :
       {Case{ScheduleKind::OverlappedOneFOneB, {.dp = 32, .ep = 32}},
        Case{ScheduleKind::OverlappedOneFOneB, {.pp = 2, .vpp = 2, .dp = 32, .ep = 32}},
        Case{ScheduleKind::DualPipeV, {.pp = 2, .vpp = 2, .dp = 32, .ep = 32}}})
    for (const int node_ranks : {0, 8}) {
      const Program program = lower(mixture(one.schedule, one.parallel, node_ranks), 0);
      int exchanges = 0, filled = 0, tasks = 0;
      for (int task = 0; task < static_cast<int>(program.tasks.size()); ++task) {
        if (program.tasks[at(task)].kind != TaskKind::Overlapped) continue;
        ++tasks;
        const std::vector<OperationInstance> operations = of_task(program, task);
        for (std::size_t i = 0; i < operations.size(); ++i) {
          if (!is_exchange(operation_of(program, operations[i]))) continue;
          ++exchanges;
          filled += is_filled(program, operations, i) ? 1 : 0;
        }
      }
      CAPTURE(meshplan::name_of(one.schedule), node_ranks, exchanges, filled);
      CHECK(tasks > 0);
      CHECK(exchanges > 0);
      CHECK(filled >= 0.8 * exchanges);
    }
}

TEST_CASE("each of two tasks keeps the order that it has alone", "[program][overlap]") {
  const Plan plan = mixture(ScheduleKind::OverlappedOneFOneB, {.pp = 2, .dp = 32, .ep = 32}, 8);
  const Program program = lower(plan, 0);
  int compared = 0;
  for (int task = 0; task < static_cast<int>(program.tasks.size()); ++task) {
    const Task& pair = program.tasks[at(task)];
    if (pair.kind != TaskKind::Overlapped) continue;
    for (int other = 0; other < static_cast<int>(program.tasks.size()); ++other) {
      const Task& alone = program.tasks[at(other)];
      const bool forward = alone.kind == TaskKind::Forward;
      if (alone.kind == TaskKind::Overlapped ||
          alone.chunk != (forward ? pair.chunk : pair.backward_chunk))
        continue;
      const auto expected = of_task(program, other);
      auto own = of_task(program, task, forward ? pair.microbatch : pair.backward_microbatch);
      // What runs once a step is of the first micro-batch alone.
      const auto names = [&](const std::vector<OperationInstance>& list) {
        std::vector<std::string> all;
        for (const OperationInstance& instance : list)
          if (!operation_of(program, instance).once_per_step)
            all.push_back(operation_of(program, instance).name);
        return all;
      };
      CHECK(names(own) == names(expected));
      ++compared;
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("with nothing to hide a forward runs before the backward", "[program][overlap]") {
  Plan plan = test::make_plan(test::llama_style(), {.pp = 2}, 6);
  plan.model.num_layers = 4;
  plan.schedule = ScheduleKind::OverlappedOneFOneB;
  const Program program = lower(plan, 0);
  for (int task = 0; task < static_cast<int>(program.tasks.size()); ++task) {
    const Task& pair = program.tasks[at(task)];
    if (pair.kind != TaskKind::Overlapped) continue;
    const std::vector<OperationInstance> operations = of_task(program, task);
    CHECK(std::ranges::is_partitioned(operations, [&](const OperationInstance& instance) {
      return instance.microbatch == pair.microbatch;
    }));
  }
}

}  // namespace meshplan::program::overlapping
