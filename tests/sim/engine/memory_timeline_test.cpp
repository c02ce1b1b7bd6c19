// Memory over the step, against counts by hand and the memory plan's figures.
#include "sim/engine/memory_timeline.hpp"

#include <catch2/catch.hpp>

#include "program/memory/activations.hpp"
#include "program/schedule/generators.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/memory.hpp"
#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

struct Played {
  std::vector<program::Program> programs;
  std::vector<MemoryTimeline> timelines;
  MemoryReport plan;
  program::Trace trace;
};

Played play(const program::Plan& plan) {
  Played played{.programs = program::lower_all(plan), .timelines = {}, .plan = {}, .trace = {}};
  const Cluster cluster = free_communication(plan.parallel.world_size());
  played.plan = memory_report(played.programs, cluster);
  played.trace = simulate(played.programs, cluster).trace;
  played.timelines = memory_timelines(played.programs, cluster, played.trace);
  return played;
}

program::Plan pipeline(program::ScheduleKind schedule, int pp, int vpp, int num_microbatches) {
  program::Plan plan = tiny_plan({.pp = pp, .vpp = vpp}, num_microbatches);
  plan.model.num_layers = 2 * pp * vpp;
  plan.schedule = schedule;
  return plan;
}

/// Saved by all layers of a stage for one micro-batch.
double kept_by_microbatch(const program::Program& program) {
  double bytes = 0;
  for (const program::LayerInstance& layer : program.layers)
    bytes += static_cast<double>(program.blocks[static_cast<std::size_t>(layer.block)].saved_bytes);
  return bytes;
}

double most_activations(const MemoryTimeline& timeline) {
  double most = 0;
  for (const MemorySample& sample : timeline.samples)
    most = std::max(most, sample.use[MemoryClass::Activations]);
  return most;
}

/// Micro-batches whose forward has begun and whose backward is not over, from the spans alone.
int in_flight(const program::Trace& trace, int rank, double time_s) {
  std::map<int, double> begins, ends;
  for (const program::Span& span : trace.spans) {
    if (span.rank != rank || !span.microbatch || span.lane != program::Lane::Compute) continue;
    auto& begin = begins.try_emplace(*span.microbatch, span.start_s).first->second;
    begin = std::min(begin, span.start_s);
    auto& end = ends.try_emplace(*span.microbatch, span.end_s).first->second;
    end = std::max(end, span.end_s);
  }
  int count = 0;
  for (const auto& [microbatch, begin] : begins)
    count += begin <= time_s && time_s < ends.at(microbatch) ? 1 : 0;
  return count;
}

/// Is the next task a forward one, whose input arrives meanwhile?
bool input_arrives(const program::Trace& trace, int rank, double time_s) {
  const program::Span* now = nullptr;
  for (const program::Span& span : trace.spans)
    if (span.rank == rank && span.microbatch && span.lane == program::Lane::Compute &&
        span.start_s <= time_s && (now == nullptr || span.start_s >= now->start_s))
      now = &span;
  if (now == nullptr) return false;
  const auto is_forward = [](const program::Span& span) {
    return span.phase == program::Phase::Forward;
  };
  const program::Span* next = nullptr;
  for (const program::Span& span : trace.spans)
    if (span.rank == rank && span.microbatch && span.lane == program::Lane::Compute &&
        span.start_s > time_s && (next == nullptr || span.start_s < next->start_s) &&
        (span.microbatch != now->microbatch || is_forward(span) != is_forward(*now)))
      next = &span;
  return next != nullptr && is_forward(*next);
}

}  // namespace

// 1F1B of two stages and three micro-batches runs F0 F1 B0 F2 B1 B2 on the first stage: with 10
// bytes a micro-batch it keeps 10 20 20 20 20 10 during them and 10 20 10 20 10 0 after.
TEST_CASE("What a stage keeps is counted task by task", "[sim][memory]") {
  const auto tasks = program::kept_by_task(program::one_f_one_b(2, 3), 0, 3, {{10, 0, 0}});
  std::vector<std::int64_t> during, after;
  for (const program::TaskMemory& task : tasks) {
    during.push_back(task.during);
    after.push_back(task.after);
  }
  CHECK(during == std::vector<std::int64_t>{10, 20, 20, 20, 20, 10});
  CHECK(after == std::vector<std::int64_t>{10, 20, 10, 20, 10, 0});
}

// Narayanan et al. 2021, section 2.2: 1F1B holds min(m, pp - s) micro-batches, GPipe all m.
TEST_CASE("A timeline holds as many micro-batches as its schedule has in flight", "[sim][memory]") {
  constexpr int kStages = 4;
  const int microbatches = GENERATE(2, 6);
  const auto schedule = GENERATE(program::ScheduleKind::OneFOneB, program::ScheduleKind::GPipe);
  const Played played = play(pipeline(schedule, kStages, 1, microbatches));
  REQUIRE(played.timelines.size() == kStages);
  for (int s = 0; s < kStages; ++s) {
    const MemoryTimeline& timeline = played.timelines[static_cast<std::size_t>(s)];
    const double one = kept_by_microbatch(played.programs[static_cast<std::size_t>(s)]);
    const double input = s > 0 ? 128.0 * 256 * 4 : 0;
    const bool gpipe = schedule == program::ScheduleKind::GPipe;
    const int most = gpipe ? microbatches : std::min(microbatches, kStages - s);
    CHECK(timeline.stage == s);
    CHECK(most_activations(timeline) ==
          Approx(most * one + (!gpipe && microbatches > most ? input : 0)));
    for (const MemorySample& sample : timeline.samples)
      CHECK(sample.use[MemoryClass::Activations] ==
            Approx(in_flight(played.trace, timeline.rank, sample.time_s) * one +
                   (input_arrives(played.trace, timeline.rank, sample.time_s) ? input : 0))
                .margin(1));
  }
}

