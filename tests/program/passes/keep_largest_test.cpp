// Whose largest number is kept by the operation that writes it. That no bit of a run changes is a
// parity test's to say; kernels are compared in tests/kernels/largest_test.cpp.
#include <catch2/catch.hpp>
#include <map>

#include "checks/program_errors.hpp"
#include "program/cost/cost.hpp"
#include "program/inspect.hpp"
#include "program/plans.hpp"

namespace meshplan::program::largest {  // files are compiled together
namespace {

using test::block_named;
using test::gpt2_style;
using test::llama_style;
using test::make_plan;

Plan fp8_plan(models::ModelSpec model, const ParallelConfig& parallel = {},
              RecomputeKind recompute = RecomputeKind::None) {
  model.ffn_size = 128;
  Plan plan = make_plan(model, parallel, 2);
  plan.workload.seq_len = 64;
  set_precision(plan.workload, Precision::Fp8);
  plan.recompute.kind = recompute;
  return plan;
}

Program lowered(const Plan& plan, bool kept = true) {
  return lower(plan, 0, Pass::Training, {.kept_largest = kept});
}

/// By the name of what is quantized: is its largest number known?
std::map<std::string, bool> casts(const Block& block, const std::vector<Operation>& operations) {
  std::map<std::string, bool> known;
  for (const Operation& operation : operations)
    if (const auto* work = std::get_if<ComputeOp>(&operation.work);
        work != nullptr && work->kind == ComputeKind::Quantize) {
      const Value& tensor = block.values[static_cast<std::size_t>(operation.inputs.front())];
      if (tensor.storage == Storage::Parameter) {
        CHECK_FALSE(work->cast->largest);
        continue;
      }
      known[operation.name] = work->cast->largest;
      CHECK(operation.inputs.size() == (work->cast->largest ? 2 : 1));
    }
  return known;
}

int num_known(const std::map<std::string, bool>& casts) {
  return static_cast<int>(
      std::ranges::count_if(casts, [](const auto& cast) { return cast.second; }));
}

std::int64_t bytes_of_casts(const Program& program) {
  std::int64_t bytes = 0;
  for (const OperationInstance& instance : program.instances)
    if (const auto* work = std::get_if<ComputeOp>(&operation_of(program, instance).work);
        work != nullptr && work->kind == ComputeKind::Quantize)
      bytes += operation_cost(program, instance).bytes;
  return bytes;
}

}  // namespace

// Forward, both norms and the activation know what they write, attention does not; backward, the
// activation and the norm before it do, not the layer after this one and not attention.
TEST_CASE("Norms and activations keep the largest number of what is quantized",
          "[program][fp8][largest]") {
  for (const models::ModelSpec& model : {llama_style(), gpt2_style()}) {
    const Program program = lowered(fp8_plan(model));
    const Block& layer = block_named(program, "dense");
    const auto forward = casts(layer, layer.forward), backward = casts(layer, layer.backward);
    INFO(model.name);
    CHECK(forward.size() == 4);
    CHECK(num_known(forward) == 3);
    CHECK(backward.size() == 4);
    CHECK(num_known(backward) == 2);
    for (const auto* operations : {&layer.forward, &layer.backward})
      for (const Operation& operation : *operations) {
        const auto* work = std::get_if<ComputeOp>(&operation.work);
        if (work == nullptr || !work->keeps_largest) continue;
        const Value& largest = layer.values[static_cast<std::size_t>(operation.outputs.back())];
        CHECK(largest.dtype == DType::F32);
        CHECK(local_shape(program, largest) == std::vector<std::int64_t>{1});
      }
  }
}

// Of a micro-batch and layer, in bf16: norms 64 tokens of 64, twice forward and once backward, the
// activation 64 of 128, and its gradient of gate and up 64 of 256; a number each that is read.
TEST_CASE("A cast that knows the largest number reads its tensor once", "[program][fp8][largest]") {
  const Plan plan = fp8_plan(llama_style());
  const std::int64_t saved = 2 * 64 * (3 * 64 + 128 + 256) - 5 * 4;
  CHECK(bytes_of_casts(lowered(plan, false)) - bytes_of_casts(lowered(plan)) ==
        saved * plan.model.num_layers * plan.num_microbatches());
}

TEST_CASE("What other ranks have a part of is read for its largest number",
          "[program][fp8][largest]") {
  const Program program = lowered(fp8_plan(llama_style(), {.tp = 2, .sp = true}));
  const Block& layer = block_named(program, "dense");
  CHECK(num_known(casts(layer, layer.forward)) == 1);   // the activation: norms are gathered
  CHECK(num_known(casts(layer, layer.backward)) == 1);  // its gradient
}

TEST_CASE("Programs whose casts know largest numbers are sound", "[program][fp8][largest]") {
  for (const RecomputeKind recompute :
       {RecomputeKind::None, RecomputeKind::Selective, RecomputeKind::Full})
    for (const models::ModelSpec& model : {llama_style(), gpt2_style(), test::gemma_style()})
      for (const ParallelConfig& parallel :
           {ParallelConfig{}, ParallelConfig{.tp = 2, .pp = 2}, ParallelConfig{.cp = 2, .dp = 2}}) {
        Plan plan = fp8_plan(model, parallel, recompute);
        INFO(test::describe(plan));
        CHECK(program_errors(lower_all(plan)).empty());
        if (parallel.pp == 1) continue;
        plan.schedule = ScheduleKind::ZbH1;
        CHECK(program_errors(lower_all(plan)).empty());
      }
}

}  // namespace meshplan::program::largest
