#include "passes/differentiate.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "core/index.hpp"
#include "passes/shard.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::bert_style;
using test::block_named;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;
using test::names_of;
using test::parameter_named;
using test::post_norm_style;
using test::tp_collectives;
using Names = std::vector<std::string>;

Program lower_with(const ParallelConfig& parallel, RecomputeKind recompute,
                   const LoweringProfile& profile = {}) {
  Plan plan = make_plan(llama_style(), parallel);
  plan.recompute.kind = recompute;
  return lower(plan, 0, Pass::Training, profile);
}

Names backward_collectives(const Program& program, std::string_view block) {
  return tp_collectives(program, block_named(program, block).backward);
}

Names recomputed(const Program& program, std::string_view block = "dense") {
  Names names;
  for (const Operation& operation : block_named(program, block).backward)
    if (operation.phase == Phase::Recompute) names.push_back(operation.name);
  return names;
}

/// How often each parameter's gradient is written by a block's backward.
std::map<int, int> gradient_writes(const Block& block) {
  std::map<int, int> writes;
  for (const Operation& operation : block.backward)
    for (const ValueId output : operation.outputs) {
      const Value& value = block.values[static_cast<std::size_t>(output)];
      if (value.storage == Storage::Gradient) ++writes[value.index];
    }
  return writes;
}

Names partial_parameters(const Plan& plan) {
  std::set<std::string> names;
  for (const Program& program : lower_all(plan))
    for (const Parameter& parameter : program.parameters)
      if (parameter.tp_partial) names.insert(parameter.name);
  return {names.begin(), names.end()};
}

}  // namespace

TEST_CASE("A layer's backward sums the input gradients twice over the tensor-parallel group",
          "[program][differentiate]") {
  // Shoeybi et al. 2019, section 3: f is the conjugate of g, one all-reduce per column-parallel
  // linear.
  const Program program = lower_with({.tp = 2}, RecomputeKind::None);
  CHECK(backward_collectives(program, "dense") == Names{"all_reduce 1024", "all_reduce 1024"});
  CHECK(backward_collectives(program, "embedding") == Names{});
  CHECK(backward_collectives(program, "head") == Names{"all_reduce 1024"});
}

TEST_CASE("Under sequence parallelism the backward gathers, gathers again and scatters",
          "[program][differentiate]") {
  // Korthikanti et al. 2022, section 4.2.2: the conjugates of the forward's two all-gathers and two
  // reduce-scatters, and one extra all-gather of each saved shard.
  const Program program = lower_with({.tp = 2, .sp = true}, RecomputeKind::None);
  const Names half = {"all_gather 512", "all_gather 512", "reduce_scatter 1024"};
  Names both = half;
  both.insert(both.end(), half.begin(), half.end());
  CHECK(backward_collectives(program, "dense") == both);
  CHECK(recomputed(program) == Names{"mlp_norm.all_gather", "attention_norm.all_gather"});
  CHECK(backward_collectives(program, "embedding") == Names{"all_gather 512"});
  CHECK(backward_collectives(program, "head") == Names{"all_gather 512", "reduce_scatter 1024"});
}

TEST_CASE("A profile that keeps the gathered sequence gathers only the gradients",
          "[program][differentiate]") {
  const Program program =
      lower_with({.tp = 2, .sp = true}, RecomputeKind::None, {.regather_sequence = false});
  CHECK(backward_collectives(program, "dense") ==
        Names{"all_gather 512", "reduce_scatter 1024", "all_gather 512", "reduce_scatter 1024"});
  CHECK(recomputed(program) == Names{});
}

TEST_CASE("Selective recompute runs norms and activations again, and nothing else",
          "[program][differentiate]") {
  CHECK(recomputed(lower_with({}, RecomputeKind::Selective)) ==
        Names{"activation", "mlp_norm", "attention_norm"});
  CHECK(recomputed(lower_with({}, RecomputeKind::None)) == Names{});
}

