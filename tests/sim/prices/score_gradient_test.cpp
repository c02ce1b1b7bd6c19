// The price of an attention whose backward pass keeps the gradient of its scores in memory.
#include <catch2/catch.hpp>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

/// Llama 3.2 1B: 32 heads of 64, a sequence of 4,096.
program::Plan plan_of(bool deterministic) {
  program::Plan plan;
  plan.model = models::load_preset("llama3.2-1b");
  plan.workload.seq_len = 4096;
  plan.workload.precision = DType::BF16;
  plan.workload.global_batch_size = 2;
  plan.deterministic = deterministic;
  return plan;
}

Cluster one_gpu() {
  Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 1);
  cluster.device.memory_gb_per_s = 3000;
  cluster.device.efficiency.memory = 0.5;
  cluster.device.efficiency.half_stream_kib = 0;
  return cluster;
}

Price price_of(const program::Plan& plan, std::string_view name, const Cluster& cluster) {
  const program::Program program = program::lower(plan, 0);
  for (const program::OperationInstance& instance : program.instances)
    if (program::operation_of(program, instance).name == name)
      return price_operation(program, instance, cluster);
  FAIL(name);
  return {};
}

/// What a deterministic backward pass of attention costs more.
double extra_seconds(const Cluster& cluster) {
  return price_of(plan_of(true), "attention.input_grad", cluster).seconds -
         price_of(plan_of(false), "attention.input_grad", cluster).seconds;
}

// 32 rows and columns of tiles of 128 x 128, of which a causal mask leaves 1 + 2 + ... + 32 = 528:
// 32 heads * 528 * 128 * 128 * 2 bytes = 554 MB are written and read again at 1.5 TB/s.
constexpr double kBytes = 32.0 * 528 * 128 * 128 * 2;

}  // namespace

TEST_CASE("A deterministic attention pays for its scores' gradient through memory",
          "[sim][pricing]") {
  const Cluster cluster = one_gpu();
  CHECK(extra_seconds(cluster) == Approx(2 * kBytes / 1.5e12));
  CHECK(price_of(plan_of(true), "attention", cluster).seconds ==
        price_of(plan_of(false), "attention", cluster).seconds);
}

TEST_CASE("A processor's attention has no second form", "[sim][pricing]") {
  CHECK(extra_seconds(load_cluster_preset("cpu-host")) == 0);
}

// Measured at 1.5 times the formula in its deterministic form: so are both forms.
TEST_CASE("Either form of attention corrects the price of the other", "[sim][pricing]") {
  Cluster cluster = one_gpu();
  program::Plan measured = plan_of(true);
  measured.workload.seq_len = 2048;
  const program::Program program = program::lower(measured, 0);
  for (const program::OperationInstance& instance : program.instances) {
    if (program::operation_of(program, instance).name != "attention.input_grad") continue;
    const program::OperationCost cost = program::operation_cost(program, instance);
    cluster.operators = {{.signature = program::signature(program, instance),
                          .seconds = 1.5 * price_operation(program, instance, one_gpu()).seconds,
                          .flops = cost.flops,
                          .bytes = static_cast<double>(cost.bytes)}};
    break;
  }
  for (const bool deterministic : {true, false}) {
    const Price price = price_of(plan_of(deterministic), "attention.input_grad", cluster);
    CHECK(price.source == PriceSource::Interpolated);
    CHECK(
        price.seconds ==
        Approx(1.5 * price_of(plan_of(deterministic), "attention.input_grad", one_gpu()).seconds));
  }
}

TEST_CASE("Only our own runtime pays for it, in every layer and micro-batch", "[sim][prediction]") {
  const Cluster cluster = one_gpu();
  const auto step = [&](bool deterministic, const std::string& software) {
    return Estimator(cluster, software)
        .estimate(on_stack(plan_of(deterministic), software))
        .step_time_s;
  };
  CHECK(step(true, "meshplan") - step(false, "meshplan") ==
        Approx(2 * 16 * 2 * kBytes / 1.5e12).epsilon(0.01));
  CHECK(step(true, "megatron-core") == step(false, "megatron-core"));
}

}  // namespace meshplan::sim
