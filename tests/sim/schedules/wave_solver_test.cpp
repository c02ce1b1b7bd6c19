// Waves against the task solver, which plays every task.
#include "schedules/wave_solver.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "program/schedule/generators.hpp"

namespace meshplan::sim {
namespace {

using program::ScheduleKind;

void check_against_tasks(WaveSolver& solver, ScheduleKind kind, const SolverInput& input,
                         int microbatches) {
  const int pp = static_cast<int>(input.stages.size());
  INFO("schedule " << static_cast<int>(kind) << ", " << pp << " stages, " << microbatches
                   << " micro-batches");
  const SolverOutput expected = solve_tasks(program::make_schedule(kind, pp, microbatches), input);
  SolverOutput solved;
  solver.solve(kind, input, microbatches, solved);
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    CHECK(solved.end[s] == Approx(expected.end[s]).epsilon(1e-12));
    CHECK(solved.busy[s] == Approx(expected.busy[s]).epsilon(1e-12));
    CHECK(solved.last_gradient_begin[s].front() ==
          Approx(expected.last_gradient_begin[s].front()).epsilon(1e-12));
  }
}

void check_against_tasks(ScheduleKind kind, const SolverInput& input, int microbatches) {
  WaveSolver solver;
  check_against_tasks(solver, kind, input, microbatches);
}

std::vector<double> transfers_of(int pp, double seconds) {
  return std::vector<double>(static_cast<std::size_t>(pp - 1), seconds);
}

SolverInput equal_stages(int pp) {
  SolverInput input{.stages = {}, .transfers = transfers_of(pp, 0.1)};
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
    SolverInput input{.stages = {}, .transfers = {}};
    for (int s = 1; s < pp; ++s) input.transfers.push_back(trial % 3 * 0.8 * part(random));
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

// Layers that do not divide evenly lie on the stages in the middle: with messages between them the
// slowest circuit passes all of these, and times repeat only after as many rounds.
TEST_CASE("Waves that repeat after several rounds end when their tasks do", "[sim][estimator]") {
  const int slow = GENERATE(2, 3, 7, 16);
  const int microbatches = GENERATE(48, 97, 200);
  for (const double transfer : {0.01, 0.3}) {
    SolverInput input = equal_stages(24);
    input.transfers = transfers_of(24, transfer);
    for (int s = 4; s < 4 + slow; ++s) {
      SolverChunk& chunk = input.stages[static_cast<std::size_t>(s)].chunks.front();
      chunk.forward *= 2;
      chunk.backward *= 2;
    }
    check_against_tasks(ScheduleKind::OneFOneB, input, microbatches);
  }
}

// Two plans in a row may differ in when their stages are ready alone, or in anything else.
TEST_CASE("A solver of waves that remembers a pipeline solves the next one as anew",
          "[sim][estimator]") {
  WaveSolver solver;
  const SolverInput first = equal_stages(6);
  const auto check_after_first = [&](ScheduleKind kind, const SolverInput& input,
                                     int microbatches) {
    check_against_tasks(solver, ScheduleKind::OneFOneB, first, 20);
    check_against_tasks(solver, kind, input, microbatches);
  };
  check_after_first(ScheduleKind::OneFOneB, first, 20);
  check_after_first(ScheduleKind::OneFOneB, first, 21);
  check_after_first(ScheduleKind::GPipe, first, 20);
  check_after_first(ScheduleKind::OneFOneB, equal_stages(7), 20);
  SolverInput other = first;
  other.stages[0].ready = 3;
  check_after_first(ScheduleKind::OneFOneB, other, 20);
  other.stages[5].ready = 40;  // later than the first micro-batch comes
  check_after_first(ScheduleKind::OneFOneB, other, 20);
  other = first;
  other.transfers[3] = 0.4;
  check_after_first(ScheduleKind::OneFOneB, other, 20);
  for (double SolverChunk::*seconds : {&SolverChunk::forward, &SolverChunk::backward_first,
                                       &SolverChunk::backward, &SolverChunk::prelude}) {
    other = first;
    other.stages[2].chunks[0].*seconds += 0.7;
    check_after_first(ScheduleKind::OneFOneB, other, 20);
  }
  other = first;
  other.stages[0].chunks[0].has_backward = false;
  check_after_first(ScheduleKind::OneFOneB, other, 20);
}

// Without messages 1F1B takes (m + pp - 1) (F + B) (Narayanan et al. 2021, section 2.2.1): so do a
// million micro-batches, in no time.
TEST_CASE("Waves of many micro-batches take the closed form's time", "[sim][estimator]") {
  const auto kind = GENERATE(ScheduleKind::OneFOneB, ScheduleKind::GPipe);
  SolverInput input = equal_stages(16);
  input.transfers = transfers_of(16, 0);
  for (SolverStage& stage : input.stages) {
    stage.chunks.front().backward_first = 2;
    stage.chunks.front().prelude = 0;
  }
  SolverOutput solved;
  WaveSolver().solve(kind, input, 1'000'000, solved);
  CHECK(solved.end.front() == Approx(3.0 * (1'000'000 + 16 - 1)));
  CHECK(solved.busy.front() == Approx(3.0 * 1'000'000));
}

}  // namespace meshplan::sim
