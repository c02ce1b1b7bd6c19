// Which sums of the residual stream become part of a product or of a norm. That the numbers stay
// those of the parts is the parity tests' to say; kernels are compared in tests/kernels.
#include <catch2/catch.hpp>

#include "checks/program_errors.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program::residual_sums {  // files are compiled together
namespace {

using test::block_named;
using test::bytes_of_layers;
using test::gemma_style;
using test::gpt2_style;
using test::has_operation;
using test::llama_style;
using test::make_plan;

Program lowered(const models::ModelSpec& model, const ParallelConfig& parallel,
                RecomputeKind kind = RecomputeKind::None, bool fused = true) {
  Plan plan = make_plan(model, parallel);
  plan.recompute.kind = kind;
  return lower(plan, 0, Pass::Training, {.fused_residuals = fused});
}

const Operation& find(const std::vector<Operation>& operations, std::string_view name,
                      Phase phase = Phase::Forward) {
  const auto found = std::ranges::find_if(operations, [&](const Operation& operation) {
    return operation.name == name && operation.phase == phase;
  });
  REQUIRE(found != operations.end());
  return *found;
}

bool adds_residual(const Operation& operation) {
  return std::get<ComputeOp>(operation.work).adds_residual;
}

}  // namespace

TEST_CASE("A whole product adds the residual where it ends", "[program][fuse]") {
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()}) {
    const Program program = lowered(model, {});
    const Block& block = block_named(program, "dense");
    CHECK_FALSE(has_operation(block.forward, "attention_add"));
    CHECK_FALSE(has_operation(block.forward, "mlp_add"));
    const Operation& first = find(block.forward, "attention_out");
    CHECK(adds_residual(first));
    CHECK(first.inputs.back() == *block.input);
    const Operation& second = find(block.forward, "mlp_down");
    CHECK(adds_residual(second));
    CHECK(second.inputs.back() == first.outputs.front());
    CHECK_FALSE(adds_residual(find(block.forward, "mlp_norm")));
    CHECK(find(block.forward, "mlp_norm").inputs.front() == first.outputs.front());
  }
}

TEST_CASE("Behind a sum over the group the norm adds the residual", "[program][fuse]") {
  for (const ParallelConfig& parallel : {ParallelConfig{.tp = 2}, {.tp = 2, .sp = true}}) {
    const Program program = lowered(llama_style(), parallel);
    const Block& block = block_named(program, "dense");
    CHECK_FALSE(has_operation(block.forward, "attention_add"));
    CHECK(has_operation(block.forward, "mlp_add"));  // no norm follows it in its layer
    CHECK_FALSE(adds_residual(find(block.forward, "attention_out")));
    const Operation& norm = find(block.forward, "mlp_norm");
    CHECK(adds_residual(norm));
    REQUIRE(norm.inputs.size() == 3);   // an addend, the weight, the other addend
    REQUIRE(norm.outputs.size() == 3);  // y, statistics, the sum
    CHECK((norm.inputs.front() == *block.input || norm.inputs.back() == *block.input));
    const Operation& gradient = find(block.backward, "mlp_norm.grad", Phase::InputGrad);
    CHECK(gradient.inputs[1] == norm.outputs.back());
    CHECK(find(block.forward, "mlp_add").inputs.front() == norm.outputs.back());
    CHECK(program_errors(lower_all(make_plan(llama_style(), parallel))).empty());
  }
}

TEST_CASE("Between two norms the second one adds the residual", "[program][fuse]") {
  const Program program = lowered(gemma_style(), {});
  const Block& block = program.blocks[1];
  CHECK_FALSE(has_operation(block.forward, "attention_add"));
  CHECK(has_operation(block.forward, "mlp_add"));
  CHECK_FALSE(adds_residual(find(block.forward, "attention_out")));
  CHECK(adds_residual(find(block.forward, "mlp_norm")));
}

TEST_CASE("What is computed again adds the residual again", "[program][fuse]") {
  const Program alone = lowered(llama_style(), {}, RecomputeKind::Full);
  const Block& block = block_named(alone, "dense");
  CHECK(adds_residual(find(block.backward, "attention_out", Phase::Recompute)));
  CHECK_FALSE(has_operation(block.backward, "attention_add"));
  const Program cut = lowered(llama_style(), {.tp = 2}, RecomputeKind::Full);
  CHECK(adds_residual(find(block_named(cut, "dense").backward, "mlp_norm", Phase::Recompute)));
  // Selective: the sum is kept, and the norm reads it.
  const Program selective = lowered(llama_style(), {.tp = 2}, RecomputeKind::Selective);
  CHECK_FALSE(
      adds_residual(find(block_named(selective, "dense").backward, "mlp_norm", Phase::Recompute)));
}

TEST_CASE("A fused sum saves passes over the stream and keeps as much", "[program][fuse]") {
  // The stream has 16 tokens and 64 features in fp32; 4 layers, 8 micro-batches. In a product the
  // sum neither writes nor reads what is added, twice a layer; in a norm the sum is not read again.
  const double stream = 16.0 * 64 * 4;
  const auto saved = [&](const ParallelConfig& parallel) {
    const Program apart = lowered(llama_style(), parallel, RecomputeKind::None, false);
    const Program fused = lowered(llama_style(), parallel);
    CHECK(block_named(fused, "dense").saved_bytes == block_named(apart, "dense").saved_bytes);
    return (bytes_of_layers(apart) - bytes_of_layers(fused)) / (4 * 8 * stream);
  };
  CHECK(saved({}) == 4);
  CHECK(saved({.tp = 2}) == 1);
}

TEST_CASE("Fused sums have signatures of their own", "[program][fuse]") {
  const auto of = [](const Program& program, std::string_view name) {
    for (const OperationInstance& instance : program.instances)
      if (operation_of(program, instance).name == name) return signature(program, instance);
    throw InvariantError("no such operation");
  };
  CHECK(of(lowered(gpt2_style(), {}), "mlp_down") ==
        "linear.forward fp32 t=16 out=64 in=96 bias residual");
  CHECK(of(lowered(llama_style(), {}), "mlp_down") ==
        "linear.forward fp32 t=16 out=64 in=96 residual");
  CHECK(of(lowered(llama_style(), {.tp = 2}), "mlp_norm") ==
        "rms_norm.forward fp32 16 64 residual");
}

}  // namespace meshplan::program::residual_sums
