#include "schedule/zero_bubble.hpp"

#include <algorithm>

#include "program/schedule/generators.hpp"
#include "schedule/stage_tasks.hpp"

namespace meshplan::program {

namespace {

std::vector<Task> zb_v_stage(int pp, int stage, int num_microbatches) {
  const auto full =
      static_cast<int>(generated_microbatches(ScheduleKind::ZbV, pp, num_microbatches));
  VBuilder v;
  // Warm-up: until the first micro-batch has come back from the last stage of the V.
  for (int i = 0; i < 2 * (pp - stage) - 1; ++i) v.forward(0);
  for (int i = 0; i < stage; ++i) {
    v.forward(1);
    v.forward(0);
  }
  for (int i = 0; i < pp - stage; ++i) {
    v.forward(1);
    v.both_gradients(1);
  }
  // Steady: both chunks in turn, each a forward and both its gradients.
  while (v.forwards(1) < v.forwards(0) || v.forwards(0) < full) {
    if (v.forwards(0) < full) v.forward(0);
    v.both_gradients(0);
    v.forward(1);
    v.both_gradients(1);
  }
  // Cool-down: first what other ranks wait for.
  for (int i = 0; i < stage; ++i) {
    v.input_gradient(0);
    v.input_gradient(1);
  }
  for (int i = 0; i < pp - stage; ++i) {
    v.input_gradient(0);
    v.weight_gradient_of(0);
  }
  for (const int chunk : {1, 0})
    while (v.owes(chunk)) v.weight_gradient_of(chunk);
  return v.take(num_microbatches);
}

}  // namespace

Schedule zb_h1(int num_stages, int num_microbatches) {
  Schedule schedule;
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<Task> tasks;
    int next = std::min(num_stages - 1 - stage, num_microbatches);
    for (int m = 0; m < next; ++m) tasks.push_back(forward(m));
    int weight = 0;
    for (int m = 0; m < num_microbatches; ++m) {
      if (next < num_microbatches) tasks.push_back(forward(next++));
      tasks.push_back(input_gradient(m));
      if (m >= stage) tasks.push_back(weight_gradient(weight++));
    }
    while (weight < num_microbatches) tasks.push_back(weight_gradient(weight++));
    schedule.tasks.push_back(std::move(tasks));
  }
  return schedule;
}

Schedule zb_v(int num_stages, int num_microbatches) {
  Schedule schedule{.tasks = {}, .num_chunks = 2, .placement = ChunkPlacement::V};
  for (int stage = 0; stage < num_stages; ++stage)
    schedule.tasks.push_back(zb_v_stage(num_stages, stage, num_microbatches));
  return schedule;
}

}  // namespace meshplan::program
