#include "sim/engine/engine.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"
#include "sim/handmade.hpp"
#include "sim/plans.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::sim {
namespace {

using program::ParallelConfig;
using program::Phase;

SimulationResult play(const program::Plan& plan, const Cluster& cluster,
                      const SimulationOptions& options = {}) {
  return simulate(program::lower_all(plan), cluster, options);
}

/// Seconds of the compute and host lanes' spans on one rank.
double busy(const SimulationResult& result, int rank) {
  double seconds = 0;
  for (const auto& span : result.trace.spans)
    if (span.rank == rank && span.group.empty()) seconds += span.end_s - span.start_s;
  return seconds;
}

/// CPU ranks of one host whose communication is free and whose memory has no limit.
Cluster quiet_host(int ranks, int cores) {
  Cluster cluster = cpu_host(ranks, cores);
  cluster.device.launch_us = 0;
  cluster.host_memory_gb_per_s = 0;
  cluster.communication.oversubscription_wake_us = 0;
  cluster.communication.protocols = {Protocol{}};
  cluster.fabric.front().latency_us = 0;
  cluster.fabric.front().link_gb_per_s = 1e15;
  return cluster;
}

std::vector<ParallelConfig> meshes() {
  return {{.tp = 2},
          {.tp = 4, .sp = true},
          {.pp = 4},
          {.dp = 4},
          {.pp = 2, .dp = 2},
          {.tp = 2, .pp = 2},
          {.tp = 2, .pp = 2, .dp = 2, .sp = true}};
}

}  // namespace

TEST_CASE("One rank's step is the sum of its operations", "[sim][engine]") {
  const auto result = play(tiny_plan({}, 2), free_communication(1));
  REQUIRE(result.periodic);
  CHECK(result.step_time_s == Approx(busy(result, 0)).epsilon(1e-9));
}

// With free communication a step takes (m + p - 1) (f + b): the ideal m (f + b) and a bubble of
// (p - 1) / m of it on every stage (Huang et al. 2019, section 2.3; Narayanan et al. 2021, 2.2.1).
TEST_CASE("GPipe and 1F1B have the bubble of the closed form", "[sim][engine]") {
  const auto kind = GENERATE(program::ScheduleKind::GPipe, program::ScheduleKind::OneFOneB);
  const int pp = GENERATE(2, 3, 4);
  const int m = GENERATE(4, 7);
  const double forward = 1, backward = 2;
  const bool cpu = GENERATE(false, true);
  Cluster cluster = cpu ? quiet_host(pp, pp) : free_communication(pp);
  cluster.operators = {taking("forward", 1, forward), taking("input_grad", 2, backward)};
  const auto result = simulate(uniform_pipeline(kind, pp, m), cluster);
  REQUIRE(result.periodic);
  CHECK(result.step_time_s == Approx((m + pp - 1) * (forward + backward)));
  REQUIRE(result.breakdown.size() == static_cast<std::size_t>(pp));
  for (const auto& rank : result.breakdown) {
    CHECK(rank.seconds[Category::Forward] == Approx(m * forward));
    CHECK(rank.seconds[Category::Backward] == Approx(m * backward));
    const double idle = rank.seconds[Category::Bubble] + rank.seconds[Category::Other];
    CHECK(idle == Approx((pp - 1) * (forward + backward)).margin(1e-6));
  }
}

// Two ranks that compute 1 s each on one core run at half speed; on two cores they do not.
TEST_CASE("Ranks that outnumber the cores share them", "[sim][engine]") {
  const auto [cores, expected] = GENERATE(table<int, double>({{1, 2.0}, {2, 1.0}, {3, 1.0}}));
  const bool fold = GENERATE(true, false);
  Cluster cluster = quiet_host(2, cores);
  cluster.operators = {taking("forward", 1, 1.0)};
  HandMade made({.dp = 2});
  made.compute(Phase::Forward, 1);
  const auto result = simulate({made.take()}, cluster, {.fold = fold});
  CHECK(result.folded == fold);
  CHECK(result.step_time_s == Approx(expected));
}

