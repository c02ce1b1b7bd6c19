// How fast plans are lowered, simulated and estimated: Llama-3.1 405B on 16,384, 131,072 and, with
// every rank played, 1,024 GPUs; Llama-3 70B on 1,024.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "models/model_spec.hpp"
#include "program/lower/lower.hpp"
#include "sim/engine/engine.hpp"
#include "sim/estimator/estimator.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan {
namespace {

program::Plan plan_70b() {
  program::Plan plan;
  plan.model = models::load_preset("llama3-70b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 1024, .precision = DType::BF16};
  plan.parallel = {.tp = 8, .pp = 4, .dp = 32, .sp = true};
  return plan;
}

sim::Cluster cluster_1024() {
  return sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 1024);
}

void lower_all_stages(benchmark::State& state) {
  const program::Plan plan = plan_70b();
  for (auto _ : state) benchmark::DoNotOptimize(program::lower_all(plan));
}
BENCHMARK(lower_all_stages)->Unit(benchmark::kMillisecond);

program::Plan plan_405b(int dp) {
  program::Plan plan;
  plan.model = models::load_preset("llama3.1-405b");
  plan.workload = {.seq_len = 8192, .global_batch_size = 16L * dp, .precision = DType::BF16};
  plan.parallel = {.tp = 8, .pp = 16, .vpp = 8, .dp = dp, .sp = true};
  plan.schedule = program::ScheduleKind::Interleaved;
  plan.count_ends_as_layers = true;
  return plan;
}

void lower_405b(benchmark::State& state) {
  const program::Plan plan = plan_405b(128);
  for (auto _ : state) benchmark::DoNotOptimize(program::lower_all(plan));
}
BENCHMARK(lower_405b)->Unit(benchmark::kMillisecond);

/// The most memory that this process has held, with all that ran before.
double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

/// Arguments: replicas of 128 GPUs, and whether one rank stands for its stage.
void simulate_405b(benchmark::State& state) {
  const int dp = static_cast<int>(state.range(0));
  const std::vector<program::Program> stages = program::lower_all(plan_405b(dp));
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 128 * dp);
  std::int64_t events = 0;
  sim::SimulationResult result;
  for (auto _ : state) {
    result = sim::simulate(
        stages, cluster, {.fold = state.range(1) != 0, .break_down = false, .record_spans = false});
    events += result.events;
  }
  state.counters["steps"] = result.steps_played;
  state.counters["step_s"] = result.step_time_s;
  state.counters["folded"] = result.folded;
  state.counters["peak_MiB"] = peak_mib();
  state.counters["events"] = static_cast<double>(result.events);
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(simulate_405b)
    ->Args({128, 1})
    ->Args({1024, 1})
    ->Args({8, 1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_405b)->Args({8, 0})->Iterations(1)->Unit(benchmark::kMillisecond);

void simulate_folded(benchmark::State& state) {
  const std::vector<program::Program> stages = program::lower_all(plan_70b());
  const sim::Cluster cluster = cluster_1024();
  std::int64_t events = 0;
  for (auto _ : state)
    events += sim::simulate(stages, cluster, {.break_down = false, .record_spans = false}).events;
  state.counters["events/s"] =
      benchmark::Counter(static_cast<double>(events), benchmark::Counter::kIsRate);
}
BENCHMARK(simulate_folded)->Unit(benchmark::kMillisecond);

void estimate_with_known_blocks(benchmark::State& state) {
  const program::Plan plan = plan_70b();
  sim::Estimator estimator(cluster_1024());
  benchmark::DoNotOptimize(estimator.estimate(plan));  // prices the blocks
  for (auto _ : state) benchmark::DoNotOptimize(estimator.estimate(plan));
  state.counters["plans/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(estimate_with_known_blocks)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace meshplan
