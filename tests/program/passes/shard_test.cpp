// Llama-style sizes: T = 16 tokens, D = 64, so an activation of the residual stream has 1024
// elements.
#include <catch2/catch.hpp>

#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::block_named;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;
using test::tp_collectives;
using Names = std::vector<std::string>;

Names forward_collectives(const ParallelConfig& parallel, std::string_view block) {
  const Program program = lower(make_plan(llama_style(), parallel), 0);
  return tp_collectives(program, block_named(program, block).forward);
}

}  // namespace

TEST_CASE("Without tensor parallelism a program has no collective inside its blocks",
          "[program][shard]") {
  for (const auto& model : {llama_style(), gpt2_style()}) {
    const Program program = lower(make_plan(model), 0);
    for (const Block& block : program.blocks) {
      CHECK(tp_collectives(program, block.forward) == Names{});
      CHECK(tp_collectives(program, block.backward) == Names{});
    }
  }
}

TEST_CASE("A layer's forward sums twice over the tensor-parallel group", "[program][shard]") {
  // Shoeybi et al. 2019 (Megatron-LM), section 3: one all-reduce after the attention, one after the
  // MLP, each of the whole (T, D) activation.
  const Program program = lower(make_plan(llama_style(), {.tp = 2}), 0);
  const Block& layer = block_named(program, "dense");
  CHECK(tp_collectives(program, layer.forward) == Names{"all_reduce 1024", "all_reduce 1024"});
  CHECK(test::names_of(layer.forward) == Names{"attention_norm", "qkv", "rope", "attention",
                                               "attention_out", "attention_out.all_reduce",
                                               "mlp_norm", "gate_up", "activation", "mlp_down",
                                               "mlp_down.all_reduce", "mlp_add"});
}

TEST_CASE("With sequence parallelism a layer gathers and scatters the sequence twice",
          "[program][shard]") {
  // Korthikanti et al. 2022, section 4.2.2, figure 5: g is an all-gather, g-bar a reduce-scatter.
  CHECK(forward_collectives({.tp = 2, .sp = true}, "dense") ==
        Names{"all_gather 512", "reduce_scatter 1024", "all_gather 512", "reduce_scatter 1024"});
  CHECK(forward_collectives({.tp = 4, .sp = true}, "dense") ==
        Names{"all_gather 256", "reduce_scatter 1024", "all_gather 256", "reduce_scatter 1024"});
}

TEST_CASE("The vocabulary's shards are summed in the embedding and combined in the loss",
          "[program][shard]") {
  // Ranks exchange three numbers per token, not logits: maximum, sum of exponentials, target.
  CHECK(forward_collectives({.tp = 2}, "embedding") == Names{"all_reduce 1024"});
  CHECK(forward_collectives({.tp = 2, .sp = true}, "embedding") == Names{"reduce_scatter 1024"});
  CHECK(forward_collectives({.tp = 2}, "head") == Names{"all_gather 48"});
  CHECK(forward_collectives({.tp = 2, .sp = true}, "head") ==
        Names{"all_gather 512", "all_gather 48"});
}

TEST_CASE("Every collective of a block runs on the tensor-parallel lane and group",
          "[program][shard]") {
  const Program program = lower(make_plan(gpt2_style(), {.tp = 2, .sp = true}), 0);
  for (const Block& block : program.blocks)
    for (const auto* operations : {&block.forward, &block.backward})
      for (const Operation& operation : *operations) {
        const auto* collective = std::get_if<CollectiveOp>(&operation.work);
        CHECK(operation.lane == (collective != nullptr ? Lane::Tp : Lane::Compute));
        if (collective != nullptr) CHECK(collective->group == Group::Tp);
      }
}

