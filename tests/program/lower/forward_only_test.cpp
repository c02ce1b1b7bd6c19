// The forward-only lowering runs on weights that the training program of the same plan updates.
#include <catch2/catch.hpp>

#include "program/checks/check.hpp"
#include "program/plans.hpp"

namespace meshplan::program::test {

TEST_CASE("forward-only programs find every parameter where training leaves it",
          "[program][lower]") {
  for (const auto& model : {llama_style(), gpt2_style(), gemma_style()})
    for (const ParallelConfig& parallel :
         {ParallelConfig{}, ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .sp = true},
          ParallelConfig{.tp = 4, .pp = 2, .sp = true}, ParallelConfig{.tp = 8, .dp = 2},
          ParallelConfig{.pp = 4, .dp = 2}}) {
      const Plan plan = make_plan(model, parallel);
      if (!check(plan).empty()) continue;
      for (int stage = 0; stage < parallel.pp; ++stage) {
        const Program training = lower(plan, stage);
        const Program forward = lower(plan, stage, Pass::ForwardOnly);
        INFO(model.name << " " << to_string(parallel) << " stage " << stage);
        CHECK(forward.parameter_elements == training.parameter_elements);
        REQUIRE(forward.parameters.size() == training.parameters.size());
        for (std::size_t i = 0; i < training.parameters.size(); ++i) {
          CHECK(forward.parameters[i].name == training.parameters[i].name);
          CHECK(forward.parameters[i].offset == training.parameters[i].offset);
        }
      }
    }
}

TEST_CASE("a forward-only program has neither gradients nor optimizer state", "[program][lower]") {
  const Program forward =
      lower(make_plan(llama_style(), {.tp = 2, .sp = true}), 0, Pass::ForwardOnly);
  for (const Region region :
       {Region::MasterWeights, Region::Gradients, Region::Moment1, Region::Moment2})
    CHECK(forward.memory.regions[static_cast<std::size_t>(region)].bytes() == 0);
  for (const OperationInstance& instance : forward.instances) {
    const Phase phase = operation_of(forward, instance).phase;
    CHECK((phase == Phase::Forward || phase == Phase::Reduce));
  }
}

}  // namespace meshplan::program::test
