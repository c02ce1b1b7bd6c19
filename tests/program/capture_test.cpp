#include "program/capture.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "program/checks/check.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

/// Which instances are in a region; -1 = in none.
std::vector<int> regions_of(const Program& program, CommunicationDriver driver) {
  std::vector<int> result(program.instances.size(), -1);
  const std::vector<CaptureRegion> regions = capture_regions(program, driver);
  for (std::size_t r = 0; r < regions.size(); ++r)
    for (int i = regions[r].begin; i < regions[r].end; ++i) {
      REQUIRE(result[static_cast<std::size_t>(i)] == -1);
      result[static_cast<std::size_t>(i)] = static_cast<int>(r);
    }
  return result;
}

}  // namespace

TEST_CASE("One rank's step is one region, after the batch is loaded", "[program][capture]") {
  const Program program = lower(test::make_plan(test::llama_style()), 0);
  const auto count = static_cast<int>(program.instances.size());
  for (const auto driver : {CommunicationDriver::Device, CommunicationDriver::Host})
    CHECK(capture_regions(program, driver) == std::vector<CaptureRegion>{{1, count}});
}

TEST_CASE("Communications end a region only where the host drives them", "[program][capture]") {
  const Program program =
      lower(test::make_plan(test::llama_style(), {.tp = 2, .pp = 2, .dp = 2}), 0);
  const auto count = static_cast<int>(program.instances.size());
  CHECK(capture_regions(program, CommunicationDriver::Device) ==
        std::vector<CaptureRegion>{{1, count}});
  const std::vector<int> region = regions_of(program, CommunicationDriver::Host);
  for (std::size_t i = 0; i < region.size(); ++i) {
    const OperationInstance& instance = program.instances[i];
    const Operation& operation = operation_of(program, instance);
    INFO(operation.name);
    CHECK((region[i] >= 0) == (!is_communication(operation) && operation.lane != Lane::Host));
    if (i == 0 || region[i] < 0) continue;
    bool host_waits = false;
    for (const int earlier : waits_of(program, instance))
      host_waits |= is_communication(
          operation_of(program, program.instances[static_cast<std::size_t>(earlier)]));
    // Maximal: a region begins only where the one before it had to end.
    const bool begins = region[i] != region[i - 1];
    CHECK(begins == (host_waits || region[i - 1] < 0));
  }
}

TEST_CASE("Nothing is captured that works on rows which may lie elsewhere in another step",
          "[program][capture][experts]") {
  models::ModelSpec model = test::llama_style();
  model.ffn_size = 0;
  model.moe = models::MoeSpec{
      .num_experts = 8, .top_k = 2, .expert_ffn_size = 32, .shared_expert_ffn_size = 32};
  for (const bool bias : {false, true}) {
    model.moe->expert_bias = bias;
    Plan plan = test::make_plan(model, {.pp = 2, .dp = 2, .ep = 2, .etp = 1}, 4);
    plan.schedule = ScheduleKind::ZbH1;
    for (const std::string frozen : {"", "layers.*.mlp.experts.*weight"}) {
      plan.frozen = frozen.empty() ? std::vector<std::string>{} : std::vector{frozen};
      if (!check(plan).empty()) continue;
      int routed = 0;
      for (const Block& block : lower(plan, 0).blocks)
        for (const auto* operations : {&block.forward, &block.backward})
          for (const Operation& operation : *operations) {
            const auto holds_rows = [&](ValueId id) {
              return has_routed_rows(block.values[static_cast<std::size_t>(id)]);
            };
            if (std::ranges::none_of(operation.inputs, holds_rows) &&
                std::ranges::none_of(operation.outputs, holds_rows))
              continue;
            INFO(operation.name);
            CHECK_FALSE(is_static(operation, plan.parallel.ep, CommunicationDriver::Device));
            ++routed;
          }
      CHECK(routed > 10);
    }
  }
}

TEST_CASE("Experts that exchange no rows are captured with all else",
          "[program][capture][experts]") {
  models::ModelSpec model = test::llama_style();
  model.ffn_size = 0;
  model.moe = models::MoeSpec{
      .num_experts = 8, .top_k = 2, .expert_ffn_size = 32, .shared_expert_ffn_size = 32};
  const Program program = lower(test::make_plan(model, {.dp = 2}, 4), 0);
  const std::vector<CaptureRegion> regions = capture_regions(program, CommunicationDriver::Device);
  REQUIRE(regions.size() == 1);  // all but the load of the batch
  CHECK(regions.front().end - regions.front().begin + 1 == std::ssize(program.instances));
}

}  // namespace meshplan::program