// Measured: 1.0 s alone, 1.5 s while both cores ran it. The simulation must give 1.5 s back when
// both ranks run it, and 1.0 s when the other rank is idle.
TEST_CASE("Copies of an operator slow each other as they did when measured", "[sim][engine]") {
  Cluster cluster = quiet_host(2, 2);
  cluster.host_memory_gb_per_s = 20;
  cluster.operators = {taking("forward", 1, 1.0, 1.5)};
  HandMade both({.dp = 2});
  both.compute(Phase::Forward, 1);
  CHECK(simulate({both.take()}, cluster).step_time_s == Approx(1.5));

  HandMade first({.pp = 2}, 0);  // stage 1 computes when stage 0 is done, and sends back
  const int done = first.compute(Phase::Forward, 1);
  first.peer(true, true, 1, {done});
  const int back = first.peer(false, false, 1, {});
  first.compute(Phase::Forward, 1, {back});
  HandMade second({.pp = 2}, 1);
  const int input = second.peer(false, true, 1, {});
  const int computed = second.compute(Phase::Forward, 1, {input});
  second.peer(true, false, 1, {computed});
  CHECK(simulate({first.take(), second.take()}, cluster).step_time_s == Approx(3.0));
}

// A collective of 1 s is issued, then 1 s of independent work, then work that needs the collective.
// Lanes overlap the first two: 1 + 1 s. One thread moves the message only when it waits: 1 + 1 + 1
// s.
TEST_CASE("Communication progresses by itself on lanes and only in waits on a host thread",
          "[sim][engine]") {
  const bool cpu = GENERATE(false, true);
  Cluster cluster = cpu ? quiet_host(2, 2) : free_communication(2);
  cluster.operators = {taking("forward", 1, 1.0)};
  cluster.collectives = {all_reduce_taking(4, 1.0)};
  HandMade made({.dp = 2});
  const int reduced = made.collective(program::Group::Dp, 1);
  made.compute(Phase::Forward, 1);
  made.compute(Phase::Forward, 1, {reduced});
  const auto result = simulate({made.take()}, cluster);
  CHECK(result.step_time_s == Approx(cpu ? 3.0 : 2.0));
  CHECK(result.breakdown.front().seconds[Category::Dp] == Approx(cpu ? 1.0 : 0.0).margin(1e-9));
}

// The plan above with a progress thread a rank: 2 ranks on 4 cores hide the collective; on 3 cores
// computation and communication together want 4 and run at 3/4 until both are over; on 2 cores
// nothing is won. What the thread costs lengthens the collective.
TEST_CASE("A progress thread moves communication beside computation, on the cores there are",
          "[sim][engine]") {
  const auto [cores, overhead, expected] = GENERATE(table<int, int, double>(
      {{4, 0, 2.0}, {3, 0, 4.0 / 3 + 1}, {2, 0, 3.0}, {4, 50, 2.5}, {2, 50, 3.5}}));
  const bool fold = GENERATE(true, false);
  Cluster cluster = quiet_host(2, cores);
  cluster.communication.progress_overhead_percent = overhead;
  cluster.operators = {taking("forward", 1, 1.0)};
  cluster.collectives = {all_reduce_taking(4, 1.0)};
  HandMade made({.dp = 2});
  const int reduced = made.collective(program::Group::Dp, 1);
  made.compute(Phase::Forward, 1);
  made.compute(Phase::Forward, 1, {reduced});
  program::Program threaded = made.take();
  program::Program plain = threaded;
  threaded.plan.progress_thread = true;
  CHECK(simulate({threaded}, cluster, {.fold = fold}).step_time_s == Approx(expected));
  CHECK(simulate({plain}, cluster, {.fold = fold}).step_time_s == Approx(3.0));
}

