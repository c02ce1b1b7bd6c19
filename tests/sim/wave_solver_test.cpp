// Waves against the task solver, which plays every task.
#include "../../sim/src/wave_solver.hpp"

#include <catch2/catch.hpp>
#include <random>

namespace meshplan::sim {
namespace {

using program::ScheduleKind;

void check_against_tasks(ScheduleKind kind, const SolverInput& input, int microbatches) {
  const int pp = static_cast<int>(input.stages.size());
  INFO("schedule " << static_cast<int>(kind) << ", " << pp << " stages, " << microbatches
                   << " micro-batches");
  const SolverOutput expected = solve_tasks(program::make_schedule(kind, pp, microbatches), input);
  SolverOutput solved;
  solve_waves(kind, input, microbatches, solved);
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    CHECK(solved.end[s] == Approx(expected.end[s]).epsilon(1e-12));
    CHECK(solved.busy[s] == Approx(expected.busy[s]).epsilon(1e-12));
    CHECK(solved.last_gradient_begin[s].front() ==
          Approx(expected.last_gradient_begin[s].front()).epsilon(1e-12));
  }
}

SolverInput equal_stages(int pp) {
  SolverInput input{.stages = {}, .transfer = 0.1};
  for (int s = 0; s < pp; ++s)
    input.stages.push_back(
        {.chunks = {{.forward = 1, .backward_first = 1.9, .backward = 2, .prelude = 0.05}}});
  return input;
}

}  // namespace

TEST_CASE("Waves end when their tasks do", "[sim][estimator]") {
  const auto kind = GENERATE(ScheduleKind::OneFOneB, ScheduleKind::GPipe);
  const int pp = GENERATE(1, 2, 3, 8);
  const int microbatches = GENERATE(1, 2, 3, 7, 8, 9, 100);
  std::mt19937 random(static_cast<unsigned>(pp * microbatches));
  for (int trial = 0; trial < 20; ++trial) {
    // From stages that are almost equal, where what limits them takes long to show, to very unequal
    // ones; messages from nothing to longer than tasks.
    const double spread = trial % 4 == 0 ? 1e-6 : 0.2 * (trial % 4);
    std::uniform_real_distribution<double> seconds(1 - spread, 1 + spread), part(0, 1);
    SolverInput input{.stages = {}, .transfer = trial % 3 * 0.8 * part(random)};
    for (int s = 0; s < pp; ++s)
      input.stages.push_back({.ready = 3 * part(random) * (trial % 2),
                              .chunks = {{.forward = seconds(random),
                                          .backward_first = 2 * seconds(random),
                                          .backward = 2 * seconds(random),
                                          .prelude = 0.1 * part(random)}}});
    check_against_tasks(kind, input, microbatches);
  }
}

TEST_CASE("Waves find the slowest stage wherever it is", "[sim][estimator]") {
  const auto kind = GENERATE(ScheduleKind::OneFOneB, ScheduleKind::GPipe);
  const int slow = GENERATE(0, 3, 7);
  const double factor = GENERATE(1.0, 1.001, 1.5);
  SolverInput input = equal_stages(8);
  SolverChunk& chunk = input.stages[static_cast<std::size_t>(slow)].chunks.front();
  chunk.forward *= factor;
  chunk.backward *= factor;
  check_against_tasks(kind, input, 64);
}

// Without messages 1F1B takes (m + pp - 1) (F + B) (Narayanan et al. 2021, section 2.2.1): so do a
// million micro-batches, in no time.
TEST_CASE("Waves of many micro-batches take the closed form's time", "[sim][estimator]") {
  const auto kind = GENERATE(ScheduleKind::OneFOneB, ScheduleKind::GPipe);
  SolverInput input = equal_stages(16);
  input.transfer = 0;
  for (SolverStage& stage : input.stages) {
    stage.chunks.front().backward_first = 2;
    stage.chunks.front().prelude = 0;
  }
  SolverOutput solved;
  solve_waves(kind, input, 1'000'000, solved);
  CHECK(solved.end.front() == Approx(3.0 * (1'000'000 + 16 - 1)));
  CHECK(solved.busy.front() == Approx(3.0 * 1'000'000));
}

}  // namespace meshplan::sim
