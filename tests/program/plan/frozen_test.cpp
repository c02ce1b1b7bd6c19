// What a program no longer has where parameters are frozen, counted and compared with sums by hand.
#include "program/plan/frozen.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "checks/program_errors.hpp"
#include "models/adapters.hpp"
#include "models/counts.hpp"
#include "program/checks/check.hpp"
#include "program/inspect.hpp"
#include "program/memory/address.hpp"
#include "program/plan_file/plan_file.hpp"
#include "program/plans.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {
namespace {

using test::block_named;
using test::instances_named;
using test::make_plan;
using test::names_of;
using test::parameter_named;
using test::region_bytes;

constexpr std::int64_t kTokensOfStep = 16;
constexpr std::int64_t kFloat = 4;  // bytes
using Patterns = std::vector<std::string>;

Plan freeze(Plan plan, Patterns patterns) {
  plan.frozen = std::move(patterns);
  return plan;
}

const Block& block_of(const Program& program, int layer) {
  const auto found = std::ranges::find(program.layers, layer, &LayerInstance::layer);
  require_invariant(found != program.layers.end(), "no such layer");
  return program.blocks[static_cast<std::size_t>(found->block)];
}

/// Elements of the trained parameters, each filled up to a cache line in both layouts.
std::int64_t trained_elements(const Program& program) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : program.parameters)
    if (!parameter.frozen) elements += (parameter.elements() + 31) / 32 * 32;
  return elements;
}

int count(const std::vector<Operation>& operations, Phase phase) {
  return static_cast<int>(std::ranges::count(operations, phase, &Operation::phase));
}

/// Names of the parameters whose gradients an operation of the program writes.
std::set<std::string> written_gradients(const Program& program) {
  std::set<std::string> names;
  for (const OperationInstance& instance : program.instances) {
    if (!instance.layer) continue;
    const LayerInstance& layer = layer_of(program, instance);
    const Block& block = program.blocks[static_cast<std::size_t>(layer.block)];
    for (const ValueId id : operation_of(program, instance).outputs) {
      const Value& value = block.values[static_cast<std::size_t>(id)];
      if (value.storage == Storage::Gradient)
        names.insert(program
                         .parameters[static_cast<std::size_t>(
                             layer.parameters[static_cast<std::size_t>(value.index)])]
                         .name);
    }
  }
  return names;
}

int backward_messages(const Program& program, bool send) {
  return static_cast<int>(std::ranges::count_if(program.instances, [&](const auto& instance) {
    const Operation& operation = operation_of(program, instance);
    const auto* peer = std::get_if<PeerOp>(&operation.work);
    return peer != nullptr && peer->send == send && !carries_activations(operation.lane);
  }));
}

const std::vector<Patterns>& typical() {
  static const std::vector<Patterns> patterns = {{"embedding"},    {"embedding", "layers.0-1"},
                                                 {"*", "!*norm*"}, {"*", "!head"},
                                                 {"*.bias"},       {"layers.1-2"}};
  return patterns;
}

}  // namespace

TEST_CASE("A pattern names parameters, modules that hold them, and ranges of layers",
          "[program][frozen]") {
  const std::string name = "layers.12.self_attn.qkv_proj.weight";
  for (const char* pattern :
       {"*", "layers", "layers.12", "layers.12.*", "layers.9-12", "layers.12-12.self_attn",
        "*.qkv_proj", "*.weight", "layers.*.self_attn", "layers.0-40.*.weight", "*qkv*"}) {
    INFO(pattern);
    CHECK(matches_parameter(pattern, name));
  }
  for (const char* pattern : {"", "layer", "layers.1", "layers.0-11", "layers.13-20", "layers.2-",
                              "self_attn", "layers.12.", "*.bias", "head"}) {
    INFO(pattern);
    CHECK_FALSE(matches_parameter(pattern, name));
  }
}

