// Which activations become part of a matrix product. That the numbers stay those of the parts is
// the parity tests' to say (GPT-2 style models); kernels are compared in
// tests/kernels/linear_test.cpp.
#include <catch2/catch.hpp>

#include "checks/program_errors.hpp"
#include "program/cost/cost.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program {
namespace {

using test::block_named;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;
using test::names_of;

Program lowered(const models::ModelSpec& model, const ParallelConfig& parallel, RecomputeKind kind,
                bool fused, Pass pass = Pass::Training) {
  Plan plan = make_plan(model, parallel);
  plan.recompute.kind = kind;
  return lower(plan, 0, pass, {.fused_activations = fused});
}

const Operation& find(const std::vector<Operation>& operations, std::string_view name,
                      std::optional<Phase> phase = std::nullopt) {
  const auto found = std::ranges::find_if(operations, [&](const Operation& operation) {
    return operation.name == name && (!phase || operation.phase == *phase);
  });
  REQUIRE(found != operations.end());
  return *found;
}

bool has(const std::vector<Operation>& operations, std::string_view name) {
  const auto names = names_of(operations);
  return std::ranges::find(names, name) != names.end();
}

bool is_fused(const Operation& operation) {
  return std::get<ComputeOp>(operation.work).fused_activation == models::ActivationKind::GeluTanh;
}

double flops_and_bytes(const Program& program, bool bytes) {
  double total = 0;
  for (const OperationInstance& instance : program.instances) {
    const OperationCost cost = operation_cost(program, instance);
    total += bytes ? static_cast<double>(cost.bytes) : cost.flops;
  }
  return total;
}

}  // namespace

TEST_CASE("A tanh GELU is part of the products around it", "[program][fuse]") {
  for (const ParallelConfig& parallel :
       {ParallelConfig{}, ParallelConfig{.tp = 2}, ParallelConfig{.tp = 2, .sp = true}}) {
    const Program program = lowered(gpt2_style(), parallel, RecomputeKind::None, true);
    const Block& block = block_named(program, "dense");
    CHECK_FALSE(has(block.forward, "activation"));
    CHECK_FALSE(has(block.backward, "activation.input_grad"));
    const Operation& up = find(block.forward, "mlp_up");
    CHECK(is_fused(up));
    REQUIRE(up.outputs.size() == 2);  // what the next product reads, and what backward reads
    const Value& kept = block.values[static_cast<std::size_t>(up.outputs[1])];
    CHECK(kept.storage == Storage::Saved);
    const Operation& down = find(block.backward, "mlp_down.input_grad");
    CHECK(is_fused(down));
    REQUIRE(down.inputs.size() == 3);
    CHECK(down.inputs[2] == up.outputs[1]);
    CHECK(find(block.backward, "mlp_up.input_grad").inputs[0] == down.outputs[0]);
    CHECK(find(block.backward, "mlp_up.weight_grad").inputs[0] == down.outputs[0]);
    CHECK(program_errors(lower_all(make_plan(gpt2_style(), parallel))).empty());
  }
}

TEST_CASE("Fusing an activation saves its passes over memory and no arithmetic",
          "[program][fuse]") {
  const Program apart = lowered(gpt2_style(), {}, RecomputeKind::None, false);
  const Program fused = lowered(gpt2_style(), {}, RecomputeKind::None, true);
  CHECK(flops_and_bytes(apart, false) == flops_and_bytes(fused, false));
  // 16 tokens and 96 features in fp32: forward does not read the input again; backward neither
  // writes nor reads the gradient in between. 4 layers, 8 micro-batches.
  const double widest = 16.0 * 96 * 4;
  CHECK(flops_and_bytes(apart, true) - flops_and_bytes(fused, true) == 4 * 8 * 3 * widest);
  const Block& block = block_named(fused, "dense");
  CHECK(block.saved_bytes == block_named(apart, "dense").saved_bytes);
}

TEST_CASE("What recomputation does not read is not kept", "[program][fuse]") {
  const Program full = lowered(gpt2_style(), {}, RecomputeKind::Full, true);
  const Block& block = block_named(full, "dense");
  CHECK(find(block.forward, "mlp_up").outputs.size() == 1);
  CHECK(find(block.backward, "mlp_up", Phase::Recompute).outputs.size() == 2);
  CHECK_FALSE(has(block.backward, "activation"));

  // Selective: the function runs again by itself, from the input that the product kept.
  const Program selective = lowered(gpt2_style(), {}, RecomputeKind::Selective, true);
  const Block& again = block_named(selective, "dense");
  CHECK(is_fused(find(again.forward, "mlp_up")));
  CHECK(find(again.backward, "activation", Phase::Recompute).inputs[0] ==
        find(again.forward, "mlp_up").outputs[1]);

  const Program forward = lowered(gpt2_style(), {}, RecomputeKind::None, true, Pass::ForwardOnly);
  CHECK(find(block_named(forward, "dense").forward, "mlp_up").outputs.size() == 1);
}

TEST_CASE("Activations without an epilogue stay operations of their own", "[program][fuse]") {
  const Program gated = lowered(llama_style(), {}, RecomputeKind::None, true);
  CHECK(has(block_named(gated, "dense").forward, "activation"));
  models::ModelSpec exact = gpt2_style();
  exact.activation = models::ActivationKind::Gelu;
  const Program program = lowered(exact, {}, RecomputeKind::None, true);
  CHECK(has(block_named(program, "dense").forward, "activation"));
  CHECK(has(block_named(program, "dense").backward, "activation.input_grad"));
}

TEST_CASE("A product with an activation is measured by itself", "[program][fuse]") {
  const Program program = lowered(gpt2_style(), {}, RecomputeKind::None, true);
  std::vector<std::string> found;
  for (const OperationInstance& instance : program.instances) {
    const std::string& name = operation_of(program, instance).name;
    if (instance.layer == 1 && instance.microbatch == 0 &&
        (name == "mlp_up" || name == "mlp_down.input_grad"))
      found.push_back(signature(program, instance));
  }
  CHECK(found ==
        std::vector<std::string>{"linear.forward fp32 t=16 out=96 in=64 bias gelu_tanh aux",
                                 "linear.input_grad fp32 t=16 out=64 in=96 gelu_tanh"});
}

}  // namespace meshplan::program