TEST_CASE("A timeline's peak is the memory plan's figure", "[sim][memory]") {
  const auto schedule = GENERATE(program::ScheduleKind::OneFOneB, program::ScheduleKind::GPipe);
  const Played played = play(pipeline(schedule, 4, 1, 6));
  double peak = 0;
  for (const MemoryTimeline& timeline : played.timelines) {
    const StageMemory& plan = played.plan.stages[static_cast<std::size_t>(timeline.stage)];
    CHECK(timeline.planned_bytes == plan.total());
    CHECK(timeline.peak.use.total() == Approx(plan.total()).epsilon(1e-12));
    CHECK(timeline.peak.use[MemoryClass::Transient] == Approx(plan.transient));
    CHECK(timeline.peak.use[MemoryClass::Weights] == plan.parameters);
    CHECK(timeline.mean_bytes() < timeline.planned_bytes);
    CHECK(timeline.samples.back().use[MemoryClass::Activations] == 0);
    CHECK(timeline.samples.back().use[MemoryClass::Transient] == 0);
    peak = std::max(peak, timeline.peak.use.total());
  }
  CHECK(peak == Approx(played.plan.peak_bytes));
}

// Chunks of unequal size leave gaps, and halves of an overlapped pair need two working sets that
// are not there when most is kept: the plan holds more then, never less.
TEST_CASE("A timeline stays within the plan under every schedule", "[sim][memory]") {
  using program::ScheduleKind;
  const auto [schedule, vpp] = GENERATE(table<ScheduleKind, int>({{ScheduleKind::Interleaved, 2},
                                                                  {ScheduleKind::ZbH1, 1},
                                                                  {ScheduleKind::ZbV, 2},
                                                                  {ScheduleKind::DualPipeV, 2}}));
  const Played played = play(pipeline(schedule, 2, vpp, 6));
  for (const MemoryTimeline& timeline : played.timelines) {
    const StageMemory& plan = played.plan.stages[static_cast<std::size_t>(timeline.stage)];
    double most_transient = 0;
    for (const MemorySample& sample : timeline.samples) {
      CHECK(sample.use[MemoryClass::Activations] <= plan.activations);
      CHECK(sample.use[MemoryClass::Transient] <= plan.transient);
      most_transient = std::max(most_transient, sample.use[MemoryClass::Transient]);
    }
    // The halves of an overlapped pair compute in turns, each in a working set of its own.
    const int working_sets = schedule == ScheduleKind::DualPipeV ? 2 : 1;
    CHECK(most_transient * working_sets == plan.transient);
    CHECK(timeline.samples.back().use[MemoryClass::Activations] == 0);
    CHECK(timeline.peak.use.total() <= plan.total());
    for (std::size_t i = 1; i < timeline.samples.size(); ++i)
      CHECK(timeline.samples[i - 1].time_s < timeline.samples[i].time_s);
  }
}

TEST_CASE("A rank of a folded trace and of a whole one hold the same", "[sim][memory]") {
  program::Plan plan = pipeline(program::ScheduleKind::OneFOneB, 2, 1, 4);
  plan.parallel.dp = 2;
  plan.zero_stage = 1;
  plan.workload.global_batch_size = 8;
  const Cluster cluster = free_communication(4);
  const auto programs = program::lower_all(plan);
  const auto folded = memory_timelines(programs, cluster, simulate(programs, cluster).trace);
  const auto whole =
      memory_timelines(programs, cluster, simulate(programs, cluster, {.fold = false}).trace);
  REQUIRE(whole.size() == 4);
  for (const MemoryTimeline& one : folded)
    for (const MemoryTimeline& other : whole)
      if (one.stage == other.stage) CHECK(one.peak.use == other.peak.use);
}

TEST_CASE("A stage that trains nothing keeps no more than one task, and has a timeline",
          "[sim][memory]") {
  program::Plan plan = pipeline(program::ScheduleKind::OneFOneB, 2, 1, 4);
  plan.frozen = {"embedding", "layers.0-1"};
  const Played played = play(plan);
  REQUIRE(played.timelines.size() == 2);
  CHECK(played.timelines[0].samples.back().use[MemoryClass::Activations] == 0);
  CHECK(most_activations(played.timelines[0]) < most_activations(played.timelines[1]));
  CHECK(played.timelines[0].peak.use.total() <= played.timelines[0].planned_bytes);
}

}  // namespace meshplan::sim
