#include "sim/engine/breakdown.hpp"

#include <catch2/catch.hpp>

#include "program/trace/trace.hpp"

namespace meshplan::sim {
namespace {

using program::Lane;
using program::Phase;
using program::Span;

Span computing(int rank, Phase phase, double start, double end) {
  return {
      .rank = rank, .phase = phase, .name = "op", .microbatch = 0, .start_s = start, .end_s = end};
}

Span communicating(int rank, const char* name, const char* group, Lane lane, double start,
                   double end) {
  return {.rank = rank, .lane = lane, .name = name, .group = group, .start_s = start, .end_s = end};
}

program::Trace measured(program::ParallelConfig parallel, std::vector<Span> spans) {
  program::Trace trace;
  trace.measured = true;
  trace.plan.parallel = parallel;
  trace.world_size = parallel.world_size();
  trace.spans = std::move(spans);
  return trace;
}

}  // namespace

// forward 0-2, all-reduce 1-4 (hidden until 2), backward 4-7, nothing 7-8, optimizer 8-10.
TEST_CASE("Communication counts only where nothing hides it", "[sim][breakdown]") {
  const auto ranks = breakdown(measured(
      {.tp = 2},
      {computing(0, Phase::Forward, 0, 2), communicating(0, "mlp.all_reduce", "tp", Lane::Tp, 1, 4),
       computing(0, Phase::WeightGrad, 4, 7), computing(0, Phase::Optimizer, 8, 10)}));
  REQUIRE(ranks.size() == 1);
  const Breakdown& seconds = ranks.front().seconds;
  CHECK(seconds[Category::Forward] == Approx(2));
  CHECK(seconds[Category::Tp] == Approx(2));
  CHECK(seconds[Category::Backward] == Approx(3));
  CHECK(seconds[Category::Other] == Approx(1));
  CHECK(seconds[Category::Optimizer] == Approx(2));
  CHECK(seconds.total() == Approx(10));
}

TEST_CASE("With sequence parallelism gathers and scatters of the tp group are sp",
          "[sim][breakdown]") {
  const auto ranks = breakdown(
      measured({.tp = 2, .sp = true}, {communicating(0, "qkv.all_gather", "tp", Lane::Tp, 0, 1),
                                       communicating(0, "norm.all_reduce", "tp", Lane::Tp, 1, 3)}));
  CHECK(ranks.front().seconds[Category::Sp] == Approx(1));
  CHECK(ranks.front().seconds[Category::Tp] == Approx(2));
}

TEST_CASE("Exchanges of tokens are those of experts, by node or not", "[sim][breakdown]") {
  for (const program::Group group : {program::Group::Ep, program::Group::EpWithin,
                                     program::Group::EpAcross, program::Group::Etp}) {
    const std::string name(program::name_of(group));
    const auto ranks = breakdown(measured(
        {.dp = 4, .ep = 4}, {communicating(0, "all_to_all", name.c_str(), Lane::Ep, 0, 1)}));
    CAPTURE(name);
    CHECK(ranks.front().seconds[Category::Ep] == Approx(1));
  }
}

// Stage 1 posts its receive at 0; stage 0 computes until 3 and sends 3-4: three seconds of bubble,
// one of transfer. Stage 0 then waits from 4 to 6 for a gradient that stage 1 sends at 5.
TEST_CASE("A receive is bubble until its send begins", "[sim][breakdown]") {
  auto send = communicating(0, "send_forward", "pp", Lane::PpSendForward, 3, 4);
  send.peer = 1;
  auto receive = communicating(1, "recv_forward", "pp", Lane::PpRecvForward, 0, 4);
  receive.peer = 0;
  auto back = communicating(1, "send_backward", "pp", Lane::PpSendBackward, 5, 6);
  back.peer = 0;
  auto gradient = communicating(0, "recv_backward", "pp", Lane::PpRecvBackward, 4, 6);
  gradient.peer = 1;
  const auto ranks =
      breakdown(measured({.pp = 2}, {computing(0, Phase::Forward, 0, 3), send, gradient, receive,
                                     computing(1, Phase::InputGrad, 4, 5), back}));
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].seconds[Category::Forward] == Approx(3));
  CHECK(ranks[0].seconds[Category::Bubble] == Approx(1));
  CHECK(ranks[0].seconds[Category::Pp] == Approx(2));
  CHECK(ranks[1].seconds[Category::Bubble] == Approx(3));
  CHECK(ranks[1].seconds[Category::Pp] == Approx(2));
  CHECK(ranks[1].seconds[Category::Backward] == Approx(1));
  for (const auto& rank : ranks) CHECK(rank.seconds.total() == Approx(6));
}

// Two in progress: the one that ends first was the one waited for.
TEST_CASE("Time belongs to the communication that was waited for", "[sim][breakdown]") {
  const auto ranks = breakdown(
      measured({.tp = 2, .dp = 2}, {communicating(0, "grads", "dp-cp", Lane::Dp, 0, 5),
                                    communicating(0, "x.all_reduce", "tp", Lane::Tp, 0, 2)}));
  CHECK(ranks.front().seconds[Category::Tp] == Approx(2));
  CHECK(ranks.front().seconds[Category::Dp] == Approx(3));
}

TEST_CASE("Several traced steps are averaged", "[sim][breakdown]") {
  auto second = computing(0, Phase::Forward, 0, 4);
  second.step = 1;
  const auto ranks = breakdown(measured({}, {computing(0, Phase::Forward, 0, 2), second}));
  CHECK(ranks.front().seconds[Category::Forward] == Approx(3));
  CHECK(mean_of(ranks).total() == Approx(3));
}

}  // namespace meshplan::sim
