// Who made what a layer's operations read: every pass leaves it as it was, and no order of the
// operations in which something else would be read is accepted.
#include "checks/dataflow.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>

#include "core/index.hpp"
#include "memory/block_memory.hpp"
#include "passes/differentiate.hpp"
#include "passes/fuse_activations.hpp"
#include "passes/shard.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using Operations = std::vector<Operation>;

/// Every kind of layer of the tests' plans, a program each.
std::vector<Block> all_blocks() {
  std::vector<Block> blocks;
  for (const Plan& plan : test::all_plans())
    for (const Program& program : lower_all(plan))
      blocks.insert(blocks.end(), program.blocks.begin(), program.blocks.end());
  return blocks;
}

bool meet(const Block& block, const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
  return std::ranges::any_of(a, [&](ValueId x) {
    return std::ranges::any_of(b,
                               [&](ValueId y) { return root_of(block, x) == root_of(block, y); });
  });
}

std::size_t index_of(const Operations& operations, std::string_view name, Phase phase) {
  const auto found = std::ranges::find_if(operations, [&](const Operation& operation) {
    return operation.name == name && operation.phase == phase;
  });
  REQUIRE(found != operations.end());
  return static_cast<std::size_t>(found - operations.begin());
}

/// The dense layer of GPT-2 with frozen weights, which recomputes everything.
ShardedLayer frozen_layer(bool fused) {
  const Plan plan = test::make_plan(test::gpt2_style());
  const models::ModelGraph graph = models::build_graph(plan.model);
  const ShardContext context;
  ShardedLayer layer = shard(graph.kinds.front(), context);
  for (LayerParameter& parameter : layer.parameters) parameter.parameter.frozen = true;
  differentiate(layer, context, {.whole_layer = true}, meshplan_profile());
  if (fused) fuse_activations(layer);
  return layer;
}

/// What fuse_activations() did before it asked whether it may: the input gradient before the
/// activation takes its work, wherever the activation's input comes from.
void fuse_where_the_product_is(Block& block) {
  Operations& operations = block.backward;
  const std::size_t at_activation = index_of(operations, "activation.input_grad", Phase::InputGrad);
  Operation& product = operations[index_of(operations, "mlp_down.input_grad", Phase::InputGrad)];
  std::get<ComputeOp>(product.work).fused_activation = models::ActivationKind::GeluTanh;
  product.outputs = operations[at_activation].outputs;
  product.inputs.push_back(operations[at_activation].inputs[1]);
  operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(at_activation));
}

}  // namespace

TEST_CASE("An activation fused into a product before its input is computed again is refused",
          "[program][dataflow]") {
  ShardedLayer apart = frozen_layer(false);
  CHECK(dataflow_of(apart.block).errors == std::vector<std::string>{});
  fuse_where_the_product_is(apart.block);
  CHECK(dataflow_of(apart.block).errors ==
        std::vector<std::string>{"mlp_down.input_grad reads mlp_up.again before it is made"});
  CHECK_THROWS_WITH(require_sound(apart.block, "fuse_activations"),
                    Catch::Contains("layer 'dense' after fuse_activations: mlp_down.input_grad"));
}

TEST_CASE("A product whose activation's input is computed again after it is put off",
          "[program][dataflow][fuse]") {
  const ShardedLayer layer = frozen_layer(true);
  const Operations& operations = layer.block.backward;
  CHECK(dataflow_of(layer.block).errors == std::vector<std::string>{});
  CHECK_FALSE(test::has_operation(operations, "activation.input_grad"));
  const std::size_t product = index_of(operations, "mlp_down.input_grad", Phase::InputGrad);
  const auto& work = std::get<ComputeOp>(operations[product].work);
  CHECK(work.fused_activation == models::ActivationKind::GeluTanh);
  CHECK(index_of(operations, "mlp_up", Phase::Recompute) < product);
}

TEST_CASE("Lowered layers read what their operands name", "[program][dataflow]") {
  for (const Block& block : all_blocks()) {
    INFO(block.name);
    CHECK(dataflow_of(block).errors == std::vector<std::string>{});
  }
}

// Neighbours in a list, both ways round: whatever may not change places is seen where it has, and
// nothing else is.
TEST_CASE("Two operations that have changed places are seen where it matters",
          "[program][dataflow]") {
  int matters = 0, harmless = 0;
  for (Block block : all_blocks())
    for (Operations* operations : {&block.forward, &block.backward})
      for (std::size_t i = 0; i + 1 < operations->size(); ++i) {
        const Operation first = (*operations)[i];
        const Operation second = (*operations)[i + 1];
        if (first.deferrable != second.deferrable) continue;  // at another time as it is
        // Both add to a sum that many add to.
        if (meet(block, first.outputs, second.outputs) &&
            !meet(block, first.outputs, second.inputs))
          continue;
        const bool may = may_move(block, *operations, i, i + 1);
        std::swap((*operations)[i], (*operations)[i + 1]);
        const std::vector<std::string> errors = dataflow_of(block).errors;
        INFO(block.name << ": " << first.name << ", " << second.name);
        CHECK(errors.empty() == may);
        ++(may ? harmless : matters);
        std::swap((*operations)[i], (*operations)[i + 1]);
      }
  CHECK(matters > 1000);
  CHECK(harmless > 1000);
}

TEST_CASE("An operation left out is seen by whoever reads what it makes", "[program][dataflow]") {
  int seen = 0;
  for (const Block& block : all_blocks())
    for (const bool backward : {false, true}) {
      const Operations& all = backward ? block.backward : block.forward;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto reads_it = [&](const Operation& operation) {
          return std::ranges::any_of(operation.inputs, [&](ValueId id) {
            return std::ranges::find(all[i].outputs, id) != all[i].outputs.end();
          });
        };
        const bool is_read = std::ranges::any_of(block.forward, reads_it) ||
                             std::ranges::any_of(block.backward, reads_it);
        Block without = block;
        Operations& list = backward ? without.backward : without.forward;
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
        INFO(block.name << " without " << all[i].name);
        CHECK(dataflow_of(without).errors.empty() != is_read);
        seen += is_read ? 1 : 0;
      }
    }
  CHECK(seen > 1000);
}

}  // namespace meshplan::program