TEST_CASE("Full recompute runs all of a layer again but its last linear",
          "[program][differentiate]") {
  // mlp_down, which adds the residual, only makes the layer's output, which the backward does not
  // read.
  const Names again = recomputed(lower_with({}, RecomputeKind::Full));
  CHECK(std::set<std::string>(again.begin(), again.end()) ==
        std::set<std::string>{"attention_norm", "qkv", "rope", "attention", "attention_out",
                              "mlp_norm", "gate_up", "activation"});
  CHECK(again.size() == 8);
  // Under tp the attention's sum is repeated, the MLP's is not.
  CHECK(backward_collectives(lower_with({.tp = 2}, RecomputeKind::Full), "dense") ==
        Names{"all_reduce 1024", "all_reduce 1024", "all_reduce 1024"});
  CHECK(recomputed(lower_with({}, RecomputeKind::Full), "head") == Names{});
}

TEST_CASE("Full recompute of the first layers leaves the others as they are",
          "[program][differentiate]") {
  Plan plan = make_plan(llama_style());
  plan.recompute = {.kind = RecomputeKind::Full, .num_layers = 3};
  const Program program = lower(plan, 0);
  std::vector<bool> repeats;
  for (const LayerInstance& layer : program.layers)
    if (layer.layer)
      repeats.push_back(std::ranges::any_of(
          program.blocks[static_cast<std::size_t>(layer.block)].backward,
          [](const Operation& operation) { return operation.phase == Phase::Recompute; }));
  CHECK(repeats == std::vector<bool>{true, true, true, false});
}

TEST_CASE("The backward of a layer writes every parameter's gradient exactly once",
          "[program][differentiate]") {
  for (const Plan& plan : test::varied_plans())
    for (const Program& program : lower_all(plan))
      for (const LayerInstance& layer : program.layers) {
        const Block& block = program.blocks[static_cast<std::size_t>(layer.block)];
        const auto writes = gradient_writes(block);
        INFO(test::describe(plan) << " " << block.name);
        REQUIRE(writes.size() == layer.parameters.size());
        for (const auto& [index, count] : writes) REQUIRE(count == 1);
      }
}

TEST_CASE("Under sequence parallelism the gradients of replicated parameters are partial sums",
          "[program][differentiate]") {
  Plan plan = make_plan(gpt2_style(), {.tp = 2, .pp = 2, .sp = true});
  plan.model.num_layers = 2;
  Names expected = {"embedding.embed_positions.weight", "head.norm.bias", "head.norm.weight"};
  for (const char* layer : {"layers.0.", "layers.1."})
    for (const char* name : {"input_layernorm.bias", "input_layernorm.weight", "mlp.down_proj.bias",
                             "post_attention_layernorm.bias", "post_attention_layernorm.weight",
                             "self_attn.o_proj.bias"})
      expected.push_back(std::string(layer) + name);
  CHECK(partial_parameters(plan) == expected);
}

TEST_CASE("Without sequence parallelism no gradient is a partial sum", "[program][differentiate]") {
  for (const int tp : {1, 2, 4})
    CHECK(partial_parameters(make_plan(gpt2_style(), {.tp = tp})) == Names{});
}

TEST_CASE("The gradients of the norms of heads are partial sums over the ranks' heads",
          "[program][differentiate]") {
  Plan plan = make_plan(llama_style(), {.tp = 2});
  plan.model.num_layers = 1;
  plan.model.qk_norm = true;
  CHECK(partial_parameters(plan) ==
        Names{"layers.0.self_attn.k_norm.weight", "layers.0.self_attn.q_norm.weight"});
  plan.parallel.tp = 1;
  CHECK(partial_parameters(plan) == Names{});
}

TEST_CASE("Partial gradients, and only they, are summed over the tensor-parallel group",
          "[program][differentiate]") {
  for (const Program& program :
       lower_all(make_plan(gpt2_style(), {.tp = 2, .pp = 2, .sp = true}))) {
    const auto sums = test::instances_named(program, "sequence_gradients.all_reduce");
    REQUIRE(sums.size() == 1);
    const auto& sum =
        std::get<FlatCollectiveOp>(operation_of(program, program.instances[sums.front()]).work);
    CHECK(sum.collective.group == Group::Tp);
    for (const Parameter& parameter : program.parameters) {
      CAPTURE(parameter.name);
      const bool inside = parameter.offset >= sum.range.begin &&
                          parameter.offset + parameter.elements() <= sum.range.end;
      CHECK(inside == parameter.tp_partial);
    }
  }
}