TEST_CASE("The last pattern that matches decides", "[program][frozen]") {
  const Plan plan = freeze(make_plan(test::llama_style()), {"*", "!layers.2-3", "layers.3"});
  const FrozenParameters frozen(plan.frozen, models::build_graph(plan.model));
  CHECK(frozen.contains("embedding.embed_tokens.weight"));
  CHECK_FALSE(frozen.contains("layers.2.mlp.down_proj.weight"));
  CHECK(frozen.contains("layers.3.mlp.down_proj.weight"));
  CHECK(frozen.lowest_trained() == 2);
  CHECK(frozen.has_backward(2));
  CHECK_FALSE(frozen.needs_input_gradient(2));
  CHECK(frozen.needs_input_gradient(3));
}

TEST_CASE("Frozen elements are those of the parameters that patterns name", "[program][frozen]") {
  // By hand: qkv 64*128, attention out 64*64, gate and up 64*192, mlp down 96*64, two norms of 64.
  const std::int64_t layer = 64 * 128 + 64 * 64 + 64 * 192 + 96 * 64 + 2 * 64;
  const models::ModelGraph llama = models::build_graph(test::llama_style());
  CHECK(frozen_elements({}, llama) == 0);
  CHECK(frozen_elements({"embedding", "layers.0-1"}, llama) == 300 * 64 + 2 * layer);
  CHECK(frozen_elements({"layers.0-1", "!layers.1.*norm*"}, llama) == 2 * layer - 2 * 64);
  // Tied, the head has no projection of its own.
  const models::ModelGraph gpt2 = models::build_graph(test::gpt2_style());
  CHECK(frozen_elements({"embedding.embed_tokens"}, gpt2) == 300 * 64);
  CHECK(frozen_elements({"*"}, gpt2) == models::count_parameters(gpt2).total);
}

TEST_CASE("Patterns that mean nothing, and plans with nothing to train, are refused",
          "[program][frozen][check]") {
  const auto message_of = [](Patterns patterns) {
    const auto violations = check(freeze(make_plan(test::llama_style()), std::move(patterns)));
    REQUIRE(violations.size() == 1);
    CHECK(violations.front().rule == "frozen");
    return violations.front().message;
  };
  using Catch::Contains;
  CHECK_THAT(message_of({"embeddings"}), Contains("frozen 'embeddings' is no parameter of "
                                                  "llama-style; nearest: embedding,"));
  CHECK_THAT(message_of({"*", "!layers.*.input_layer_norm"}),
             Contains("nearest: layers.*.input_layernorm"));
  CHECK_THAT(message_of({"layers.4-7"}), Contains("is no parameter"));
  CHECK_THAT(message_of({"*"}), Contains("leaves nothing of llama-style to train"));
  CHECK_THAT(message_of({"!head"}), Contains("nearest: '*,!head'"));
  CHECK_THAT(message_of({"!head", "layers.0"}), Contains("begins with '!head'"));
  CHECK(check(freeze(make_plan(test::llama_style()), {"*", "!head"})).empty());
}

TEST_CASE("A plan with frozen parameters survives its file", "[program][frozen][plan]") {
  Plan plan = freeze(make_plan(test::llama_style()), {"embedding", "layers.0-1", "!*norm*"});
  CHECK(parse_plan(to_json(plan), "plan").frozen == plan.frozen);
}

TEST_CASE("Every plan can freeze: nothing of frozen parameters but weights is left",
          "[program][frozen]") {
  std::vector<Plan> plans;
  for (const Plan& plan : test::all_plans())
    if (plans.size() < 400) plans.push_back(plan);
  std::size_t turn = 0;
  for (Plan plan : plans) {
    plan.frozen = typical()[turn++ % typical().size()];
    if (!check(plan).empty()) continue;  // a model without biases
    INFO(test::describe(plan) << " frozen " << plan.frozen.front() << " of " << plan.frozen.size());
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    const std::vector<Program> evaluating = lower_all(plan, Pass::ForwardOnly);
    CHECK(program_errors(evaluating) == std::vector<std::string>{});
    for (std::size_t stage = 0; stage < programs.size(); ++stage)
      for (std::size_t i = 0; i < programs[stage].parameters.size(); ++i)
        CHECK(evaluating[stage].parameters[i].offset == programs[stage].parameters[i].offset);
    const FrozenParameters frozen(plan.frozen, models::build_graph(plan.model));
    for (const Program& program : programs) {
      std::set<std::string> trained;
      for (const Parameter& parameter : program.parameters) {
        CHECK(parameter.frozen == frozen.contains(parameter.name));
        CHECK(parameter.frozen ==
              program.buckets[static_cast<std::size_t>(parameter.bucket)].frozen);
        if (!parameter.frozen) trained.insert(parameter.name);
      }
      CHECK(written_gradients(program) == trained);
      if (plan.zero_stage > 0) continue;
      const std::int64_t bytes = trained_elements(program) * kFloat;
      CHECK(region_bytes(program, Region::Gradients) == bytes);
      CHECK(region_bytes(program, Region::Moment1) == bytes);
      CHECK(region_bytes(program, Region::Moment2) == bytes);
      const bool master = plan.workload.precision != DType::F32;
      CHECK(region_bytes(program, Region::MasterWeights) == (master ? bytes : 0));
    }
  }
}

