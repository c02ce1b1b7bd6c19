#include "sim/engine/delay_causes.hpp"

#include <catch2/catch.hpp>

#include "program/plans.hpp"
#include "sim/engine/communication_split.hpp"
#include "sim/engine/played_by_hand.hpp"
#include "support/cases.hpp"
#include "support/random.hpp"

namespace meshplan::sim {
namespace {

using program::Lane;
using program::ParallelConfig;
using program::Phase;
using program::Plan;
using program::Span;
using program::Trace;
using test::Fault;
using test::HandPlayer;

Plan mesh_plan(const ParallelConfig& parallel, int microbatches) {
  Plan plan = program::test::make_plan(program::test::llama_style(), parallel, microbatches);
  return plan;
}

/// Meshes in which a slow rank shows in two groups, or at one end of a row.
const std::vector<ParallelConfig>& told_apart() {
  static const std::vector<ParallelConfig> kMeshes = {
      {.tp = 2, .dp = 2},          {.tp = 2, .pp = 2}, {.pp = 2, .dp = 2},
      {.tp = 2, .pp = 2, .dp = 2}, {.pp = 4},          {.tp = 4, .dp = 2}};
  return kMeshes;
}

/// One that is computed, at random.
Fault random_fault(const Plan& plan, std::mt19937& random) {
  const program::Mesh mesh = program::mesh_of(plan);
  Fault fault{.kind = static_cast<Fault::Kind>(random() % 3),
              .rank = static_cast<int>(random() % static_cast<unsigned>(mesh.world_size()))};
  if (fault.kind == Fault::Kind::SlowLinks) {
    fault.by = std::uniform_real_distribution(3.0, 10.0)(random);
    return fault;
  }
  const program::Program program = program::lower(plan, mesh.coordinates(fault.rank).pp);
  do fault.instance = random() % program.instances.size();
  while (!make_span(program, program.instances[fault.instance], mesh, fault.rank).group.empty());
  fault.operation = program::operation_of(program, program.instances[fault.instance]).name;
  fault.by = fault.kind == Fault::Kind::LateOnce
                 ? std::uniform_real_distribution(0.3e-3, 2e-3)(random)
                 : std::uniform_real_distribution(3.0, 6.0)(random);
  return fault;
}

unsigned seed_of(std::mt19937& random) {
  return static_cast<unsigned>(random());
}

bool is_found(const Fault& fault, const std::vector<DelayCause>& causes) {
  for (const DelayCause& cause : causes) {
    if (cause.kind == DelayKind::Schedule) continue;  // is there without a fault, too
    if (fault.kind == Fault::Kind::SlowLinks)
      return cause.kind == DelayKind::Transfer && cause.rank == fault.rank;
    return cause.kind == DelayKind::Operation && cause.rank == fault.rank &&
           cause.operation == fault.operation;
  }
  return false;
}

Span work(int rank, const char* name, double start, double end) {
  return {.rank = rank, .phase = Phase::Forward, .name = name, .start_s = start, .end_s = end};
}

Span sum(int rank, double start, double end) {
  return {.rank = rank,
          .lane = Lane::Dp,
          .name = "gradients.all_reduce",
          .id = 7,
          .group = "dp-cp",
          .start_s = start,
          .end_s = end,
          .bytes = 100};
}

Trace trace_of(const ParallelConfig& parallel, std::vector<Span> spans) {
  Trace trace{.measured = true, .world_size = parallel.world_size(), .spans = std::move(spans)};
  trace.plan.parallel = parallel;
  return trace;
}

}  // namespace

TEST_CASE("what was made late or slow is found, with its rank", "[sim][delays]") {
  const int kCases = testing::random_cases(600);
  std::mt19937 random(20261125);
  int found = 0;
  std::map<Fault::Kind, int> cases, found_of;
  for (int i = 0; i < kCases; ++i) {
    const Plan plan = mesh_plan(told_apart()[random() % told_apart().size()],
                                4 + 2 * static_cast<int>(random() % 3));
    const Fault fault = random_fault(plan, random);
    // The prediction takes 20 % less for everything.
    const Trace prediction = HandPlayer(plan, seed_of(random), 0.8, {}).play();
    const Trace measured = HandPlayer(plan, seed_of(random), 1, fault).play();
    const bool is_right = is_found(fault, delay_causes(measured, &prediction));
    found += is_right ? 1 : 0;
    ++cases[fault.kind];
    found_of[fault.kind] += is_right ? 1 : 0;
  }
  for (const auto& [kind, count] : cases)
    UNSCOPED_INFO("kind " << static_cast<int>(kind) << ": " << found_of[kind] << " of " << count);
  CHECK(found >= 0.95 * kCases);
}

TEST_CASE("without a fault nothing but the schedule makes ranks wait", "[sim][delays]") {
  std::mt19937 random(7);
  for (const ParallelConfig& parallel : told_apart()) {
    const Plan plan = mesh_plan(parallel, 4);
    const Trace prediction = HandPlayer(plan, seed_of(random), 0.8, {}).play();
    for (const DelayCause& cause :
         delay_causes(HandPlayer(plan, seed_of(random), 1, {}).play(), &prediction))
      CHECK(cause.kind == DelayKind::Schedule);
  }
}

// Rank 1 computes until 5 instead of 2, so rank 0 waits from 2 to 5; the sum then takes 1.
TEST_CASE("a communication is split into waiting and moving", "[sim][delays]") {
  const Trace trace =
      trace_of({.dp = 2}, {work(0, "qkv", 0, 2), work(1, "qkv", 0, 5), sum(0, 2, 6), sum(1, 5, 6)});
  const auto ranks = split_communication(trace);
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].groups.at("dp-cp").waiting_s == Approx(3));
  CHECK(ranks[0].groups.at("dp-cp").transfer_s == Approx(1));
  CHECK(ranks[0].groups.at("dp-cp").slowdown_s == 0);
  CHECK(ranks[1].groups.at("dp-cp").waiting_s == 0);
  CHECK(mean_of(ranks).at("dp-cp").waiting_s == Approx(1.5));
}

