// Pipelines: stages hold runs of layers, and micro-batches pass from stage to stage. A stage that
// waits for its first or after its last micro-batch is in a bubble; schedules differ in its size
// and in how many micro-batches a stage holds at once. docs/pipeline.md draws them.
#include <cmath>

#include "evaluate.hpp"
#include "models/model_spec.hpp"
#include "program/plan/plan_names.hpp"
#include "sim/stacks/cluster_preset.hpp"

using namespace meshplan;
using program::ScheduleKind;

int main() {
  const sim::Cluster cluster = sim::with_ranks(sim::load_cluster_preset("dgx-h100"), 32);
  program::Plan plan;
  plan.model = models::load_preset("gpt3-175b");
  plan.model.num_layers = 64;  // two thirds of it
  plan.workload = {.seq_len = 2048, .global_batch_size = 16, .precision = DType::BF16};
  plan.parallel = {.tp = 8, .pp = 4, .sp = true};  // a stage on each of four nodes
  const double stages = 4, microbatches = 16;

  // Part of the step that is not work, for each schedule.
  const auto idle = [&](ScheduleKind schedule, int chunks) {
    plan.schedule = schedule;
    plan.parallel.vpp = chunks;
    const examples::Costs costs = examples::evaluate(std::string(name_of(schedule)), plan, cluster);
    return costs.step.seconds[sim::Category::Bubble] / costs.step.step_time_s;
  };
  idle(ScheduleKind::GPipe, 1);
  const double one_f_one_b = idle(ScheduleKind::OneFOneB, 1);
  const double interleaved = idle(ScheduleKind::Interleaved, 2);
  const double zb_h1 = idle(ScheduleKind::ZbH1, 1);
  const double zb_v = idle(ScheduleKind::ZbV, 2);

  // Narayanan et al. 2021: (p - 1) / m of the work, so (p - 1) / (m + p - 1) of the step.
  const double expected = (stages - 1) / (microbatches + stages - 1);
  std::printf("bubble: 1F1B %.3f (formula %.3f), interleaved %.3f, ZB-H1 %.3f, ZB-V %.3f\n",
              one_f_one_b, expected, interleaved, zb_h1, zb_v);
  examples::expect(std::abs(one_f_one_b - expected) < 0.03, "1F1B's bubble is the formula's");
  examples::expect(interleaved < 0.7 * one_f_one_b, "two chunks a rank nearly halve it");
  examples::expect(zb_h1 < 0.7 * one_f_one_b, "split backwards fill it with weight gradients");
  examples::expect(zb_v < zb_h1, "on a V of chunks they fill nearly all");
}
