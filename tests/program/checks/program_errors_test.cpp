// Every mutation of a valid set of programs that would hang or corrupt a run must be reported.
#include "checks/program_errors.hpp"

#include <catch2/catch.hpp>

#include "program/inspect.hpp"
#include "program/plans.hpp"
#include "program/schedule/generators.hpp"

namespace meshplan::program {
namespace {

using test::instances_named;
using test::make_plan;

std::vector<Program> valid_programs() {
  return lower_all(make_plan(test::gpt2_style(), {.tp = 2, .pp = 3, .dp = 2, .sp = true}, 4));
}

void expect_error(const std::vector<Program>& programs, const std::string& text) {
  const std::vector<std::string> errors = program_errors(programs);
  for (const std::string& error : errors) UNSCOPED_INFO(error);
  CHECK(std::ranges::any_of(errors, [&](const auto& e) { return e.find(text) != e.npos; }));
}

Operation& operation_at(Program& program, std::size_t instance) {
  return const_cast<Operation&>(operation_of(program, program.instances[instance]));
}

}  // namespace

TEST_CASE("Lowered programs have no errors", "[program][validate]") {
  for (const Plan& plan : test::all_plans()) {
    INFO(test::describe(plan));
    CHECK(program_errors(lower_all(plan)) == std::vector<std::string>{});
    CHECK(program_errors(lower_all(plan, Pass::ForwardOnly)) == std::vector<std::string>{});
  }
}

TEST_CASE("A missing or repeated backward task is reported", "[program][validate]") {
  auto programs = valid_programs();
  programs[1].tasks.pop_back();
  expect_error(programs, "stage 1: backward of micro-batch 3 (chunk 0) runs 0 times");
  programs = valid_programs();
  programs[2].tasks.push_back(programs[2].tasks.back());
  expect_error(programs, "stage 2: backward of micro-batch 3 (chunk 0) runs 2 times");
}

TEST_CASE("A backward before its forward, and a circular wait, are reported",
          "[program][validate]") {
  auto programs = valid_programs();
  std::swap(programs[2].tasks[0], programs[2].tasks[1]);
  expect_error(programs, "stage 2 waits forever at its task 0");
  programs = valid_programs();
  // Stage 0 asks for the first gradient before it has sent what the last stage of 1F1B needs for
  // it.
  programs[2].tasks = gpipe(1, 4).tasks[0];
  auto& first = programs[0].tasks;
  std::rotate(first.begin() + 1, std::ranges::find(first, TaskKind::BackwardFull, &Task::kind),
              first.end());
  expect_error(programs, "stage 0 waits forever");
}

TEST_CASE("Messages sent in another order than they are received are reported",
          "[program][validate]") {
  auto programs = valid_programs();
  const auto sends = instances_named(programs[0], "send_forward");
  std::swap(programs[0].instances[sends[0]].microbatch, programs[0].instances[sends[1]].microbatch);
  expect_error(programs, "message 0 from stage 0 to stage 1: sent send_forward of micro-batch 1");
  programs = valid_programs();
  const auto receives = instances_named(programs[0], "recv_backward");
  std::swap(programs[0].instances[receives[2]].microbatch,
            programs[0].instances[receives[3]].microbatch);
  expect_error(programs, "message 2 from stage 1 to stage 0");
}

TEST_CASE("A message that nobody receives is reported", "[program][validate]") {
  auto programs = valid_programs();
  const auto receives = instances_named(programs[1], "recv_forward");
  programs[1].instances.erase(programs[1].instances.begin() +
                              static_cast<std::ptrdiff_t>(receives.back()));
  expect_error(programs, "message 3 from stage 0 to stage 1: sent send_forward of micro-batch 3");
  expect_error(programs, "received nothing");
}

TEST_CASE("A message received in another size than it is sent is reported", "[program][validate]") {
  auto programs = valid_programs();
  const auto receives = instances_named(programs[1], "recv_forward");
  Operation larger = operation_at(programs[1], receives[1]);  // which all receives share
  std::get<PeerOp>(larger.work).elements.count *= 2;
  programs[1].instances[receives[1]].operation.index =
      static_cast<int>(programs[1].step_operations.size());
  programs[1].step_operations.push_back(larger);
  expect_error(programs, "message 1 from stage 0 to stage 1");
}

TEST_CASE("Stages that disagree about a common collective are reported", "[program][validate]") {
  auto programs = valid_programs();
  auto drop = [](Program& program, const char* name) {
    program.instances.erase(program.instances.begin() +
                            static_cast<std::ptrdiff_t>(instances_named(program, name).front()));
  };
  drop(programs[1], "loss_and_norm");
  expect_error(programs, "stages 0 and 1 issue different collectives on group tp-pp");
  programs = valid_programs();
  drop(programs[2], "tied_embedding");
  expect_error(programs, "stages 0 and 2 issue different collectives on group embedding");
  programs = valid_programs();
  const auto sum = instances_named(programs[2], "tied_embedding").front();
  std::get<FlatCollectiveOp>(operation_at(programs[2], sum).work).range.end -= 32;
  expect_error(programs, "stages 0 and 2 issue different collectives on group embedding");
}

TEST_CASE("One group used from two lanes is reported", "[program][validate]") {
  auto programs = valid_programs();
  const auto buckets = instances_named(programs[0], "gradients[");
  operation_at(programs[0], buckets.front()).lane = Lane::Tp;
  expect_error(programs, "uses group dp-cp from a second lane");
}

TEST_CASE("A forward that takes an occupied place is reported", "[program][validate]") {
  auto programs = valid_programs();
  for (KeptBytes& place : programs[0].kept_places) place = {};
  expect_error(programs, "of micro-batch 0 (chunk 0) reads what micro-batch 2 has overwritten");
}

TEST_CASE("Messages that wait for each other are reported", "[program][validate]") {
  // Both of a V's directions on one lane: each rank's next receive is behind a send that the other
  // one takes later.
  Plan plan = make_plan(test::llama_style(), {.pp = 2, .vpp = 2}, 4);
  plan.schedule = ScheduleKind::ZbV;
  auto programs = lower_all(plan);
  REQUIRE(program_errors(programs).empty());
  for (Program& program : programs)
    for (Operation& operation : program.step_operations)
      if (carries_activations(operation.lane)) operation.lane = Lane::PpSendForward;
  expect_error(programs, "waits forever before");
}

TEST_CASE("An access beyond its region is reported", "[program][validate]") {
  auto programs = valid_programs();
  programs[1].memory.regions[static_cast<std::size_t>(Region::Transient)].stride_bytes -=
      kAlignment;
  expect_error(programs, "stage 1: ");
  programs = valid_programs();
  programs[0].memory.regions[static_cast<std::size_t>(Region::Saved)].stride_bytes -= kAlignment;
  expect_error(programs, "of slot 0 of region 6");
}

}  // namespace meshplan::program