// Device share 0.25: compute (1 s) and an all-reduce (1 s) start together and ask for 1.25 devices,
// so both run at 1 / 1.25 until both end after 1.25 s.
TEST_CASE("A communication that occupies units slows the computation beside it", "[sim][engine]") {
  Cluster cluster = free_communication(2);
  cluster.communication.device_share = 0.25;
  cluster.operators = {taking("forward", 1, 1.0)};
  cluster.collectives = {all_reduce_taking(4, 1.0)};
  HandMade made({.dp = 2});
  made.collective(program::Group::Dp, 1);
  made.compute(Phase::Forward, 1);
  CHECK(simulate({made.take()}, cluster).step_time_s == Approx(1.25));
}

// Two stages on one core, free transfers: f, then f and b on the other stage, then b: never two at
// once.
TEST_CASE("A rank that waits holds no core", "[sim][engine]") {
  const int cores = GENERATE(1, 2);
  Cluster cluster = quiet_host(2, cores);
  cluster.operators = {taking("forward", 1, 1.0), taking("input_grad", 2, 2.0)};
  const auto programs = uniform_pipeline(program::ScheduleKind::OneFOneB, 2, 1);
  CHECK(simulate(programs, cluster).step_time_s == Approx(6.0));
}

// 1 s of device time an operation, 4 s to issue one: the host sets the pace.
TEST_CASE("A host that issues slowly bounds the step", "[sim][engine]") {
  Cluster cluster = free_communication(1);
  cluster.operators = {taking("forward", 1, 1.0)};
  cluster.device.host_issue_us = 4e6;
  HandMade made({});
  made.compute(Phase::Forward, 1);
  made.compute(Phase::Forward, 1);
  CHECK(simulate({made.take()}, cluster).step_time_s == Approx(8.0));
}

TEST_CASE("Playing one rank per stage equals playing all", "[sim][engine]") {
  for (const ParallelConfig& parallel : meshes())
    for (const int cores : {16, 2}) {
      const auto plan = tiny_plan(parallel, 4);
      const Cluster cpu = cpu_host(parallel.world_size(), cores);
      const Cluster gpu = with_ranks(load_cluster_preset("dgx-h100"), parallel.world_size());
      for (const Cluster& cluster : {cpu, gpu}) {
        INFO(to_string(parallel) << " on " << cluster.name << ", cores " << cores);
        const auto folded = play(plan, cluster);
        const auto all = play(plan, cluster, {.fold = false});
        REQUIRE(folded.folded == (parallel.world_size() > parallel.pp));
        REQUIRE_FALSE(all.folded);
        CHECK(folded.step_time_s == Approx(all.step_time_s).epsilon(1e-6));
      }
    }
}

// Domains whose sizes divide nothing: ranks of a stage differ in where their partners are and in
// who uses their links.
TEST_CASE("Of ranks that differ one of each kind is played", "[sim][engine]") {
  const int per_domain = GENERATE(3, 5, 6, 12);
  const int per_link = GENERATE(1, 3, 4);
  const int zero_stage = GENERATE(0, 1);
  Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), 24);
  cluster.devices_per_node = 4;
  cluster.num_nodes = 6;
  cluster.fabric[0].ranks_per_group = per_domain;
  cluster.fabric[1].ranks_per_link = per_link;
  int played = 0, ranks = 0;
  for (ParallelConfig parallel : {ParallelConfig{.tp = 2, .dp = 12},
                                  {.pp = 2, .dp = 12},
                                  {.tp = 2, .pp = 3, .dp = 4, .sp = true},
                                  {.cp = 2, .pp = 2, .dp = 6},
                                  {.tp = 4, .pp = 2, .dp = 3}}) {
    auto plan = tiny_plan(parallel, 4);
    plan.zero_stage = zero_stage;
    INFO(to_string(parallel) << " zero " << plan.zero_stage << ", domains of " << per_domain
                             << ", links of " << per_link);
    const auto folded = play(plan, cluster), all = play(plan, cluster, {.fold = false});
    CHECK(folded.step_time_s == Approx(all.step_time_s).epsilon(1e-9));
    for (int stage = 0; stage < parallel.pp; ++stage) {
      const auto of_stage = [&](const SimulationResult& result) {
        const program::Mesh mesh = program::mesh_of(plan);
        std::vector<RankBreakdown> own;
        for (const RankBreakdown& rank : result.breakdown)
          if (mesh.coordinates(rank.rank).pp == stage) own.push_back(rank);
        return mean_of(own);
      };
      const Breakdown one = of_stage(folded), every = of_stage(all);
      for (const Category category : all_categories())
        CHECK(one[category] == Approx(every[category]).margin(1e-9 * all.step_time_s));
    }
    int standing = 0;
    for (const RankBreakdown& rank : folded.breakdown) standing += rank.stands_for;
    CHECK(standing == 24);
    played += static_cast<int>(std::ssize(folded.breakdown));
    ranks += standing;
  }
  CHECK(played < ranks);
}

