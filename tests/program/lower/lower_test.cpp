#include "program/lower/lower.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "lower/link.hpp"
#include "program/checks/check.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"
#include "program/schedule/generators.hpp"
#include "program/trace/program_json.hpp"
#include "support/cases.hpp"

namespace meshplan::program {
namespace {

using test::make_plan;
using Names = std::vector<std::string>;

std::vector<int> layers_of(const Program& program) {
  std::vector<int> layers;
  for (const LayerInstance& layer : program.layers)
    if (layer.layer) layers.push_back(*layer.layer);
  return layers;
}

}  // namespace

TEST_CASE("Stages hold consecutive layers, the embedding on the first, the head on the last",
          "[program][lower]") {
  Plan plan = make_plan(test::llama_style(), {.pp = 2});
  plan.layers_per_stage = {1, 3};
  const auto programs = lower_all(plan);
  CHECK(layers_of(programs[0]) == std::vector<int>{0});
  CHECK(layers_of(programs[1]) == std::vector<int>{1, 2, 3});
  CHECK(test::has_parameter(programs[0], "embedding.embed_tokens.weight"));
  CHECK(test::has_parameter(programs[0], "layers.0.mlp.down_proj.weight"));
  CHECK(test::has_parameter(programs[1], "layers.3.mlp.down_proj.weight"));
  CHECK(test::has_parameter(programs[1], "head.norm.weight"));
  CHECK_FALSE(test::has_parameter(programs[1], "layers.0.mlp.down_proj.weight"));
}

// Lowering to the wanted size is what it is held against.
TEST_CASE("A program given another size of micro-batches is that of a plan of this size",
          "[program][lower]") {
  std::vector<Plan> plans = test::all_plans();
  for (Plan& plan : test::float8_plans()) plans.push_back(std::move(plan));
  models::ModelSpec experts = test::llama_style();
  experts.ffn_size = 0;
  experts.moe = models::MoeSpec{.num_experts = 8, .top_k = 2, .expert_ffn_size = 32};
  for (const double capacity : {0.0, 1.25}) {
    experts.moe->capacity_factor = capacity;
    for (const ParallelConfig& parallel :
         {ParallelConfig{}, ParallelConfig{.tp = 2, .pp = 2, .dp = 2, .ep = 2, .sp = true}})
      for (const int zero_stage : {0, 3}) {
        plans.push_back(make_plan(experts, parallel));
        plans.back().zero_stage = zero_stage;
      }
  }
  for (std::size_t i = 0; i < plans.size(); i += 3) {  // some of each kind, recompute in turn
    plans.push_back(plans[i]);
    plans.back().recompute.kind = static_cast<RecomputeKind>(i % 3);
  }
  int compared = 0;
  const std::size_t one_in = testing::few_cases() ? 5 : 1;
  for (std::size_t i = 0; i < plans.size(); i += one_in) {
    const Plan& plan = plans[i];
    Plan larger = plan;
    larger.micro_batch_size = 3 * plan.micro_batch_size;
    larger.workload.global_batch_size *= 3;
    if (!check(plan).empty() || !check(larger).empty()) continue;
    CAPTURE(test::describe(plan));
    for (int stage = 0; stage < plan.parallel.pp; ++stage) {
      Program resized = lower(plan, stage);
      set_micro_batch_size(resized, larger.micro_batch_size);
      link(resized);  // which it leaves as it was
      const Program wanted = lower(larger, stage);
      REQUIRE(to_json(resized) == to_json(wanted));
      REQUIRE(resized.kept_places == wanted.kept_places);
      for (std::size_t b = 0; b < wanted.blocks.size(); ++b)
        for (std::size_t v = 0; v < wanted.blocks[b].values.size(); ++v) {
          const Value &one = resized.blocks[b].values[v], &other = wanted.blocks[b].values[v];
          REQUIRE(std::pair(one.offset_bytes, one.bytes) ==
                  std::pair(other.offset_bytes, other.bytes));
        }
      ++compared;
    }
  }
  CHECK(compared > 500 / static_cast<int>(one_in));
}

TEST_CASE("Identical layers share one block", "[program][lower]") {
  const Program program = lower(make_plan(test::llama_style()), 0);
  CHECK(program.layers.size() == 6);  // embedding, 4 layers, head
  CHECK(program.blocks.size() == 3);
  const Program sliding = lower(make_plan(test::gemma_style()), 0);
  CHECK(sliding.blocks.size() == 4);  // sliding and full layers differ
}

TEST_CASE("Operation ids are unique in a program and equal over two lowerings",
          "[program][lower]") {
  for (const Plan& plan : test::varied_plans())
    for (int stage = 0; stage < plan.parallel.pp; ++stage) {
      const Program program = lower(plan, stage);
      const Program again = lower(plan, stage);
      INFO(test::describe(plan) << " stage " << stage);
      std::set<std::uint64_t> ids;
      for (std::size_t i = 0; i < program.instances.size(); ++i) {
        REQUIRE(program.instances[i].id == again.instances[i].id);
        REQUIRE(program.instances[i].id < (std::uint64_t{1} << 53));  // exact in every JSON reader
        ids.insert(program.instances[i].id);
      }
      CHECK(ids.size() == program.instances.size());
    }
}

TEST_CASE("Operation ids are those that files already hold", "[program][lower]") {
  // Traces of earlier builds name operations by id: FNV-1a of the name, then of
  // (task, layer) as little-endian 64-bit numbers, low 53 bits; computed apart with Python.
  const Program program = lower(make_plan(test::llama_style()), 0);
  CHECK(program.instances.front().id == 8303791280634910U);
}

TEST_CASE("The first gradient of a step overwrites, later ones add", "[program][lower]") {
  for (const auto& model : {test::llama_style(), test::gpt2_style()}) {
    const Program program = lower(make_plan(model, {.tp = 2}, 3), 0);
    std::set<int> written;
    for (const OperationInstance& instance : program.instances) {
      if (!instance.layer) continue;
      const LayerInstance& layer = layer_of(program, instance);
      const Block& block = program.blocks[static_cast<std::size_t>(layer.block)];
      for (const ValueId output : operation_of(program, instance).outputs) {
        const Value& value = block.values[static_cast<std::size_t>(output)];
        if (value.storage != Storage::Gradient) continue;
        const int parameter = layer.parameters[static_cast<std::size_t>(value.index)];
        REQUIRE(instance.accumulate == !written.insert(parameter).second);
      }
    }
    CHECK(written.size() == program.parameters.size());
  }
}

TEST_CASE("Stages exchange one activation and one gradient per micro-batch", "[program][lower]") {
  const auto programs =
      lower_all(make_plan(test::llama_style(), {.tp = 2, .pp = 3, .sp = true}, 5));
  const auto count = [&](std::size_t stage, const char* name) {
    return test::instances_named(programs[stage], name).size();
  };
  for (const char* name : {"send_forward", "recv_backward"}) {
    CHECK(count(0, name) == 5);
    CHECK(count(1, name) == 5);
    CHECK(count(2, name) == 0);
  }
  for (const char* name : {"recv_forward", "send_backward"}) {
    CHECK(count(0, name) == 0);
    CHECK(count(1, name) == 5);
    CHECK(count(2, name) == 5);
  }
  const auto& send = operation_of(
      programs[0], programs[0].instances[test::instances_named(programs[0], "send_forward")[0]]);
  const auto& peer = std::get<PeerOp>(send.work);
  CHECK(models::evaluate(peer.elements, programs[0].sizes) == 16 * 64 / 2);  // this rank's tokens
  CHECK(peer.stage_offset == 1);
}

TEST_CASE("Within a stage operations follow the schedule's tasks", "[program][lower]") {
  const auto programs = lower_all(make_plan(test::llama_style(), {.pp = 2}, 4));
  for (const Program& program : programs) {
    const Schedule schedule = one_f_one_b(2, 4);
    CHECK(program.tasks == schedule.tasks[static_cast<std::size_t>(program.role.stage)]);
    int task = 0;
    for (const OperationInstance& instance : program.instances) {
      if (!instance.task) continue;
      REQUIRE((instance.task == task || instance.task == task + 1));
      task = *instance.task;
      REQUIRE(instance.microbatch == program.tasks[static_cast<std::size_t>(task)].microbatch);
      const Phase phase = operation_of(program, instance).phase;
      const bool forward = program.tasks[static_cast<std::size_t>(task)].kind == TaskKind::Forward;
      REQUIRE(forward == (phase == Phase::Forward));
    }
    CHECK(task + 1 == static_cast<int>(program.tasks.size()));
  }
}

TEST_CASE("A forward-only program has no backward, one slot and no optimizer", "[program][lower]") {
  for (const Program& program :
       lower_all(make_plan(test::gpt2_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 4),
                 Pass::ForwardOnly)) {
    CHECK(program.tasks.size() == 4);
    for (const Block& block : program.blocks) CHECK(block.backward.empty());
    for (const OperationInstance& instance : program.instances) {
      const Operation& operation = operation_of(program, instance);
      INFO(operation.name);
      const bool loss = operation.name.starts_with("loss") || operation.name == "mask_loss";
      CHECK((operation.phase == Phase::Forward || loss));
    }
    for (const Region region :
         {Region::Gradients, Region::MasterWeights, Region::Moment1, Region::Moment2})
      CHECK(test::region_bytes(program, region) == 0);
    // One micro-batch's, and an input that arrives while the one before is at work.
    std::int64_t kept = 0;
    for (const LayerInstance& layer : program.layers) {
      const Block& block = program.blocks[static_cast<std::size_t>(layer.block)];
      kept += block.saved_bytes;
    }
    const std::int64_t input = program.role.stage > 0 ? 16 / 2 * 64 * 4 : 0;
    CHECK(test::region_bytes(program, Region::Saved) == kept + input);
    CHECK(test::instances_named(program, "recv_backward").empty());
  }
}

TEST_CASE("A forward-only program needs less memory for activations than training",
          "[program][lower]") {
  const Plan plan = make_plan(test::llama_style());
  // Only the inputs of the five layers after the embedding are kept: (T, D) of fp32.
  CHECK(test::region_bytes(lower(plan, 0, Pass::ForwardOnly), Region::Saved) == 5 * 16 * 64 * 4);
}

TEST_CASE("A plan that breaks rules is not lowered, and all of them are named",
          "[program][lower]") {
  Plan plan = make_plan(test::llama_style(), {.tp = 3, .pp = 5});
  CHECK_THROWS_AS(lower(plan, 0), ConfigError);
  CHECK_THROWS_WITH(lower(plan, 0), Catch::Contains("num_heads (8)") && Catch::Contains("pp (5)"));
  CHECK_THROWS_AS(lower(make_plan(test::llama_style()), 1), InvariantError);  // no such stage
}

TEST_CASE("The stage with the larger share of a remainder is not the first or the last",
          "[program][lower]") {
  const auto split = [](int layers, int pp) {
    Plan plan = make_plan(test::llama_style(), {.pp = pp});
    plan.model.num_layers = layers;
    return resolved_layers_per_stage(plan);
  };
  CHECK(split(8, 4) == std::vector<int>{2, 2, 2, 2});
  CHECK(split(5, 4) == std::vector<int>{1, 2, 1, 1});
  CHECK(split(6, 4) == std::vector<int>{1, 2, 2, 1});
  CHECK(split(7, 4) == std::vector<int>{2, 2, 2, 1});  // the last one also holds the head
  CHECK(split(5, 2) == std::vector<int>{3, 2});
}

TEST_CASE("Embedding and head count as layers where the plan says so", "[program][lower]") {
  Plan plan = make_plan(test::llama_style(), {.pp = 4});
  plan.model.num_layers = 10;
  plan.count_ends_as_layers = true;
  CHECK(resolved_layers_per_stage(plan) == std::vector<int>{2, 3, 3, 2});
  plan.parallel.vpp = 3;  // embedding and head alone
  CHECK(resolved_layers_per_stage(plan) == std::vector<int>{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0});
}

TEST_CASE("Recomputed layers are limited for all stages or for each", "[program][lower]") {
  Plan plan = make_plan(test::llama_style(), {.pp = 2});
  CHECK(recomputed_layers_per_stage(plan) == std::vector<int>{0, 0});
  plan.recompute = {
      .kind = RecomputeKind::Full, .num_layers = std::nullopt, .layers_per_stage = {}};
  CHECK(recomputed_layers_per_stage(plan) == std::vector<int>{2, 2});
  plan.recompute.num_layers = 1;
  CHECK(recomputed_layers_per_stage(plan) == std::vector<int>{1, 1});
  plan.recompute.layers_per_stage = {0, 5};
  CHECK(recomputed_layers_per_stage(plan) == std::vector<int>{0, 2});
}

TEST_CASE("In a V the first rank holds both ends of the model, and one tied embedding",
          "[program][lower]") {
  Plan plan = make_plan(test::gpt2_style(), {.pp = 2, .vpp = 2}, 4);
  plan.schedule = ScheduleKind::ZbV;
  const auto programs = lower_all(plan);
  CHECK(programs[0].role.first_stage);
  CHECK(programs[0].role.last_stage);
  CHECK_FALSE(programs[1].role.first_stage);
  CHECK_FALSE(programs[1].role.last_stage);
  CHECK(programs[0].layers.front().chunk == 0);
  CHECK(programs[0].layers.back().chunk == 1);
  for (const Program& program : programs)
    CHECK(test::instances_named(program, "tied_embedding").empty());
  // The turn of the V passes activations on without a message.
  CHECK(test::instances_named(programs[1], "send_forward").size() == 4);
  CHECK(test::instances_named(programs[1], "recv_forward").size() == 4);
}

TEST_CASE("An interleaved rank sends each chunk's output to the next, from the last to the first",
          "[program][lower]") {
  Plan plan = make_plan(test::llama_style(), {.pp = 2, .vpp = 2}, 4);
  plan.schedule = ScheduleKind::Interleaved;
  const auto programs = lower_all(plan);
  // Chunk 0 of both stages sends on, and so does chunk 1 of the first: 4 micro-batches each.
  CHECK(test::instances_named(programs[0], "send_forward").size() == 8);
  CHECK(test::instances_named(programs[1], "send_forward").size() == 4);
  for (const std::size_t i : test::instances_named(programs[1], "send_forward"))
    CHECK(std::get<PeerOp>(operation_of(programs[1], programs[1].instances[i]).work).stage_offset ==
          -1);
}

TEST_CASE("A split backward runs each operation of the full one once", "[program][lower]") {
  for (const Plan& plan : test::scheduled_plans())
    for (const Program& program : lower_all(plan)) {
      std::map<std::tuple<int, int, int>, int> runs;  // micro-batch, layer, operation
      for (const OperationInstance& instance : program.instances)
        if (instance.layer && instance.operation.backward)
          ++runs[{*instance.microbatch, *instance.layer, instance.operation.index}];
      std::size_t expected = 0;
      for (const LayerInstance& layer : program.layers)
        expected += program.blocks[static_cast<std::size_t>(layer.block)].backward.size();
      CHECK(runs.size() == expected * static_cast<std::size_t>(plan.num_microbatches()));
      CHECK(std::ranges::all_of(runs, [](const auto& entry) { return entry.second == 1; }));
    }
}

}  // namespace meshplan::program
