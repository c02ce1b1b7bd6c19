#include "sim/engine/simulated_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/mesh.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

std::vector<StageBreakdown> by_stage(const std::vector<RankBreakdown>& ranks,
                                     const program::Plan& plan) {
  const program::Mesh mesh = program::mesh_of(plan);
  std::map<int, std::vector<RankBreakdown>> members;
  for (const RankBreakdown& rank : ranks) members[mesh.coordinates(rank.rank).pp].push_back(rank);
  std::vector<StageBreakdown> stages;
  stages.reserve(members.size());
  for (const auto& [stage, list] : members) stages.push_back({stage, mean_of(list)});
  return stages;
}

const StageBreakdown& busiest(const std::vector<StageBreakdown>& stages) {
  return *std::ranges::max_element(stages, {}, [](const StageBreakdown& stage) {
    return stage.seconds[Category::Forward] + stage.seconds[Category::Backward] +
           stage.seconds[Category::Recompute];
  });
}

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Micro-batches of which the middle of a step repeats, if its stages soon run in time with the
/// slowest; all of a step in which nothing does.
int shortest_repeating(const program::Plan& plan, const Cluster& cluster) {
  constexpr int kSlack = 6;
  const int pp = plan.parallel.pp;
  if (cluster.communication.needs_host) return plan.num_microbatches();  // ranks share cores
  switch (plan.schedule) {
    case program::ScheduleKind::OneFOneB:
    case program::ScheduleKind::ZbH1:
      return 2 * pp + kSlack;
    case program::ScheduleKind::Interleaved:
    case program::ScheduleKind::OverlappedOneFOneB:
    case program::ScheduleKind::ZbV:
    case program::ScheduleKind::DualPipeV:
      return 4 * pp + kSlack;
    case program::ScheduleKind::GPipe:  // its halves repeat, each by itself
    case program::ScheduleKind::Custom:
      break;
  }
  return plan.num_microbatches();
}

/// Else there is little to gain, and as much to lose.
bool saves_half(int tried, int fewer, int all) {
  return tried + 2 * fewer <= all;
}

program::Plan of_microbatches(program::Plan plan, int microbatches) {
  plan.workload.global_batch_size =
      std::int64_t{microbatches} * plan.micro_batch_size * plan.parallel.dp;
  return plan;
}

PlayedPlan play_all(const program::Plan& plan, const Cluster& cluster,
                    const Repetition& repetition = {}) {
  if (std::optional<PlayedPlan> played = play_merged(plan, cluster, repetition))
    return *std::move(played);
  PlayedPlan played{.microbatches = plan.num_microbatches(), .programs = program::lower_all(plan)};
  played.result =
      simulate(played.programs, cluster, {.record_spans = false, .repetition = repetition});
  return played;
}

/// What the tries to find a plan's step time have taken, and may take.
class Tries {
 public:
  explicit Tries(std::int64_t most_events) : most_events_(most_events) {}

  void note(int microbatches, std::int64_t events) {
    microbatches_ += microbatches;
    events_ += events;
  }
  bool may_play(int more) const {
    const double of_microbatch = microbatches_ > 0 ? double(events_) / microbatches_ : 0;
    return double(events_) + more * of_microbatch <= double(most_events_);
  }
  int microbatches() const { return microbatches_; }
  std::int64_t events() const { return events_; }

 private:
  std::int64_t most_events_;
  int microbatches_ = 0;
  std::int64_t events_ = 0;
};