TEST_CASE("The categories of every rank sum to the step", "[sim][engine][breakdown]") {
  for (const ParallelConfig& parallel : meshes())
    for (const char* name : {"dgx-h100", "cpu-host"}) {
      const Cluster cluster = with_ranks(load_cluster_preset(name), parallel.world_size());
      const auto result = play(tiny_plan(parallel, 4), cluster, {.fold = false});
      REQUIRE(result.breakdown.size() == static_cast<std::size_t>(parallel.world_size()));
      for (const auto& rank : result.breakdown)
        CHECK(rank.seconds.total() == Approx(result.step_time_s).epsilon(1e-9));
    }
}

// Without contention and with lane order fixed the engine is a max-plus system: monotone in
// durations.
TEST_CASE("More bandwidth never hurts where nothing contends", "[sim][engine]") {
  const SimulationOptions options{.contention = false};
  for (const ParallelConfig& parallel : meshes()) {
    const auto plan = tiny_plan(parallel, 4);
    Cluster cluster = with_ranks(load_cluster_preset("dgx-h100"), parallel.world_size());
    double before = play(plan, cluster, options).step_time_s;
    for (int doubling = 0; doubling < 4; ++doubling) {
      for (FabricLevel& level : cluster.fabric) level.link_gb_per_s *= 2;
      const double now = play(plan, cluster, options).step_time_s;
      CHECK(now <= before * (1 + 1e-12));
      before = now;
    }
  }
}

TEST_CASE("The same input gives the same trace", "[sim][engine]") {
  const auto plan = tiny_plan({.tp = 2, .pp = 2, .dp = 2}, 4);
  const Cluster cluster = cpu_host(8, 3);
  const auto first = play(plan, cluster), second = play(plan, cluster);
  REQUIRE(first.trace.spans.size() == second.trace.spans.size());
  for (std::size_t i = 0; i < first.trace.spans.size(); ++i) {
    CHECK(first.trace.spans[i].start_s == second.trace.spans[i].start_s);
    CHECK(first.trace.spans[i].end_s == second.trace.spans[i].end_s);
  }
}

TEST_CASE("What cannot be played is refused in words", "[sim][engine]") {
  CHECK_THROWS_WITH(play(tiny_plan({.dp = 2}, 2), cpu_host(4, 4)),
                    Catch::Contains("dp2") && Catch::Contains("has 4"));
  HandMade lonely({.pp = 2}, 0);
  lonely.peer(true, true, 1, {});
  HandMade silent({.pp = 2}, 1);
  silent.compute(Phase::Forward, 1);
  CHECK_THROWS_WITH(simulate({lonely.take(), silent.take()}, free_communication(2)),
                    Catch::Contains("send_forward") && Catch::Contains("1 of its 2"));
  HandMade a({.pp = 2}, 0), b({.pp = 2}, 1);  // each waits for the other's message before its own
  a.peer(true, true, 1, {a.peer(false, false, 1, {})});
  b.peer(true, false, 1, {b.peer(false, true, 1, {})});
  CHECK_THROWS_WITH(simulate({a.take(), b.take()}, quiet_host(2, 2)),
                    Catch::Contains("nothing can proceed"));
}

}  // namespace meshplan::sim