TEST_CASE("The bias of a row-parallel linear is added once, after the sum", "[program][shard]") {
  const auto layer_of = [](const ParallelConfig& parallel) {
    return block_named(lower(make_plan(gpt2_style(), parallel), 0), "dense");
  };
  const Names names = test::names_of(layer_of({.tp = 2}).forward);
  const auto sum = std::ranges::find(names, "mlp_down.all_reduce");
  REQUIRE(sum != names.end());
  CHECK(*(sum + 1) == "mlp_down.bias");
  // On one rank the linear adds it itself: weight, bias and residual are inputs, nothing follows.
  const Block alone = layer_of({});
  const Names alone_names = test::names_of(alone.forward);
  CHECK(std::ranges::find(alone_names, "mlp_down.bias") == alone_names.end());
  CHECK(std::ranges::find(alone.forward, "mlp_down", &Operation::name)->inputs.size() == 4);
}

TEST_CASE("Local shapes divide heads, features or tokens", "[program][shard]") {
  const Program program = lower(make_plan(llama_style(), {.tp = 2, .sp = true}), 0);
  const Block& layer = block_named(program, "dense");
  const auto output_shape = [&](std::string_view operation, std::size_t output = 0) {
    const auto found = std::ranges::find(layer.forward, operation, &Operation::name);
    REQUIRE(found != layer.forward.end());
    return local_shape(program, layer.values[static_cast<std::size_t>(found->outputs.at(output))]);
  };
  using Shape = std::vector<std::int64_t>;
  CHECK(output_shape("attention_norm") == Shape{8, 64});  // T / tp
  CHECK(output_shape("attention_norm", 1) == Shape{8});   // its statistics
  CHECK(output_shape("attention_norm.all_gather") == Shape{16, 64});
  CHECK(output_shape("qkv") == Shape{16, 64});          // (H + 2K) E / tp = 128 / 2
  CHECK(output_shape("attention") == Shape{16, 32});    // H E / tp
  CHECK(output_shape("attention", 1) == Shape{16, 4});  // log-sum-exp per local head
  CHECK(output_shape("gate_up") == Shape{16, 96});      // 2 F / tp
  CHECK(output_shape("mlp_down") == Shape{16, 64});     // a partial sum
  CHECK(output_shape("mlp_down.reduce_scatter") == Shape{8, 64});
  const auto attention = std::ranges::find(layer.forward, "attention", &Operation::name);
  CHECK(std::get<ComputeOp>(attention->work).attributes.heads == 4);
  CHECK(std::get<ComputeOp>(attention->work).attributes.kv_heads == 2);
}

TEST_CASE("With fewer key heads than ranks each rank holds one", "[program][shard]") {
  const Program program = lower(make_plan(llama_style(), {.tp = 8}), 0);
  const Block& layer = block_named(program, "dense");
  const auto attention = std::ranges::find(layer.forward, "attention", &Operation::name);
  REQUIRE(attention != layer.forward.end());
  CHECK(std::get<ComputeOp>(attention->work).attributes.heads == 1);
  CHECK(std::get<ComputeOp>(attention->work).attributes.kv_heads == 1);
  const Value& qkv = layer.values[static_cast<std::size_t>(attention->inputs.front())];
  CHECK(local_shape(program, qkv) == std::vector<std::int64_t>{16, 24});  // (1 + 2) heads of 8
}

