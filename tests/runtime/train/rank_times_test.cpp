#include "train/rank_times.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::test {
namespace {

using program::Group;
using program::Lane;
using program::Phase;
using runtime::Interval;
using runtime::RankTimer;
using runtime::RankTimes;

program::Operation computing(Phase phase, Lane lane = Lane::Compute) {
  return {.name = "compute", .phase = phase, .lane = lane, .work = program::StepOp{}};
}

program::Operation collective(Group group) {
  return {.name = "all_reduce", .lane = Lane::Tp, .work = program::CollectiveOp{.group = group}};
}

program::Operation bucket(std::int64_t elements) {
  return {.name = "bucket",
          .phase = Phase::Reduce,
          .lane = Lane::Dp,
          .work = program::FlatCollectiveOp{.collective = {.group = Group::DpCp},
                                            .range = {0, elements}}};
}

program::Operation message() {
  return {.name = "recv", .lane = Lane::PpRecvForward, .work = program::PeerOp{}};
}

program::Program program_of(std::vector<program::Operation> operations) {
  program::Program program;
  for (int i = 0; i < static_cast<int>(operations.size()); ++i)
    program.instances.push_back({.operation = {.index = i}});
  program.step_operations = std::move(operations);
  return program;
}

double exposed(const RankTimes& times, Group group) {
  return times.exposed_s[static_cast<std::size_t>(group)];
}
double hidden(const RankTimes& times, Group group) {
  return times.hidden_s[static_cast<std::size_t>(group)];
}

}  // namespace

TEST_CASE("every instant of a step is in one phase", "[runtime][watch]") {
  // forward 0..2, a bucket 1..6 beside it, backward 4..5, optimizer 6..7; the step takes 8
  const RankTimer timer(program_of({computing(Phase::Forward), bucket(100),
                                    computing(Phase::InputGrad), computing(Phase::Optimizer)}));
  const RankTimes times = timer.measure(std::vector<Interval>{{0, 2}, {1, 6}, {4, 5}, {6, 7}}, 8.0);
  const std::array<double, runtime::kNumTimedPhases> expected = {2, 0, 1, 0, 1, 0, 3, 1};
  CHECK(times.phases_s == expected);
  CHECK(times.computing_s() == 4);
  CHECK(exposed(times, Group::DpCp) == 3);  // 2..4 and 5..6
  CHECK(hidden(times, Group::DpCp) == 2);   // 1..2 and 4..5
  CHECK(times.buckets_s == std::vector<double>{5});
  CHECK(timer.bucket_bytes() == std::vector<std::int64_t>{400});
}

TEST_CASE("of two communications in progress the one that ends first was waited for",
          "[runtime][watch]") {
  // tp 0..4 and a message 1..2: until 1 tp, until 2 the message, then tp again
  const RankTimer timer(program_of({collective(Group::Tp), message()}));
  const RankTimes times = timer.measure(std::vector<Interval>{{0, 4}, {1, 2}}, 4.0);
  CHECK(exposed(times, Group::Tp) == 3);
  CHECK(exposed(times, Group::Pp) == 1);
  CHECK(times.phases_s.back() == 0);
  CHECK(times.buckets_s.empty());
}

TEST_CASE("computing comes before loading data, which comes before communication",
          "[runtime][watch]") {
  const RankTimer timer(program_of({computing(Phase::Forward, Lane::Host),
                                    computing(Phase::WeightGrad), collective(Group::Ep)}));
  const RankTimes times = timer.measure(std::vector<Interval>{{0, 3}, {1, 2}, {0, 4}}, 4.0);
  const std::array<double, runtime::kNumTimedPhases> expected = {0, 0, 0, 1, 0, 2, 1, 0};
  CHECK(times.phases_s == expected);
  CHECK(times.computing_s() == 1);
  CHECK(hidden(times, Group::Ep) == 3);
  CHECK(exposed(times, Group::Ep) == 1);
}

TEST_CASE("a timer wants the intervals of its own program", "[runtime][watch]") {
  const RankTimer timer(program_of({message()}));
  CHECK_THROWS_AS(timer.measure(std::vector<Interval>{}, 1.0), InvariantError);
}

}  // namespace meshplan::test
