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
  // Beyond the fill, every pp micro-batches add the same.
  shorter_->solve(input, fewer_);
  const double rounds =
      static_cast<double>(plan.num_microbatches() - whole_.num_microbatches()) / plan.parallel.pp;
  for (std::size_t s = 0; s < out.end.size(); ++s) {
    const double shift = (out.end[s] - fewer_.end[s]) * rounds;
    for (double& begin : out.last_gradient_begin[s]) begin += shift;
    out.end[s] += shift;
    out.busy[s] += (out.busy[s] - fewer_.busy[s]) * rounds;
  }
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
