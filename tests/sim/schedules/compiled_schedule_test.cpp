// A compiled schedule against the task solver and what its schedule keeps, which it stands for.
#include "schedules/compiled_schedule.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "core/error.hpp"
#include "program/schedule/generators.hpp"

namespace meshplan::sim {
namespace {

using program::ScheduleKind;

struct Shape {
  ScheduleKind kind = ScheduleKind::OneFOneB;
  int pp = 1;
  int microbatches = 1;
  int vpp = 1;
};

std::vector<Shape> shapes() {
  return {{ScheduleKind::GPipe, 4, 6, 1},
          {ScheduleKind::OneFOneB, 1, 5, 1},
          {ScheduleKind::OneFOneB, 4, 11, 1},
          {ScheduleKind::OneFOneB, 6, 3, 1},
          {ScheduleKind::Interleaved, 4, 8, 3},
          {ScheduleKind::Interleaved, 2, 7, 2},
          {ScheduleKind::ZbH1, 4, 9, 1},
          {ScheduleKind::ZbV, 4, 10, 2},
          {ScheduleKind::DualPipeV, 4, 10, 2},
          {ScheduleKind::OverlappedOneFOneB, 4, 11, 1},
          {ScheduleKind::OverlappedOneFOneB, 2, 7, 2}};
}

/// Stages of unequal speed.
SolverInput input_of(const Shape& shape) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.5, 1.5);
  SolverInput input{.stages = {}, .transfers = {}, .wrap_transfer = 0.2};
  for (int s = 0; s < shape.pp; ++s) {
    if (s > 0) input.transfers.push_back(0.1 * s);
    input.stages.push_back({.ready = 0.01 * s, .chunks = {}});
    for (int c = 0; c < shape.vpp; ++c)
      input.stages.back().chunks.push_back({.forward = seconds(random),
                                            .backward_first = seconds(random),
                                            .backward = seconds(random),
                                            .input = seconds(random),
                                            .weight_first = seconds(random),
                                            .weight = seconds(random),
                                            .prelude = 0.05});
  }
  return input;
}

}  // namespace

TEST_CASE("A compiled schedule is solved as the task solver does it", "[sim][estimator]") {
  for (const Shape& shape : shapes()) {
    INFO("schedule " << static_cast<int>(shape.kind) << " pp " << shape.pp);
    const auto schedule =
        program::make_schedule(shape.kind, shape.pp, shape.microbatches, shape.vpp);
    const SolverInput input = input_of(shape);
    const SolverOutput expected = solve_tasks(schedule, input);
    SolverOutput solved;
    CompiledSchedule compiled(schedule);
    for (int again = 0; again < 2; ++again) {  // its memory is used again
      compiled.solve(input, solved);
      for (std::size_t s = 0; s < input.stages.size(); ++s) {
        CHECK(solved.end[s] == Approx(expected.end[s]).epsilon(1e-12));
        CHECK(solved.busy[s] == Approx(expected.busy[s]).epsilon(1e-12));
        for (std::size_t c = 0; c < input.stages[s].chunks.size(); ++c)
          CHECK(solved.last_gradient_begin[s][c] ==
                Approx(expected.last_gradient_begin[s][c]).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("A compiled schedule keeps what the activations of its schedule say",
          "[sim][estimator]") {
  for (const Shape& shape : shapes()) {
    const auto schedule =
        program::make_schedule(shape.kind, shape.pp, shape.microbatches, shape.vpp);
    CompiledSchedule compiled(schedule);
    std::vector<program::KeptBytes> kept;
    for (int chunk = 0; chunk < shape.vpp; ++chunk)
      kept.push_back({4096 + 512 * chunk, 1024, 3072, 256, 2048, 768 * chunk});
    for (int stage = 0; stage < shape.pp; ++stage) {
      INFO("schedule " << static_cast<int>(shape.kind) << " stage " << stage);
      const int microbatches = compiled.num_microbatches();
      std::vector<program::ChunkKeeps> layers(kept.size());
      for (std::size_t chunk = 0; chunk < kept.size(); ++chunk) layers[chunk].add(kept[chunk]);
      const auto plan = program::plan_activations(schedule, stage, microbatches, layers);
      std::int64_t most = 0;
      for (const auto& task : program::kept_by_task(schedule, stage, microbatches, kept))
        most = std::max(most, task.during);
      const StageActivations found = compiled.activations(stage, kept, microbatches);
      CHECK(found.bytes == static_cast<double>(most));
      CHECK(found.boundary_slots == std::max(1, plan.boundary.total()));
      CHECK(found.transient_slots == plan.transient_slots);
    }
  }
}

// Six micro-batches stand for sixty: GPipe keeps all of them, 1F1B at most its stages.
TEST_CASE("GPipe keeps every micro-batch that a shorter schedule stands for", "[sim][estimator]") {
  const std::vector<program::KeptBytes> kept{{100, 0, 0}};
  CompiledSchedule gpipe(program::make_schedule(ScheduleKind::GPipe, 2, 6, 1));
  CHECK(gpipe.activations(0, kept, 60).bytes == 6000);
  CompiledSchedule alternating(program::make_schedule(ScheduleKind::OneFOneB, 2, 6, 1));
  CHECK(alternating.activations(0, kept, 60).bytes == 200);
}

}  // namespace meshplan::sim