TEST_CASE("Gradients of heads that several ranks hold are summed over these ranks",
          "[program][differentiate]") {
  Plan plan = make_plan(gpt2_style(), {.tp = 4, .dp = 2});
  plan.model.num_kv_heads = 2;
  const Program program = lower(plan, 0);
  const auto sums = test::instances_named(program, "layers.1.self_attn.qkv_proj");
  REQUIRE(sums.size() == 2);  // weight and bias
  const auto& work =
      std::get<FlatCollectiveOp>(operation_of(program, program.instances[sums.front()]).work);
  CHECK(work.collective.group == Group::KvCopies);
  const Parameter& qkv = test::parameter_named(program, "layers.1.self_attn.qkv_proj.weight");
  CHECK(work.range ==
        FlatRange{qkv.offset + 16 * 64, qkv.offset + 32 * 64});  // 2 query heads first
  // Before the data-parallel sum of the bucket, which may leave only a part of it here.
  const auto buckets = test::instances_named(program, "gradients[");
  CHECK(std::ranges::any_of(buckets, [&](std::size_t bucket) {
    const auto& range =
        std::get<FlatCollectiveOp>(operation_of(program, program.instances[bucket]).work).range;
    return bucket > sums.front() && range.begin <= work.range.begin && work.range.end <= range.end;
  }));
  CHECK(test::instances_named(lower(make_plan(gpt2_style(), {.tp = 4}), 0), "layers.").empty());
}

TEST_CASE("An input gradient's reduction can run under the weight gradient",
          "[program][differentiate]") {
  const Names names =
      test::names_of(block_named(lower_with({.tp = 2}, RecomputeKind::None), "dense").backward);
  const auto place = [&](std::string_view name) {
    return std::ranges::find(names, name) - names.begin();
  };
  CHECK(place("qkv.input_grad") + 1 == place("attention_norm.grad.all_reduce"));
  CHECK(place("attention_norm.grad.all_reduce") + 1 == place("qkv.weight_grad"));
}

TEST_CASE("A gradient that others still read is added to the new one, not the other way",
          "[program][differentiate]") {
  // out = x + (h + y) with h = Linear(x), y = Linear(h): x, h and y share the gradient of out,
  // which the second linear's weight gradient still reads when h gets its second part.
  using models::OpKind;
  const std::vector<models::Dim> shape = {{.symbol = models::Symbol::Tokens}, {.count = 64}};
  models::LayerGraph layer{.name = "dense"};
  const auto tensor = [&](const char* name, bool weight) {
    layer.tensors.push_back(
        {.name = name,
         .tensor_class = weight ? models::TensorClass::Parameter : models::TensorClass::Activation,
         .shape = weight ? std::vector<models::Dim>{{.count = 64}, {.count = 64}} : shape});
    return static_cast<models::TensorId>(layer.tensors.size()) - 1;
  };
  const auto x = tensor("x", false), h = tensor("h", false), y = tensor("y", false),
             sum = tensor("sum", false), out = tensor("out", false);
  const auto w1 = tensor("first.weight", true), w2 = tensor("second.weight", true);
  layer.ops = {
      {.kind = OpKind::Linear, .name = "first", .inputs = {x}, .parameters = {w1}, .outputs = {h}},
      {.kind = OpKind::Linear, .name = "second", .inputs = {h}, .parameters = {w2}, .outputs = {y}},
      {.kind = OpKind::Add, .name = "inner", .inputs = {h, y}, .outputs = {sum}},
      {.kind = OpKind::Add, .name = "outer", .inputs = {x, sum}, .outputs = {out}}};
  layer.input = x;
  layer.output = out;
  const Plan plan = make_plan(llama_style());
  models::ModelGraph graph = models::build_graph(plan.model);
  graph.kinds[0] = layer;
  const Program program = lower(plan, graph, 0);
  const Block& block = block_named(program, "dense");
  const auto named = [&](std::string_view name) -> const Operation& {
    const auto found = std::ranges::find(block.backward, name, &Operation::name);
    REQUIRE(found != block.backward.end());
    return *found;
  };
  const ValueId added_to = root_of(block, named("h.grad.add").outputs.front());
  CHECK(added_to == root_of(block, named("second.input_grad").outputs.front()));
  CHECK(root_of(block, named("second.weight_grad").inputs.front()) != added_to);
}

