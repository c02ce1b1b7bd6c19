// Rotations that are part of a norm of heads. That the numbers stay is the parity tests' to say;
// kernels are compared in tests/kernels/head_rms_norm_test.cpp.
#include <catch2/catch.hpp>

#include "checks/program_errors.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program::rotations {  // files are compiled together
namespace {

using test::block_named;
using test::bytes_of_layers;
using test::has_operation;
using test::llama_style;
using test::make_plan;

models::ModelSpec normed_heads() {
  models::ModelSpec model = llama_style();
  model.qk_norm = true;
  return model;
}

Program lowered(const models::ModelSpec& model, bool fused,
                RecomputeKind kind = RecomputeKind::None) {
  Plan plan = make_plan(model);
  plan.recompute.kind = kind;
  return lower(plan, 0, Pass::Training, {.fused_rotations = fused});
}

const Operation& find(const std::vector<Operation>& operations, std::string_view name) {
  const auto found = std::ranges::find(operations, name, &Operation::name);
  REQUIRE(found != operations.end());
  return *found;
}

}  // namespace

TEST_CASE("A norm of heads rotates them, and its gradient back", "[program][fuse]") {
  const Program program = lowered(normed_heads(), true);
  const Block& block = block_named(program, "dense");
  CHECK_FALSE(has_operation(block.forward, "rope"));
  CHECK_FALSE(has_operation(block.backward, "rope.input_grad"));
  const Operation& norm = find(block.forward, "qk_norm");
  CHECK(std::get<ComputeOp>(norm.work).attributes.rope_size == 8);
  CHECK(norm.outputs.front() == find(block.forward, "attention").inputs.front());
  const Operation& gradient = find(block.backward, "qk_norm.grad");
  CHECK(std::get<ComputeOp>(gradient.work).attributes.rope_size == 8);
  CHECK(gradient.inputs.front() == find(block.backward, "attention.input_grad").outputs.front());
  CHECK(program_errors(lower_all(make_plan(normed_heads(), {.tp = 2, .pp = 2}))).empty());
}

TEST_CASE("A fused rotation saves its passes and keeps as much", "[program][fuse]") {
  const Program apart = lowered(normed_heads(), false);
  const Program fused = lowered(normed_heads(), true);
  // 16 tokens, 8 query and 4 key heads of 8 elements in fp32 are read and written, both ways; 4
  // layers, 8 micro-batches.
  const double pass = 16.0 * 12 * 8 * 4;
  CHECK(bytes_of_layers(apart) - bytes_of_layers(fused) == 4 * 8 * 4 * pass);
  CHECK(block_named(apart, "dense").saved_bytes == block_named(fused, "dense").saved_bytes);
}

TEST_CASE("What is computed again rotates again", "[program][fuse]") {
  const Program program = lowered(normed_heads(), true, RecomputeKind::Full);
  const Block& block = block_named(program, "dense");
  CHECK_FALSE(has_operation(block.backward, "rope"));
  CHECK(std::get<ComputeOp>(find(block.backward, "qk_norm").work).attributes.rope_size == 8);
}

TEST_CASE("Without a norm of heads a rotation stays an operation", "[program][fuse]") {
  const Program program = lowered(llama_style(), true);
  CHECK(has_operation(block_named(program, "dense").forward, "rope"));
}

TEST_CASE("A norm of heads that rotates is measured by itself", "[program][fuse]") {
  const Program program = lowered(normed_heads(), true);
  for (const OperationInstance& instance : program.instances)
    if (operation_of(program, instance).name == "qk_norm") {
      CHECK(signature(program, instance) ==
            "head_rms_norm.forward fp32 16 128 heads=12 size=8 rotated=8");
      return;
    }
  FAIL("no such operation");
}

}  // namespace meshplan::program::rotations