TEST_CASE("What ranks with equal parameters sum is what they train", "[program][frozen]") {
  for (const Patterns& patterns : typical()) {
    const Plan plan = freeze(make_plan(test::gpt2_style(), {.dp = 2}), patterns);
    const Program program = lower(plan, 0);
    std::int64_t elements = 0;
    for (const OperationInstance& instance : program.instances)
      if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
          flat != nullptr && flat->region == Region::Gradients)
        elements += flat->range.size();
    CHECK(elements == trained_elements(program));
  }
}

TEST_CASE("Below the lowest trained layer there is no backward and nothing is saved",
          "[program][frozen][memory]") {
  Plan plan = make_plan(test::llama_style(), {}, 1);
  plan.frozen = {"embedding", "layers.0-1"};
  const Program program = lower(plan, 0);
  for (const OperationInstance& instance : program.instances)
    if (instance.layer && instance.layer < 3) CHECK_FALSE(instance.operation.backward);
  for (const int layer : {0, 1}) CHECK(block_of(program, layer).saved_bytes == 0);
  // By hand (memory_test): 746 elements a token for each of two layers; two inputs that frozen
  // layers pass on.
  const std::int64_t head = block_named(program, "head").saved_bytes;
  CHECK(region_bytes(program, Region::Saved) ==
        2 * 746 * kTokensOfStep * kFloat + head + 2 * 64 * kTokensOfStep * kFloat);
}

TEST_CASE("The lowest trained layer computes no gradient that only its input would need",
          "[program][frozen][memory]") {
  Plan plan = make_plan(test::llama_style(), {}, 1);
  plan.frozen = {"embedding", "layers.0", "layers.1.input_layernorm"};
  const Program program = lower(plan, 0);
  std::vector<std::string> expected = names_of(block_of(program, 2).backward);
  std::erase(expected, "qkv.input_grad");
  std::erase(expected, "attention_norm.grad");
  CHECK(expected.size() + 2 == block_of(program, 2).backward.size());
  CHECK(names_of(block_of(program, 1).backward) == expected);
  // Nor is its input kept, nor the root mean square of that.
  CHECK(block_of(program, 1).saved_bytes == (746 - 64 - 1) * kTokensOfStep * kFloat);
}

TEST_CASE("With norms alone trained, the inputs of the products are not saved",
          "[program][frozen][memory]") {
  const Plan plan = freeze(make_plan(test::llama_style(), {}, 1), {"*", "!*norm*"});
  const Block block = block_of(lower(plan, 0), 1);
  CHECK(count(block.backward, Phase::WeightGrad) == 0);
  // A token has 746 elements. Weight gradients alone read the outputs of the two norms and of the
  // activation; attention reads its own output.
  CHECK(block.saved_bytes == (746 - 64 - 64 - 96) * kTokensOfStep * kFloat);
}

TEST_CASE("A bias alone is a sum of the gradient", "[program][frozen]") {
  const Plan plan =
      freeze(make_plan(test::gpt2_style(), {}, 1), {"*.weight", "!*norm*", "*norm*.weight"});
  const Block block = block_of(lower(plan, 0), 1);
  int sums = 0;
  for (const Operation& operation : block.backward) {
    const auto* work = std::get_if<ComputeOp>(&operation.work);
    if (operation.phase != Phase::WeightGrad) continue;
    REQUIRE(work != nullptr);
    CHECK(work->kind == ComputeKind::BiasAdd);
    ++sums;
  }
  CHECK(sums == 4);
}