TEST_CASE("Behind a last norm the gradient of a layer's input takes the stream's place",
          "[program][differentiate][post_norm]") {
  const Program program = lower(make_plan(post_norm_style()), 0);
  const Block& block = block_named(program, "dense");
  const auto root_of = [&](ValueId id) {
    while (block.values[at(id)].alias) id = *block.values[at(id)].alias;
    return block.values[at(id)];
  };
  const auto operation = [&](std::string_view name) {
    return *std::ranges::find(block.backward, name, &Operation::name);
  };
  // Read by the last norm alone, ...
  CHECK(block.backward.front().name == "mlp_norm.grad");
  CHECK(root_of(block.backward.front().inputs.front()).storage == Storage::LayerOutputGrad);
  CHECK(root_of(block.backward.front().outputs.front()).storage == Storage::Transient);
  // ... overwritten by the first one, and added to by the queries'.
  CHECK(root_of(operation("attention_norm.grad").outputs.front()).storage ==
        Storage::LayerOutputGrad);
  CHECK(root_of(operation("x.grad.add").outputs.front()).storage == Storage::LayerOutputGrad);
}

TEST_CASE("A classifier reads the first token of every sequence", "[program][differentiate]") {
  Plan plan = make_plan(bert_style(), {.tp = 2, .sp = true});
  plan.micro_batch_size = 2;
  const Program program = lower(plan, 0);
  const Block& head = block_named(program, "head");
  CHECK(names_of(head.forward) ==
        std::vector<std::string>{"x.all_gather", "pool", "pooler", "pooler_activation",
                                 "classifier", "loss.local", "loss.combine", "loss.sum"});
  const auto rows = [&](const Operation& operation, bool output) {
    const ValueId id = (output ? operation.outputs : operation.inputs).front();
    return local_shape(program, head.values[at(id)]).front();
  };
  CHECK(rows(head.forward[1], false) == 32);
  CHECK(rows(head.forward[1], true) == 2);
  const auto pool = std::ranges::find(head.backward, "pool.input_grad", &Operation::name);
  CHECK(rows(*pool, false) == 2);
  CHECK(rows(*pool, true) == 32);
  CHECK(rows(head.backward.back(), true) == 16);  // sliced for this rank's tokens
  for (const char* name : {"head.classifier.weight", "head.pooler.dense.bias"})
    CHECK_FALSE(parameter_named(program, name).tp_partial);
  // Norms, and the row that all tokens of type 0 share, see this rank's tokens alone.
  for (const char* name : {"embedding.embed_norm.weight", "embedding.embed_token_types.weight"})
    CHECK(parameter_named(program, name).tp_partial);
}

TEST_CASE("The logits are kept, not made twice, even where all else is",
          "[program][differentiate]") {
  const models::ModelGraph graph = models::build_graph(llama_style());
  const ShardContext context{.tp = 2};
  ShardedLayer head = shard(graph.head, context);
  differentiate(head, context, {.whole_layer = true}, {});
  REQUIRE(head.logits.size() == 1);
  CHECK(head.block.values[static_cast<std::size_t>(head.logits.front())].storage == Storage::Saved);
  for (const Operation& operation : head.block.backward) {
    CAPTURE(operation.name);
    CHECK((operation.phase != Phase::Recompute || operation.name == "final_norm"));
  }
}

TEST_CASE("The logits become their own gradient", "[program][differentiate]") {
  const Program program = lower_with({.tp = 2}, RecomputeKind::Full);
  const Block& head = block_named(program, "head");
  const auto loss = std::ranges::find(head.backward, "loss.input_grad", &Operation::name);
  REQUIRE(loss != head.backward.end());
  const Value& gradient = head.values[static_cast<std::size_t>(loss->outputs.front())];
  CHECK(gradient.alias == loss->inputs.front());
}

}  // namespace meshplan::program
