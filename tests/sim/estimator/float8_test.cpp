// Plans in FP8 are priced by the same functions wherever they are: their products at FP8's peak,
// what quantizes them by its bytes.
#include <catch2/catch.hpp>
#include <cmath>

#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/prices/pricing.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::Plan;
using program::Precision;
using program::RecomputeKind;

struct Case {
  std::string model;
  ParallelConfig parallel;
  int num_microbatches = 8;
  int zero_stage = 0;
  RecomputeKind recompute = RecomputeKind::None;
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
};

Plan plan_of(const Case& one, Precision precision) {
  Plan plan;
  plan.model = models::load_preset(one.model);
  plan.workload.seq_len = 8192;
  program::set_precision(plan.workload, precision);
  plan.parallel = one.parallel;
  plan.workload.global_batch_size = one.num_microbatches * one.parallel.dp;
  plan.zero_stage = one.zero_stage;
  plan.recompute.kind = one.recompute;
  plan.schedule = one.schedule;
  return plan;
}

Cluster cluster_of(const Plan& plan) {
  return with_ranks(load_cluster_preset("dgx-h100"), plan.parallel.world_size());
}

double step_time(const Plan& plan) {
  return simulate(program::lower_all(plan), cluster_of(plan),
                  {.break_down = false, .record_spans = false})
      .step_time_s;
}

/// The formula's price of the first operation with this name.
double price_of(const Plan& plan, std::string_view name) {
  const program::Program program = program::lower(plan, 0);
  for (const program::OperationInstance& instance : program.instances)
    if (program::operation_of(program, instance).name == name)
      return price_operation(program, instance, without_measured_shapes(cluster_of(plan))).seconds;
  FAIL(name);
  return 0;
}

}  // namespace

TEST_CASE("The estimator and the engine agree on plans in FP8", "[sim][fp8]") {
  using program::ScheduleKind;
  for (const Case& one :
       {Case{"llama3-8b", {.tp = 2, .dp = 4, .sp = true}}, Case{"llama3-8b", {.tp = 4, .dp = 2}, 1},
        Case{"llama3-8b", {.tp = 2, .pp = 4, .sp = true}, 16},
        Case{"llama3-8b", {.tp = 2, .pp = 4, .sp = true}, 4},
        Case{"llama3-8b", {.tp = 2, .pp = 4, .sp = true}, 16, 0, RecomputeKind::Full},
        Case{"llama3-8b",
             {.tp = 2, .pp = 4, .vpp = 2, .sp = true},
             16,
             0,
             RecomputeKind::Selective,
             ScheduleKind::Interleaved},
        Case{"llama3-8b", {.pp = 4, .dp = 2}, 16, 0, RecomputeKind::None, ScheduleKind::ZbH1},
        Case{"llama3-8b", {.tp = 2, .dp = 4, .sp = true}, 4, 1},
        Case{"llama3-8b", {.tp = 2, .dp = 4, .sp = true}, 4, 3}}) {
    const Plan plan = plan_of(one, Precision::Fp8);
    const Cluster cluster = cluster_of(plan);
    const std::vector<program::Program> programs = program::lower_all(plan);
    const double engine =
        simulate(programs, cluster, {.break_down = false, .record_spans = false}).step_time_s;
    const StepPrediction estimate = Estimator(cluster).estimate(plan);
    const double memory = memory_report(programs, cluster).peak_bytes;
    INFO(to_string(one.parallel) << " zero " << one.zero_stage << ": engine " << engine
                                 << " s, estimator " << estimate.step_time_s << " s; "
                                 << memory / 1e9 << " and " << estimate.peak_memory_bytes / 1e9
                                 << " GB");
    CHECK(std::abs(estimate.step_time_s / engine - 1) <= 0.05);
    CHECK(std::abs(estimate.peak_memory_bytes / memory - 1) <= 0.02);
  }
}

// By formula. H100: 1,979 TFLOP/s in FP8, of which products reach (1400 / 1979) / (795 / 989) of
// what they reach of 989 in bf16: 1.76 times as fast. 8192 x 4096 x 28672 / 2 a rank is large
// enough for that.
TEST_CASE("Products in FP8 are as much faster as measured ones", "[sim][fp8]") {
  const Case one{"llama3-8b", {.tp = 2, .dp = 4, .sp = true}};
  const double fp8 = price_of(plan_of(one, Precision::Fp8), "gate_up");
  const double bf16 = price_of(plan_of(one, Precision::BF16), "gate_up");
  CHECK(bf16 / fp8 == Approx(1400.0 / 795).epsilon(0.03));
}

// A tensor is read twice and written once in each layout: 2 * 2 + 2 bytes an element.
TEST_CASE("Quantizing costs what it moves", "[sim][fp8]") {
  const Plan plan = plan_of({"llama3-8b", {.tp = 2, .dp = 4, .sp = true}}, Precision::Fp8);
  const Cluster cluster = cluster_of(plan);
  const double bytes = 28672.0 / 2 * 4096 * 6 + 4;
  CHECK(price_of(plan, "mlp.gate_up_proj.weight.quantize") ==
        Approx(stream_seconds(bytes, cluster) + cluster.device.launch_us * 1e-6));
}

// Attention, communication and the casts take as long or longer.
TEST_CASE("A step in FP8 is faster than in bf16, but by less than its products", "[sim][fp8]") {
  const Case one{"llama3-8b", {.tp = 2, .dp = 4, .sp = true}};
  const double fp8 = step_time(plan_of(one, Precision::Fp8));
  const double bf16 = step_time(plan_of(one, Precision::BF16));
  CHECK(fp8 < 0.9 * bf16);
  CHECK(fp8 > 795.0 / 1400 * bf16);
}

TEST_CASE("A GPU without FP8 is refused with what to do", "[sim][fp8]") {
  const Plan plan = plan_of({"llama3-8b", {.tp = 8, .sp = true}}, Precision::Fp8);
  const Cluster a100 = with_ranks(load_cluster_preset("dgx-a100"), 8);
  const std::string refusal =
      "cluster 'dgx-a100': A100 SXM 80 GB has no matrix units for FP8 (device.peak_tflop_per_s has "
      "no 'fp8'; NVIDIA GPUs have them from Ada and Hopper on); use --precision bf16";
  CHECK_THROWS_WITH(Estimator(a100).estimate(plan), refusal);
  CHECK_THROWS_WITH(simulate(program::lower_all(plan), a100, {}), refusal);
  CHECK_THROWS_WITH(peak_flop_per_s(a100, plan.workload), refusal);
  // CPU ranks compute it in software.
  const Cluster host = load_cluster_preset("cpu-host");
  CHECK(peak_flop_per_s(host, plan.workload) == peak_flop_per_s(host, DType::F32));
}

}  // namespace meshplan::sim
