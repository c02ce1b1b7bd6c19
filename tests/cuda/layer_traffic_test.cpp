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

Program lowered(const models::ModelSpec& model, std::int64_t seq_len, DType precision,
                const program::ParallelConfig& parallel = {}) {
  Plan plan;
  plan.model = model;
  plan.workload = {.seq_len = seq_len, .global_batch_size = 2, .precision = precision};
  plan.parallel = parallel;
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

TEST_CASE("A layer's launches and bytes stay as low as they are", "[bench][layer_traffic]") {
  const auto traffic_of = [](std::string_view preset, std::int64_t seq_len) {
    return layer_traffic(lowered(models::load_preset(preset), seq_len, DType::BF16),
                         AttentionKernels::Cudnn);
  };
  const LayerTraffic llama = traffic_of("llama3.2-1b", 4096);
  CHECK(llama.launches() <= 22);
  CHECK(llama.ratio() <= 1.04);
  CHECK(llama.ratio_of_passes() <= 1.13);
  const LayerTraffic gpt2 = traffic_of("gpt2-124m", 1024);
  CHECK(gpt2.launches() <= 22);
  CHECK(gpt2.ratio() <= 1.01);
}

TEST_CASE("An operation whose launches are not known is named", "[bench][layer_traffic]") {
  const Program experts = lowered(models::load_preset("tiny-moe"), 16, DType::F32);
  CHECK_THROWS_WITH(layer_traffic(experts, AttentionKernels::Own), Catch::Contains("router"));
}

}  // namespace meshplan::bench
