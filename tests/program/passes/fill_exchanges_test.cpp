// What runs while an exchange of experts is under way. That no bit of a run changes is for parity
// tests to say.
#include "passes/fill_exchanges.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "checks/dataflow.hpp"
#include "models/model_spec.hpp"
#include "program/inspect.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::program::filling {  // files are compiled together
namespace {

/// DeepSeek-V3 as it is, but for its number of layers.
Plan large_plan(int node_ranks, RecomputeKind recompute = RecomputeKind::None) {
  models::ModelSpec model = models::load_preset("deepseek-v3");
  model.mtp_layers = 0;
  Plan plan = test::make_plan(model, {.tp = 2, .dp = 16, .ep = 32, .sp = true}, 2);
  plan.model.num_layers = 4;
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.expert_node_ranks = node_ranks;
  plan.recompute.kind = recompute;
  return plan;
}

const Block& mixture_of(const Program& program) {
  for (const Block& block : program.blocks)
    if (std::ranges::find(block.forward, "dispatch", &Operation::name) != block.forward.end())
      return block;
  throw std::runtime_error("no layer of experts");
}

Program lowered(const Plan& plan, bool filled) {
  return lower(plan, 0, Pass::Training, {.filled_exchanges = filled});
}

/// Of each operation what made its operands, by name.
using Readings = std::multiset<std::vector<std::string>>;
Readings readings(const Block& block) {
  const Dataflow flow = dataflow_of(block);
  Readings all;
  for (const bool backward : {false, true}) {
    const std::vector<Operation>& operations = backward ? block.backward : block.forward;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      std::vector<std::string> reading = {operations[i].name};
      for (const std::optional<Maker>& maker : flow.of(backward)[i])
        reading.push_back(
            maker ? (maker->backward ? block.backward : block.forward)[at(maker->operation)].name
                  : "");
      all.insert(reading);
    }
  }
  return all;
}

/// Computation that is issued between an operation and the first that reads what it makes.
std::set<std::string> beside(const Block& block, const std::vector<Operation>& operations,
                             const std::string& name) {
  const auto exchange = std::ranges::find(operations, name, &Operation::name);
  REQUIRE(exchange != operations.end());
  std::set<std::string> names;
  for (auto next = exchange + 1; next != operations.end(); ++next) {
    const bool reads = std::ranges::any_of(next->inputs, [&](ValueId input) {
      return root_of(block, input) == root_of(block, exchange->outputs.front());
    });
    if (reads) break;
    if (next->lane == Lane::Compute) names.insert(next->name);
  }
  return names;
}

}  // namespace

TEST_CASE("shared experts run while tokens travel", "[program][fill_exchanges]") {
  for (const int node_ranks : {0, 8}) {
    CAPTURE(node_ranks);
    const std::string exchange =
        node_ranks > 0 ? "dispatch.node_all_to_all" : "dispatch.all_to_all";
    const Program filled = lowered(large_plan(node_ranks), true);
    const Block& block = mixture_of(filled);
    const std::set<std::string> names = beside(block, block.forward, exchange);
    CHECK(names.contains("shared_gate_up"));
    CHECK(names.contains("shared_down"));
    const Program as_it_was = lowered(large_plan(node_ranks), false);
    const Block& plain = mixture_of(as_it_was);
    CHECK_FALSE(beside(plain, plain.forward, exchange).contains("shared_gate_up"));
  }
}

TEST_CASE("weight gradients of experts run while gradients travel", "[program][fill_exchanges]") {
  for (const int node_ranks : {0, 8}) {
    CAPTURE(node_ranks);
    const Program filled = lowered(large_plan(node_ranks), true);
    const Block& block = mixture_of(filled);
    std::set<std::string> names = beside(block, block.backward, "dispatch.all_to_all.input_grad");
    if (node_ranks > 0)
      names.merge(beside(block, block.backward, "dispatch.node_all_to_all.input_grad"));
    CHECK(names.contains("expert_gate_up.weight_grad"));
    CHECK(names.contains("expert_down.weight_grad"));
    CHECK(beside(block, block.backward,
                 node_ranks > 0 ? "combine.node_all_to_all.input_grad"
                                : "combine.all_to_all.input_grad")
              .contains("shared_gate_up.weight_grad"));
  }
}

TEST_CASE("an order that fills exchanges reads what the other one does",
          "[program][fill_exchanges]") {
  for (const int node_ranks : {0, 8})
    for (const RecomputeKind recompute :
         {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full}) {
      CAPTURE(node_ranks, static_cast<int>(recompute));
      const Plan plan = large_plan(node_ranks, recompute);
      const Program filled = lowered(plan, true), plain = lowered(plan, false);
      CHECK(readings(mixture_of(filled)) == readings(mixture_of(plain)));
    }
}

// Room for more rows than the buffers have is made when their number is known.
TEST_CASE("no operation on routed rows runs before their number is known",
          "[program][fill_exchanges]") {
  for (const Plan& plan : {large_plan(0), large_plan(8), large_plan(8, RecomputeKind::Full)}) {
    const Program program = lowered(plan, true);
    const Block& block = mixture_of(program);
    const auto is_routed = [&](ValueId id) { return has_routed_rows(block.values[at(id)]); };
    bool known = false;
    for (const Operation& operation : block.forward) {
      known = known || operation.name == "dispatch.sizes";
      const bool routed = std::ranges::any_of(operation.inputs, is_routed) ||
                          std::ranges::any_of(operation.outputs, is_routed);
      INFO(operation.name);
      CHECK((known || !routed));
    }
    CHECK(known);
  }
}

TEST_CASE("a layer without experts stays as it is", "[program][fill_exchanges]") {
  const Plan plan = test::make_plan(test::llama_style(), {.tp = 2, .dp = 2, .sp = true}, 2);
  const Program filled = lowered(plan, true), plain = lowered(plan, false);
  for (std::size_t i = 0; i < plain.blocks.size(); ++i)
    CHECK(std::ranges::equal(filled.blocks[i].backward, plain.blocks[i].backward, {},
                             &Operation::name, &Operation::name));
}

}  // namespace meshplan::program::filling