/// Plays fewer micro-batches, if the middle of their step repeats: what an operation waits for does
/// not depend on where memory lies (program::link), so equal states have equal futures.
std::optional<PlayedPlan> play_shorter(const program::Plan& plan, const Cluster& cluster,
                                       Tries& tries) {
  const int all = plan.num_microbatches();
  const int period = program::loops_over_chunks(plan.schedule) ? plan.parallel.pp : 1;
  const int shortest = shortest_repeating(plan, cluster);
  int fewer = shortest + (all - shortest) % period;
  const auto is_worth_it = [&] {
    return saves_half(tries.microbatches(), fewer, all) && tries.may_play(fewer);
  };
  if (!is_worth_it()) return std::nullopt;
  while (is_worth_it()) {
    PlayedPlan played =
        play_all(of_microbatches(plan, fewer), cluster, {.period = period, .plan = plan});
    tries.note(fewer, played.result.events);
    const int missing = all - fewer;
    if (played.result.added < missing) {
      const int repeats = played.result.repeats;
      fewer += repeats > 0 ? missing % repeats : fewer / period * period;
      continue;
    }
    std::vector<program::MemoryPlan> memory = program::lower_memory(plan);
    for (std::size_t s = 0; s < memory.size(); ++s) {
      played.programs[s].memory = std::move(memory[s]);
      played.programs[s].plan = plan;
    }
    played.result.memory = memory_report(played.programs, cluster);
    return played;
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlayedPlan> play_merged(const program::Plan& plan, const Cluster& cluster,
                                      const Repetition& repetition) {
  if (cluster.communication.needs_host) return std::nullopt;
  constexpr int kTries = 4;
  program::ListedOperations listed;
  std::int64_t events = 0;
  for (int i = 0; i < kTries; ++i) {
    std::optional<std::vector<program::Program>> programs = program::lower_merged(plan, listed);
    if (!programs) return std::nullopt;
    PlayedPlan played{.microbatches = plan.num_microbatches(), .programs = *std::move(programs)};
    played.result =
        simulate(played.programs, cluster, {.record_spans = false, .repetition = repetition});
    played.result.events = events += played.result.events;
    const std::optional<program::ListedOperations>& more = played.result.must_list;
    if (!more) return played;
    listed.first_tasks = std::max(listed.first_tasks, more->first_tasks);
    listed.passes.insert(more->passes.begin(), more->passes.end());
  }
  return std::nullopt;
}

int fewest_played(const program::Plan& plan, const Cluster& cluster) {
  const int all = plan.num_microbatches(), fewer = shortest_repeating(plan, cluster);
  return saves_half(0, fewer, all) ? fewer : all;
}

std::optional<PlayedPlan> play_plan_within(std::int64_t most_events, const program::Plan& plan,
                                           const Cluster& cluster) {
  Tries tries(most_events);
  std::optional<PlayedPlan> played = play_shorter(plan, cluster, tries);
  if (!played) {
    if (!tries.may_play(plan.num_microbatches())) return std::nullopt;
    played = play_all(plan, cluster);
    tries.note(played->microbatches, played->result.events);
  }
  played->events = tries.events();
  played->result.trace.plan = plan;
  played->result.trace.peak_memory_bytes = played->result.memory.peak_bytes;
  return played;
}

PlayedPlan play_plan(const program::Plan& plan, const Cluster& cluster) {
  return *play_plan_within(kUnlimited, plan, cluster);
}

SimulatedStep step_of(const PlayedPlan& of_plan, const program::Plan& plan,
                      const Cluster& cluster) {
  const auto& [microbatches, programs, played, events] = of_plan;
  const double step = played.step_time_s;
  const StageBreakdown longest = busiest(by_stage(played.breakdown, plan));
  return {.step = {.step_time_s = step,
                   .seconds = mean_of(played.breakdown),
                   .peak_memory_bytes = played.memory.peak_bytes,
                   .largest_stage = played.memory.largest_stage,
                   .capacity_bytes = played.memory.capacity_bytes,
                   .of_host = played.memory.of_host,
                   .mfu = model_flops_utilization(plan, cluster, step)},
          .microbatches_played = microbatches,
          .events = events,
          .busiest_stage = longest.stage,
          .terms = terms_of(programs[static_cast<std::size_t>(longest.stage)], cluster,
                            longest.seconds, step)};
}

SimulatedStep simulate_step(const program::Plan& plan, const Cluster& cluster) {
  return step_of(play_plan(plan, cluster), plan, cluster);
}

std::optional<SimulatedStep> simulate_step_within(std::int64_t most_events,
                                                  const program::Plan& plan,
                                                  const Cluster& cluster) {
  const std::optional<PlayedPlan> played = play_plan_within(most_events, plan, cluster);
  if (!played) return std::nullopt;
  return step_of(*played, plan, cluster);
}

}  // namespace meshplan::sim