TEST_CASE("A column-parallel linear gathers its output for whoever needs whole rows",
          "[program][shard]") {
  const auto layer_of = [](const ParallelConfig& parallel) {
    const Plan plan = make_plan(llama_style(), parallel);
    models::ModelGraph graph = models::build_graph(plan.model);
    std::ranges::find(graph.kinds[0].ops, "mlp_down", &models::Op::name)->split =
        models::Split::Column;
    return lower(plan, graph, 0);
  };
  const Program program = layer_of({.tp = 2});
  const Block& layer = block_named(program, "dense");
  const Names names = test::names_of(layer.forward);
  // The activation's 48 columns first: mlp_down reads whole rows as well.
  CHECK(Names(names.end() - 6, names.end()) == Names{"activation.all_gather", "activation.unpack",
                                                     "mlp_down", "mlp_down.all_gather",
                                                     "mlp_down.unpack", "mlp_add"});
  CHECK(tp_collectives(program, layer.forward) ==
        Names{"all_reduce 1024", "all_gather 768", "all_gather 512"});
  // Backward: the sum of the input gradient, cut in columns; of mlp_down's output only a slice.
  CHECK(tp_collectives(program, layer.backward) ==
        Names{"reduce_scatter 1536", "all_reduce 1024", "all_reduce 1024"});
  CHECK(std::ranges::find(layer.backward, "mlp_down.grad.slice", &Operation::name) !=
        layer.backward.end());
  // Under SP the gathered output is cut to the rank's tokens.
  const Program with_sp = layer_of({.tp = 2, .sp = true});
  const Block& sp_layer = block_named(with_sp, "dense");
  const auto unpack = std::ranges::find(sp_layer.forward, "mlp_down.unpack", &Operation::name);
  REQUIRE(unpack != sp_layer.forward.end());
  CHECK(local_shape(with_sp, sp_layer.values[static_cast<std::size_t>(unpack->outputs.front())]) ==
        std::vector<std::int64_t>{8, 64});
}

TEST_CASE("A row-parallel linear cuts an input that is not parallel yet", "[program][shard]") {
  const Plan plan = make_plan(llama_style(), {.tp = 2});
  models::ModelGraph graph = models::build_graph(plan.model);
  std::ranges::find(graph.kinds[0].ops, "gate_up", &models::Op::name)->split = models::Split::None;
  const Program program = lower(plan, graph, 0);
  const Block& layer = block_named(program, "dense");
  const Names names = test::names_of(layer.forward);
  CHECK(Names(names.end() - 5, names.end()) ==
        Names{"activation", "activation.slice", "mlp_down", "mlp_down.all_reduce", "mlp_add"});
  CHECK(tp_collectives(program, layer.backward) == Names{"all_gather 768", "all_reduce 1024"});
}

TEST_CASE("A head without a vocabulary-parallel loss gathers the logits", "[program][shard]") {
  const Program program =
      lower(make_plan(llama_style(), {.tp = 2}), 0, Pass::Training, {.vocab_parallel_loss = false});
  const Block& head = block_named(program, "head");
  CHECK(test::names_of(head.forward) == Names{"final_norm", "lm_head", "lm_head.all_gather",
                                              "lm_head.unpack", "loss.local", "loss.combine",
                                              "loss.sum"});
  // 512 padded rows, half of them here, for 16 tokens; backward only the input gradient's sum
  CHECK(tp_collectives(program, head.forward) == Names{"all_gather 4096"});
  CHECK(tp_collectives(program, head.backward) == Names{"all_reduce 1024"});
}

TEST_CASE("The vocabulary is padded to a multiple of 128 * tp", "[program][shard]") {
  // Megatron-LM's rule; GPT-2's 50257 becomes 50304 on one rank and 51200 on eight.
  Plan plan = make_plan(gpt2_style());
  plan.model.vocab_size = 50257;
  const auto rows = [&](int tp) {
    plan.parallel.tp = tp;
    return tp * test::parameter_named(lower(plan, 0), "embedding.embed_tokens.weight")
                    .local_shape.front();
  };
  CHECK(rows(1) == 50304);
  CHECK(rows(2) == 50432);
  CHECK(rows(8) == 51200);
  plan.model.vocab_size = 512;  // already a multiple
  CHECK(rows(4) == 512);
}

TEST_CASE("A scaled embedding is scaled after its shards are summed", "[program][shard]") {
  const Program program = lower(make_plan(test::gemma_style(), {.tp = 2}), 0);
  CHECK(test::names_of(block_named(program, "embedding").forward) ==
        Names{"embedding", "embedding.all_reduce", "embedding_scale"});
}

}  // namespace meshplan::program