TEST_CASE("With sequence parallelism a frozen product's input is not gathered again",
          "[program][frozen]") {
  const ParallelConfig mesh{.tp = 2, .sp = true};
  const auto gathers = [&](Patterns patterns) {
    const Plan plan = freeze(make_plan(test::llama_style(), mesh, 1), std::move(patterns));
    const Program program = lower(plan, 0);
    int found = 0;
    for (const Operation& operation : block_of(program, 1).backward)
      if (operation.phase == Phase::Recompute) ++found;
    return found;
  };
  CHECK(gathers({}) == 2);
  CHECK(gathers({"layers.*.mlp"}) == 1);
  CHECK(gathers({"layers.*.mlp", "layers.*.self_attn"}) == 0);
}

TEST_CASE("No sum over tp, kv copies or the embedding group is left of what is frozen",
          "[program][frozen]") {
  ParallelConfig mesh{.tp = 8, .pp = 2, .sp = true};
  Plan plan = make_plan(test::llama_style(), mesh, 2);
  plan.model.tied_embeddings = true;
  for (const bool frozen : {false, true}) {
    if (frozen) plan.frozen = {"embedding", "*norm*", "*.qkv_proj"};
    for (const Program& program : lower_all(plan)) {
      const std::size_t expected = frozen ? 0 : 1;
      CHECK(instances_named(program, "sequence_gradients").size() == expected);
      CHECK(instances_named(program, "tied_embedding").size() == expected);
      bool copies = false;
      for (const OperationInstance& instance : program.instances)
        copies = copies ||
                 operation_of(program, instance).name.find(".copied_heads.") != std::string::npos;
      CHECK(copies != frozen);
    }
  }
}

TEST_CASE("No gradient goes to a stage that trains nothing at or below it", "[program][frozen]") {
  for (const ScheduleKind schedule :
       {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1}) {
    Plan plan = make_plan(test::llama_style(), {.pp = 4}, 6);
    plan.schedule = schedule;
    plan.frozen = {"embedding", "layers.0-1"};  // of stages 0 and 1
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    const int sends[] = {0, 0, 0, 6}, receives[] = {0, 0, 6, 0};
    for (std::size_t stage = 0; stage < 4; ++stage) {
      INFO(stage);
      CHECK(backward_messages(programs[stage], true) == sends[stage]);
      CHECK(backward_messages(programs[stage], false) == receives[stage]);
      CHECK(programs[stage].memory.boundary.gradients[0] == (stage < 2 ? 0 : stage == 2 ? 2 : 1));
      for (const OperationInstance& instance : programs[stage].instances)
        if (stage < 2 && instance.layer) CHECK_FALSE(instance.operation.backward);
    }
  }
}

TEST_CASE("A layer that trains nothing leaves nothing for its weight-gradient task",
          "[program][frozen][memory]") {
  Plan plan = make_plan(test::llama_style(), {.pp = 2}, 4);
  plan.schedule = ScheduleKind::ZbH1;
  plan.frozen = {"layers.1"};
  const Program program = lower(plan, 0);
  const Block& frozen = block_of(program, 1);
  CHECK(std::ranges::none_of(frozen.backward, &Operation::deferrable));
  CHECK(frozen.kept_bytes[static_cast<std::size_t>(Keep::UntilWeightGrad)] == 0);
  CHECK(frozen.kept_bytes[static_cast<std::size_t>(Keep::BetweenGrads)] == 0);
  CHECK(block_of(program, 0).kept_bytes[static_cast<std::size_t>(Keep::BetweenGrads)] > 0);
}

