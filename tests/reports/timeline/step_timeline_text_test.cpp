#include "reports/timeline/step_timeline_text.hpp"

#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::reports {
namespace {

using program::Lane;
using program::Phase;
using program::Span;
using program::Trace;

Span part(int rank, Phase phase, double start, double end) {
  return {.rank = rank, .phase = phase, .name = "op", .start_s = start, .end_s = end};
}

/// Two stages, 10 s: stage 0 forward 0-4, idle, backward 6-10; stage 1 receives until 4, forward
/// 4-5, backward 5-6, optimizer 9-10.
Trace drawn_trace() {
  Trace trace{.measured = true, .world_size = 2, .spans = {}};
  trace.plan.parallel.pp = 2;
  Span receive = part(1, Phase::Forward, 2, 4);
  receive.lane = Lane::PpRecvForward;
  receive.group = "pp";
  receive.peer = 0;
  trace.spans = {part(0, Phase::Forward, 0, 4),     part(0, Phase::InputGrad, 6, 8),
                 part(0, Phase::WeightGrad, 8, 10), receive,
                 part(1, Phase::Forward, 4, 5),     part(1, Phase::InputGrad, 5, 6),
                 part(1, Phase::Optimizer, 9, 10)};
  return trace;
}

}  // namespace

TEST_CASE("a timeline shows what takes most of each slice", "[reports][timeline]") {
  const std::string text = step_timeline_text(drawn_trace(), {.columns = 10});
  CHECK_THAT(text, Catch::Contains("measured step of 10000.00 ms; a column is 1e+03 ms"));
  CHECK_THAT(text, Catch::Contains("stage 0   FFFF..BBBB  80.0 %\n"));
  CHECK_THAT(text, Catch::Contains("stage 1   ..ccFB...O  30.0 %\n"));
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("a schedule that splits the backward shows its halves", "[reports][timeline]") {
  Trace trace = drawn_trace();
  trace.plan.schedule = program::ScheduleKind::ZbH1;
  trace.plan.workload.global_batch_size = 4;
  CHECK_THAT(step_timeline_text(trace, {.columns = 10}),
             Catch::Contains("stage 0   FFFF..BBWW  80.0 %\n"));
}

TEST_CASE("colours are asked for, and end with each row", "[reports][timeline]") {
  const std::string text = step_timeline_text(drawn_trace(), {.columns = 10, .colors = true});
  CHECK_THAT(text, Catch::Contains("\x1b[34mFFFF\x1b[90m..\x1b[32mBBBB\x1b[0m"));
}

TEST_CASE("without operations there is nothing to draw", "[reports][timeline]") {
  Trace trace = drawn_trace();
  trace.spans.clear();
  CHECK_THROWS_AS(step_timeline_text(trace), ConfigError);
}

}  // namespace meshplan::reports
