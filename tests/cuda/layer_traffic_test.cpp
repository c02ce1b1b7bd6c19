// The counts of bench/cuda/layer_traffic: that they are what kernels/cuda launches, under the
// emulator, and that they stay as low as docs/cuda.md says.
#include "layer_traffic.hpp"

#include <catch2/catch.hpp>

#include "cuda_on_cpu/block.hpp"
#include "kernels/cuda_backend.hpp"
#include "measure/operator_bench.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/plans.hpp"

namespace meshplan::bench {
namespace {

using program::ComputeOp;
using program::OperationInstance;
using program::Plan;
using program::Program;

Plan plan_of(const models::ModelSpec& model, std::int64_t seq_len, DType precision,
             const program::ParallelConfig& parallel = {}) {
  Plan plan;
  plan.model = model;
  plan.workload = {.seq_len = seq_len, .global_batch_size = 2, .precision = precision};
  plan.parallel = parallel;
  return plan;
}

Program lowered(const models::ModelSpec& model, std::int64_t seq_len, DType precision,
                const program::ParallelConfig& parallel = {}) {
  return program::lower(plan_of(model, seq_len, precision, parallel), 0);
}

Program in_float8(Plan plan) {
  program::set_precision(plan.workload, program::Precision::Fp8);
  return program::lower(plan, 0);
}

bool of_a_layer(const Program& program, const OperationInstance& instance) {
  return instance.layer && program::layer_of(program, instance).layer.has_value() &&
         std::holds_alternative<ComputeOp>(program::operation_of(program, instance).work);
}

/// Runs every different operation of the program's layers.
void check_launches(const Program& program) {
  const auto backend = kernels::make_cuda_backend(0);
  runtime::HostDevice device(*backend);
  runtime::OperandPool pool(*backend);
  for (const runtime::OperatorJob& job : runtime::distinct_jobs({&program, 1})) {
    if (job.step || !of_a_layer(program, *job.instance)) continue;
    runtime::OperatorBench bench(job, pool, device);
    const auto timed = bench.timed();
    const std::int64_t before = cuda_on_cpu::kernels_launched();
    timed.call();
    INFO(job.signature);
    CHECK(cuda_on_cpu::kernels_launched() - before ==
          kernel_launches(program, *job.instance, AttentionKernels::Own));
  }
}

}  // namespace

TEST_CASE("The launches that are counted are those of the kernels", "[bench][layer_traffic]") {
  using program::test::gpt2_style;
  using program::test::llama_style;
  for (const DType precision : {DType::F32, DType::BF16}) {
    check_launches(lowered(llama_style(), 16, precision));
    check_launches(lowered(gpt2_style(), 16, precision));
    check_launches(lowered(llama_style(), 16, precision, {.tp = 2, .sp = true}));
    check_launches(lowered(gpt2_style(), 16, precision, {.tp = 2}));
    check_launches(lowered(program::test::gemma_style(), 16, precision));
    models::ModelSpec normed_heads = llama_style();
    normed_heads.qk_norm = true;
    check_launches(lowered(normed_heads, 16, precision));
  }
}

TEST_CASE("The launches that are counted of FP8 are those of the kernels",
          "[bench][layer_traffic][fp8]") {
  const program::ParallelConfig alone;
  const program::ParallelConfig split{.tp = 2, .sp = true};
  check_launches(in_float8(plan_of(program::test::llama_style(), 16, DType::BF16, alone)));
  check_launches(in_float8(plan_of(program::test::llama_style(), 32, DType::BF16, split)));
  check_launches(in_float8(plan_of(program::test::gpt2_style(), 32, DType::BF16, split)));
  check_launches(in_float8(plan_of(program::test::gemma_style(), 16, DType::BF16, alone)));
}

TEST_CASE("A layer's launches and bytes stay as low as they are", "[bench][layer_traffic]") {
  const auto traffic_of = [](std::string_view preset, std::int64_t seq_len) {
    Plan plan = plan_of(models::load_preset(preset), seq_len, DType::BF16);
    plan.deterministic = false;
    return layer_traffic(program::lower(plan, 0), AttentionKernels::Cudnn);
  };
  const LayerTraffic llama = traffic_of("llama3.2-1b", 4096);
  CHECK(llama.launches() <= 22);
  CHECK(llama.ratio() <= 1.04);
  CHECK(llama.ratio_of_passes() <= 1.13);
  const LayerTraffic gpt2 = traffic_of("gpt2-124m", 1024);
  CHECK(gpt2.launches() <= 22);
  CHECK(gpt2.ratio() <= 1.01);
}

// 32 rows and columns of tiles of 128 x 128, of which a causal mask leaves 528: 32 heads * 528 *
// 128
// * 128 * 2 bytes are written and read, by 4,096 tokens.
TEST_CASE("A deterministic attention's scores' gradient is counted", "[bench][layer_traffic]") {
  const auto bytes_of = [](bool deterministic, AttentionKernels attention) {
    Plan plan = plan_of(models::load_preset("llama3.2-1b"), 4096, DType::BF16);
    plan.deterministic = deterministic;
    std::int64_t bytes = 0;
    for (const auto& operation : layer_traffic(program::lower(plan, 0), attention).operations)
      bytes += operation.bytes;
    return bytes;
  };
  const std::int64_t in_any_order = bytes_of(false, AttentionKernels::Cudnn);
  CHECK(bytes_of(true, AttentionKernels::Cudnn) - in_any_order ==
        std::int64_t{2} * 2 * 32 * 528 * 128 * 128);
  CHECK(bytes_of(true, AttentionKernels::Own) == in_any_order);
}

TEST_CASE("A layer's launches and bytes in FP8 stay as low as they are",
          "[bench][layer_traffic][fp8]") {
  const auto traffic_of = [](std::string_view preset, std::int64_t seq_len, bool kept) {
    Plan plan = plan_of(models::load_preset(preset), seq_len, DType::BF16);
    program::set_precision(plan.workload, program::Precision::Fp8);
    plan.deterministic = false;
    return layer_traffic(program::lower(plan, 0, program::Pass::Training, {.kept_largest = kept}),
                         AttentionKernels::Cudnn);
  };
  const auto bytes_of = [](const LayerTraffic& traffic) {
    std::int64_t bytes = 0;
    for (const OperationTraffic& operation : traffic.operations) bytes += operation.bytes;
    return bytes;
  };
  const LayerTraffic llama = traffic_of("llama3.2-1b", 4096, true);
  CHECK(llama.launches() <= 37);
  CHECK(llama.ratio() <= 1.06);
  CHECK(llama.ratio_of_passes() <= 1.12);
  // Both norms, the norm's gradient, the activation, and its gradient of gate and up: five numbers
  // are written and read instead of the tensors, in bf16.
  const LayerTraffic apart = traffic_of("llama3.2-1b", 4096, false);
  CHECK(bytes_of(apart) - bytes_of(llama) ==
        std::int64_t{4096} * 2 * (3 * 2048 + 8192 + 2 * 8192) - 5 * 2 * 4);
  CHECK(apart.launches() - llama.launches() == 5 * 2);
  const LayerTraffic gpt2 = traffic_of("gpt2-124m", 1024, true);
  CHECK(gpt2.launches() <= 43);
  CHECK(gpt2.ratio() <= 1.09);
  CHECK(gpt2.ratio_of_passes() <= 1.2);  // gradients of biases: docs/cuda.md
}

TEST_CASE("An operation whose launches are not known is named", "[bench][layer_traffic]") {
  const Program experts = lowered(models::load_preset("tiny-moe"), 16, DType::F32);
  CHECK_THROWS_WITH(layer_traffic(experts, AttentionKernels::Own), Catch::Contains("router"));
}

}  // namespace meshplan::bench