TEST_CASE("ZeRO 1 and 2 neither divide nor gather frozen weights", "[program][frozen][zero]") {
  for (const int stage : {1, 2}) {
    Plan plan = make_plan(test::llama_style(), {.pp = 2, .dp = 2}, 2);
    plan.zero_stage = stage;
    plan.frozen = {"embedding", "layers.0-2"};
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    std::int64_t all = 0;
    for (const Parameter& parameter : programs[0].parameters)
      all += (parameter.elements() + 31) / 32 * 32;
    CHECK(region_bytes(programs[0], Region::Weights) == all * kFloat);
    CHECK(region_bytes(programs[0], Region::Gradients) == 0);
    CHECK(region_bytes(programs[0], Region::Moment1) == 0);
    for (const OperationInstance& instance : programs[0].instances)
      CHECK(operation_of(programs[0], instance).lane != Lane::Dp);
    CHECK(region_bytes(programs[1], Region::Moment1) > 0);
  }
}

namespace {

// By hand (above): elements of the embedding, a layer, and the head with the norm before it. Of a
// vocabulary of 300 there are 384 rows.
constexpr std::int64_t kEmbedding = 384 * 64, kLayer = 30848, kHead = 384 * 64 + 64;

/// Every layer is a unit.
Plan divided_plan(const models::ModelSpec& model, const ParallelConfig& parallel,
                  Patterns patterns) {
  Plan plan = freeze(make_plan(model, parallel, 2), std::move(patterns));
  plan.zero_stage = 3;
  plan.bucket_bytes = 4;
  return plan;
}

/// Elements of all gathers of a step.
std::int64_t gathered_elements(const Program& program) {
  std::int64_t elements = 0;
  for (const OperationInstance& instance : program.instances)
    if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
        flat != nullptr && flat->region == Region::GatheredWeights)
      elements += flat->range.size();
  return elements;
}

std::int64_t largest_slot(const Program& program, Region region) {
  return program.memory.regions[static_cast<std::size_t>(region)].stride_bytes;
}

}  // namespace

TEST_CASE("ZeRO-3 divides frozen weights and gathers them for the passes that read them",
          "[program][frozen][zero]") {
  const Plan plan =
      divided_plan(test::llama_style(), {.pp = 2, .dp = 2}, {"embedding", "layers.0-2"});
  const std::vector<Program> programs = lower_all(plan);
  CHECK(program_errors(programs) == std::vector<std::string>{});
  CHECK(program_errors(lower_all(plan, Pass::ForwardOnly)) == std::vector<std::string>{});
  const Program &first = programs[0], &last = programs[1];
  CHECK(region_bytes(first, Region::Weights) == (kEmbedding + 2 * kLayer) / 2 * kFloat);
  CHECK(region_bytes(last, Region::Weights) == (2 * kLayer + kHead) / 2 * kFloat);
  for (const Program& program : programs)
    CHECK(region_bytes(program, Region::GatheredWeights) == 2 * kLayer * kFloat);
  // Nothing is trained on the first stage, so nothing is reduced there.
  for (const Region region : {Region::Gradients, Region::Moment1, Region::UnreducedBuckets})
    CHECK(region_bytes(first, region) == 0);
  CHECK(region_bytes(last, Region::UnreducedBuckets) == 2 * kLayer * kFloat);
  for (const Region region : {Region::Gradients, Region::Moment1})
    CHECK(region_bytes(last, region) == (kLayer + kHead) / 2 * kFloat);
  // Two micro-batches. The last stage reads layer 3 again, backward; the head is still there then.
  CHECK(gathered_elements(first) == 2 * (kEmbedding + 2 * kLayer));
  CHECK(gathered_elements(last) == 2 * (3 * kLayer + kHead));
}

TEST_CASE("ZeRO-3 reduces adapters alone of the units that it gathers", "[program][frozen][zero]") {
  models::ModelSpec model = test::llama_style();
  model.adapters = models::AdapterSpec{.rank = 4, .alpha = 8};
  model.adapters->modules = models::linear_modules(model);
  // A and B beside four linears: rank * (in + out).
  const std::int64_t adapters = 4 * (64 + 128 + 64 + 64 + 64 + 192 + 96 + 64);
  const std::int64_t head = kHead + 64;  // filled up: four parts of cache lines
  for (const int group : {0, 2}) {
    Plan plan = divided_plan(model, {.dp = 4}, models::all_but_adapters());
    plan.zero_shard_group = group;
    const std::int64_t parts = group == 0 ? 4 : group;
    const Program program = lower(plan, 0);
    CHECK(program_errors({program}) == std::vector<std::string>{});
    const std::int64_t frozen = kEmbedding + 4 * kLayer + (group == 0 ? head : kHead);
    CHECK(region_bytes(program, Region::Weights) == (frozen + 4 * adapters) / parts * kFloat);
    CHECK(region_bytes(program, Region::Moment1) == 4 * adapters / parts * kFloat);
    CHECK(largest_slot(program, Region::GatheredWeights) == (kLayer + adapters) * kFloat);
    CHECK(largest_slot(program, Region::UnreducedBuckets) == adapters * kFloat);
  }
}