// The same sum takes 1 alone, and 3 while a rank computes: 2 of them are slowdown.
TEST_CASE("what a communication takes longer beside computation is slowdown", "[sim][delays]") {
  Span later0 = sum(0, 10, 13), later1 = sum(1, 10, 13);
  later0.id = later1.id = 8;
  const Trace trace = trace_of({.dp = 2}, {sum(0, 2, 3), sum(1, 2, 3), work(0, "qkv", 10, 13),
                                           work(1, "qkv", 10, 13), later0, later1});
  for (const RankCommunication& rank : split_communication(trace)) {
    CHECK(rank.groups.at("dp-cp").transfer_s == Approx(2));
    CHECK(rank.groups.at("dp-cp").slowdown_s == Approx(2));
    CHECK(rank.groups.at("dp-cp").waiting_s == 0);
  }
}

TEST_CASE("no group's communication takes longer than the step", "[sim][delays]") {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<Span> spans;
    for (int i = 0; i < 30; ++i) {
      const double start = std::uniform_real_distribution(0.0, 1.0)(random);
      const double end = std::uniform_real_distribution(start, 1.0)(random);
      spans.push_back(sum(static_cast<int>(random() % 2), start, end));
      spans.back().id = random() % 8;
      spans.push_back(work(static_cast<int>(random() % 2), "qkv", start / 2, end / 2));
    }
    for (const RankCommunication& rank : split_communication(trace_of({.dp = 2}, spans))) {
      const CommunicationSplit& split = rank.groups.at("dp-cp");
      CHECK(split.total() <= 1 + 1e-9);
      CHECK(std::min({split.waiting_s, split.transfer_s, split.slowdown_s}) >= 0);
    }
  }
}

}  // namespace meshplan::sim
