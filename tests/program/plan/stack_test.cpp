// What runs a plan: settings in files, on command lines, and laid over each other.
#include "program/plan/stack.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plan_file/plan_settings.hpp"
#include "program/plan_file/stack_settings.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Catch::Contains;

Stack megatron() {
  return {.software = "megatron-core@25.09",
          .settings = {.overlap_ep = true,
                       .expert_dispatch = ExpertDispatch::HybridEp,
                       .cuda_graphs = CudaGraphs::Partial,
                       .dropout = 0.25,
                       .second_moment_dtype = StateDType::BF16}};
}

}  // namespace

TEST_CASE("A plan's file keeps its stack, and holds what is stated alone", "[program][stack]") {
  Plan plan = test::make_plan(models::load_preset("tiny-llama"));
  CHECK(to_json(plan).find(R"("software": "meshplan")") != std::string::npos);
  CHECK(to_json(plan).find("overlap_ep") == std::string::npos);
  plan.stack = megatron();
  const Plan read = parse_plan(to_json(plan), "plan.json");
  CHECK(read.stack == plan.stack);
  CHECK(stated_settings(read.stack.settings) ==
        std::vector<std::string>{"overlap_ep=true", "expert_dispatch=hybridep",
                                 "cuda_graphs=partial", "dropout=0.25",
                                 "second_moment_dtype=bf16"});
  // A file from before plans had one is of this project's runtime.
  plan.stack = {};
  std::string old = to_json(plan);
  const auto at = old.find("\"stack\"");
  old.erase(at, old.find('}', at) + 2 - at);
  CHECK(parse_plan(old, "plan.json") == parse_plan(to_json(plan), "plan.json"));
}

TEST_CASE("Every setting is set by its name, by --stack and by --set", "[program][stack]") {
  for (const std::string& name : stack_setting_names()) {
    INFO(name);
    Stack stack = megatron();
    bool is_set = false;
    for (const char* value :
         {"true", "2", "0.5", "none", "unfused", "deepep", "bf16", "mxfp8", "blockwise"}) {
      try {
        set_stack(stack, name + "=" + value, "--stack");
      } catch (const ConfigError&) {
        continue;  // a value of another type
      }
      is_set = true;
      const std::vector<std::string> stated = stated_settings(stack.settings);
      CHECK(std::ranges::find(stated, name + "=" + value) != stated.end());
      Plan plan = test::make_plan(models::load_preset("tiny-llama"));
      plan.stack = {.software = "megatron-core", .settings = {}};
      const ChangedPlan changed =
          change_plan(to_json(plan), "plan.json", {"stack." + name + "=" + value});
      CHECK(stated_settings(parse_plan(changed.text, "plan.json").stack.settings) ==
            std::vector<std::string>{name + "=" + value});
    }
    CHECK(is_set);
    set_stack(stack, name + "=null", "--stack");
    for (const std::string& stated : stated_settings(stack.settings))
      CHECK_FALSE(stated.starts_with(name + "="));
  }
}

TEST_CASE("A setting that there is not is refused with the nearest one", "[program][stack]") {
  Stack stack = megatron();
  CHECK_THROWS_WITH(set_stack(stack, "overlap_ed=true", "--stack"),
                    Contains("--stack overlap_ed=true") && Contains("'overlap_ep'"));
  CHECK_THROWS_WITH(set_stack(stack, "expert_dispatch=deepp", "--stack"), Contains("deepep"));
  CHECK_THROWS_WITH(set_stack(stack, "overlap_ep", "--stack"), Contains("expected NAME=VALUE"));
  CHECK_THROWS_WITH(set_stack(stack, "dropout=2", "--stack"), Contains("dropout"));
  CHECK(stack == megatron());
  Plan plan = test::make_plan(models::load_preset("tiny-llama"));
  plan.stack.settings.overlap_ep = true;
  REQUIRE(check(plan).size() == 1);
  CHECK(check(plan).front().rule == "stack");
  plan.stack.software = "megatron-core";
  CHECK(check(plan).empty());
}

TEST_CASE("Settings are laid over each other, and contradict where both state one",
          "[program][stack]") {
  const StackSettings stated{.overlap_ep = false, .dropout = 0.1};
  const StackSettings chosen{.overlap_ep = true, .cuda_graphs = CudaGraphs::Full};
  CHECK(merged(stated, chosen) ==
        StackSettings{.overlap_ep = false, .cuda_graphs = CudaGraphs::Full, .dropout = 0.1});
  CHECK(contradict(stated, chosen));
  CHECK_FALSE(contradict(stated, {.cuda_graphs = CudaGraphs::Full, .dropout = 0.1}));
  CHECK_FALSE(contradict({}, chosen));
}

}  // namespace meshplan::program