TEST_CASE("ZeRO-3 divides frozen experts among the ranks that share them",
          "[program][frozen][zero][experts]") {
  models::ModelSpec model = test::llama_style();
  model.moe = models::MoeSpec{.num_experts = 4, .top_k = 2, .expert_ffn_size = 32};
  const Plan plan = divided_plan(model, {.dp = 4, .ep = 2}, {"*.experts"});
  const Program program = lower(plan, 0);
  CHECK(program_errors({program}) == std::vector<std::string>{});
  std::int64_t frozen = 0;
  for (const Bucket& bucket : program.buckets) {
    CHECK(bucket.expert() == bucket.frozen);
    CHECK(bucket.trained != bucket.frozen);
    if (!bucket.frozen) continue;
    CHECK(bucket.shards == 2);
    CHECK(bucket.unit.has_value());
    frozen += bucket.owned_elements();
  }
  // Gate, up and down of two of four experts in four layers, of which a rank owns half.
  CHECK(frozen == 4 * 2 * 3 * 32 * 64 / 2);
  for (const OperationInstance& instance : program.instances)
    if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work);
        flat != nullptr && flat->collective.group == Group::ExpertDp)
      CHECK(flat->region == Region::GatheredWeights);
}

TEST_CASE("Frozen weights of several layers or stages are whole on every rank",
          "[program][frozen][zero]") {
  for (const int pp : {1, 2}) {
    const Plan plan =
        divided_plan(test::gpt2_style(), {.pp = pp, .dp = 2}, {"embedding", "layers.1"});
    const std::vector<Program> programs = lower_all(plan);
    CHECK(program_errors(programs) == std::vector<std::string>{});
    for (const Program& program : programs) {
      const Parameter& tied = parameter_named(program, "embedding.embed_tokens.weight");
      for (const Parameter& parameter : program.parameters) {
        if (!parameter.frozen) continue;
        const Bucket& bucket = program.buckets[static_cast<std::size_t>(parameter.bucket)];
        CHECK(bucket.unit.has_value() == (parameter.name != tied.name));
        CHECK(bucket.shards == (parameter.name == tied.name ? 1 : 2));
      }
    }
  }
}

TEST_CASE("A frozen correction bias is not balanced", "[program][frozen][experts]") {
  models::ModelSpec model = test::llama_style();
  model.moe = models::MoeSpec{.num_experts = 4, .top_k = 2, .expert_ffn_size = 32};
  model.moe->router.score = models::RouterScore::Sigmoid;
  model.moe->router.correction_bias = true;
  Plan plan = make_plan(model, {.dp = 2, .ep = 2}, 2);
  CHECK(program_errors(lower_all(plan)) == std::vector<std::string>{});
  const auto balances = [](const Program& program) {
    return std::ranges::count_if(program.instances, [&](const auto& instance) {
      return operation_of(program, instance).name.ends_with(".balance");
    });
  };
  CHECK(balances(lower(plan, 0)) == 4);
  plan.frozen = {"layers.0-1.*.e_score_correction_bias", "*.experts"};
  const Program program = lower(plan, 0);
  CHECK(program_errors({program}) == std::vector<std::string>{});
  CHECK(balances(program) == 2);
  for (const Bucket& bucket : program.buckets) CHECK((!bucket.expert() || bucket.frozen));
  for (const OperationInstance& instance : program.instances)
    if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation_of(program, instance).work))
      CHECK(flat->collective.group != Group::ExpertDp);
}

}  // namespace meshplan::program
