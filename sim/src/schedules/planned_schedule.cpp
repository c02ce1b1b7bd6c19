#include "schedules/planned_schedule.hpp"

#include <algorithm>

#include "program/schedule/generators.hpp"
#include "schedules/host_thread.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;

/// Micro-batches that stand for all of the plan.
struct Sample {
  int microbatches = 0;
  bool whole = true;
};

Sample sample_of(const Plan& plan, bool waves) {
  const int m = plan.num_microbatches();
  const int pp = plan.parallel.pp;
  const int many = std::max(16, 4 * pp);
  if (m <= many + pp || plan.schedule == program::ScheduleKind::Custom) return {m, true};
  // What waves are not asked for, memory, is the same for as many micro-batches as fill a pipeline.
  return {waves ? many : many + (m - many) % pp, false};
}

program::Schedule schedule_for(const Plan& plan, bool waves) {
  const Sample sample = sample_of(plan, waves);
  if (sample.whole) return program::schedule_of(plan);
  return program::make_schedule(plan.schedule, plan.parallel.pp, sample.microbatches,
                                plan.parallel.vpp);
}

}  // namespace

bool solves_waves(const Plan& plan, const Cluster& cluster) {
  return cluster.device.kind == DeviceKind::Gpu && !moves_only_in_waits(plan, cluster) &&
         has_waves(plan.schedule, plan.parallel.vpp);
}

PlannedSchedule::PlannedSchedule(const Plan& plan, bool waves) : whole_(schedule_for(plan, waves)) {
  const Sample sample = sample_of(plan, waves);
  if (sample.whole || waves) return;
  const int pp = plan.parallel.pp;
  shorter_.emplace(
      program::make_schedule(plan.schedule, pp, sample.microbatches - pp, plan.parallel.vpp));
}

void PlannedSchedule::solve(const Plan& plan, bool waves, const SolverInput& input,
                            SolverOutput& out) {
  if (waves) {
    waves_.solve(plan.schedule, input, plan.num_microbatches(), out);
    return;
  }
  whole_.solve(input, out);
  if (!shorter_) return;
  // Beyond the fill, every pp micro-batches add the same, and no less than their work.
  shorter_->solve(input, fewer_);
  const double rounds =
      static_cast<double>(plan.num_microbatches() - whole_.num_microbatches()) / plan.parallel.pp;
  for (std::size_t s = 0; s < out.end.size(); ++s) {
    const double work = out.busy[s] - fewer_.busy[s];
    const double shift = std::max(out.end[s] - fewer_.end[s], work) * rounds;
    for (double& begin : out.last_gradient_begin[s]) begin += shift;
    out.end[s] += shift;
    out.busy[s] += work * rounds;
  }
}

std::vector<double> PlannedSchedule::least_ends(int num_microbatches,
                                                const SolverInput& input) const {
  const TaskMix mix = whole_.mix();
  const int others = num_microbatches - 1;
  std::vector<double> ends;
  double arrives = 0;
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    const SolverStage& stage = input.stages[s];
    const double begin = std::max(stage.ready, arrives);
    ends.push_back(begin);
    for (const SolverChunk& chunk : stage.chunks) {
      double first = chunk.backward_first, other = chunk.backward, saved = 0;
      if (splits(mix)) {  // some of whose backwards are whole, too
        first = std::min(first, chunk.input + chunk.weight_first);
        other = std::min(other, chunk.input + chunk.weight);
      }
      if (overlaps(mix)) saved = std::max(0.0, chunk.overlap_saves);
      ends.back() += first + others * other + num_microbatches * (chunk.forward - saved);
    }
    if (s < input.transfers.size())
      arrives = begin + stage.chunks.front().forward + input.transfers[s];
  }
  return ends;
}

PlannedSchedule& KnownSchedules::of(const Plan& plan, const PlanKeys& keys, bool waves) {
  constexpr std::size_t kMostRemembered = 4096;
  const Sample sample = sample_of(plan, waves);
  key_.set(keys.schedule, sample.microbatches, sample.whole, waves);
  const auto found = schedules_.find(key_);
  if (found != schedules_.end()) return found->second;
  if (schedules_.size() >= kMostRemembered) schedules_.clear();
  return schedules_.try_emplace(key_, plan, waves).first->second;
}

}  // namespace meshplan::sim
