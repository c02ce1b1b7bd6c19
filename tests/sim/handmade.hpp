// Programs made by hand, whose operations take the seconds that a test says.
#pragma once

#include <string>
#include <vector>

#include "program/calibration/collective_table.hpp"
#include "program/program.hpp"
#include "program/schedule/generators.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

/// Collects the operations of one rank, in issue order.
class HandMade {
 public:
  explicit HandMade(program::ParallelConfig parallel, int stage = 0) {
    program_.plan.parallel = parallel;
    program_.plan.workload.seq_len = 1;
    program_.plan.workload.global_batch_size = parallel.dp;
    program_.role = {
        .stage = stage, .first_stage = stage == 0, .last_stage = stage + 1 == parallel.pp};
    program_.sizes = {.tokens = 1, .sequences = 1};
    program_.blocks.push_back({.name = "block", .values = {}, .forward = {}, .backward = {}});
    program_.layers.push_back({.block = 0, .layer = 0, .parameters = {}});
    program_.memory.regions.resize(program::kNumRegions);
  }

  /// An operation on `size` elements: its price is the table's entry for "add.PHASE fp32 SIZE".
  int compute(program::Phase phase, int size, const std::vector<int>& waits = {},
              int microbatch = 0) {
    program::Block& block = program_.blocks.front();
    const int value = static_cast<int>(block.values.size());
    block.values.push_back({.name = "x", .shape = {{.count = size}}, .alias = std::nullopt});
    block.forward.push_back({.name = "add",
                             .phase = phase,
                             .lane = program::Lane::Compute,
                             .work = program::ComputeOp{},
                             .inputs = {value},
                             .outputs = {}});
    return append({.operation = {.block = 0, .index = static_cast<int>(block.forward.size()) - 1},
                   .microbatch = microbatch,
                   .layer = 0},
                  waits);
  }

  int collective(program::Group group, int elements, const std::vector<int>& waits = {}) {
    return step({.name = "all_reduce",
                 .phase = program::Phase::Reduce,
                 .lane = program::Lane::Dp,
                 .work = program::CollectiveOp{.group = group, .elements = {.count = elements}},
                 .inputs = {},
                 .outputs = {}},
                waits, -1);
  }

  int peer(bool send, bool forward, int elements, const std::vector<int>& waits,
           int microbatch = 0) {
    return step(
        {.name = std::string(send ? "send" : "recv") + (forward ? "_forward" : "_backward"),
         .phase = forward ? program::Phase::Forward : program::Phase::InputGrad,
         .lane = forward ? (send ? program::Lane::PpSendForward : program::Lane::PpRecvForward)
                         : (send ? program::Lane::PpSendBackward : program::Lane::PpRecvBackward),
         .work = program::PeerOp{.send = send,
                                 .stage_offset = forward == send ? 1 : -1,
                                 .elements = {.count = elements}},
         .inputs = {},
         .outputs = {}},
        waits, microbatch);
  }

  program::Program take() { return std::move(program_); }

 private:
  int step(program::Operation operation, const std::vector<int>& waits, int microbatch) {
    program_.step_operations.push_back(std::move(operation));
    const int index = static_cast<int>(program_.step_operations.size()) - 1;
    return append({.operation = {.block = std::nullopt, .index = index}, .microbatch = microbatch},
                  waits);
  }

  int append(program::OperationInstance instance, const std::vector<int>& waits) {
    instance.first_wait = static_cast<int>(program_.waits.size());
    instance.num_waits = static_cast<int>(waits.size());
    program_.waits.insert(program_.waits.end(), waits.begin(), waits.end());
    instance.id = program_.instances.size();
    program_.instances.push_back(instance);
    return static_cast<int>(program_.instances.size()) - 1;
  }

  program::Program program_;
};

/// A table entry for HandMade::compute.
inline MeasuredOperator taking(const std::string& phase, int size, double seconds,
                               double seconds_busy = 0) {
  return {.signature = "add." + phase + " fp32 " + std::to_string(size),
          .seconds = seconds,
          .seconds_busy = seconds_busy};
}

/// A table entry for an all-reduce of two ranks.
inline MeasuredCollective all_reduce_taking(std::int64_t bytes, double seconds) {
  return {.op = std::string(program::name_of(program::CommOp::AllReduce)),
          .group_size = 2,
          .ranks_on_host = 2,
          .bytes = bytes,
          .seconds = seconds};
}

/// One forward and one backward per micro-batch on each stage, of `forward` and `backward` seconds.
inline std::vector<program::Program> uniform_pipeline(program::ScheduleKind kind, int pp, int m) {
  const program::Schedule schedule = program::make_schedule(kind, pp, m);
  std::vector<program::Program> programs;
  for (int stage = 0; stage < pp; ++stage) {
    HandMade made({.pp = pp}, stage);
    for (const program::Task& task : schedule.tasks[static_cast<std::size_t>(stage)]) {
      const bool forward = task.kind == program::TaskKind::Forward;
      const bool receives = forward ? stage > 0 : stage + 1 < pp;
      const bool sends = forward ? stage + 1 < pp : stage > 0;
      std::vector<int> waits;
      if (receives) waits.push_back(made.peer(false, forward, 1, {}, task.microbatch));
      const int done = made.compute(forward ? program::Phase::Forward : program::Phase::InputGrad,
                                    forward ? 1 : 2, waits, task.microbatch);
      if (sends) made.peer(true, forward, 1, {done}, task.microbatch);
    }
    programs.push_back(made.take());
    programs.back().plan.schedule = kind;
  }
  return programs;
}

}  // namespace meshplan::sim
