#include "reports/comparison.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.hpp"

namespace meshplan::reports {
namespace {

using program::Lane;
using program::Phase;
using program::Span;
using program::Trace;
using sim::Category;

program::Plan make_plan() {
  program::Plan plan;
  plan.model.name = "by-hand";
  plan.workload.seq_len = 8;
  plan.workload.global_batch_size = 2;
  plan.parallel.pp = 2;
  return plan;
}

Span span(int rank, Phase phase, const std::string& name, double start_ms, double end_ms) {
  return {.rank = rank,
          .lane = Lane::Compute,
          .phase = phase,
          .name = name,
          .start_s = start_ms / 1000,
          .end_s = end_ms / 1000};
}

/// Two ranks. Rank 0: 4 ms forward, `backward_ms` backward; rank 1: half of both.
Trace make_trace(bool measured, double backward_ms) {
  Trace trace{.measured = measured, .plan = make_plan(), .world_size = 2};
  trace.spans = {span(0, Phase::Forward, "qkv", 0, 4),
                 span(0, Phase::InputGrad, "qkv.input_grad", 4, 4 + backward_ms),
                 span(1, Phase::Forward, "qkv", 0, 2),
                 span(1, Phase::InputGrad, "qkv.input_grad", 2, 2 + backward_ms / 2)};
  trace.step_times_s = {(4 + backward_ms) / 1000};
  return trace;
}

std::string refusal(const Trace& predicted, const Trace& measured) {
  try {
    compare(predicted, measured);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

}  // namespace

TEST_CASE("the median leaves out the first fifth of measured steps", "[reports]") {
  Trace trace{.measured = true};
  trace.step_times_s = {9, 8, 3, 1, 2, 5, 4, 7, 6, 10};  // 9 and 8 are warm-up
  const StepTimes times = step_times(trace);
  CHECK(times.warmup_steps == 2);
  CHECK(times.steps == 8);
  CHECK(times.median_s == Approx(4.5));  // of 1 2 3 4 5 6 7 10
  CHECK(times.p10_s == Approx(1.7));     // 0.7 of the way from the 1st to the 2nd
  CHECK(times.p90_s == Approx(7.9));     // 0.3 of the way from the 7th to the 8th
}

TEST_CASE("the first of a few measured steps is warm-up, a single one counts", "[reports]") {
  Trace trace{.measured = true};
  trace.step_times_s = {9, 2, 4};
  CHECK(step_times(trace).median_s == Approx(3));
  trace.step_times_s = {9};
  CHECK(step_times(trace).median_s == Approx(9));
  trace.step_times_s = {};
  CHECK(step_times(trace).steps == 0);
}

TEST_CASE("a predicted step has no warm-up", "[reports]") {
  Trace trace{.measured = false};
  trace.step_times_s = {5, 7};
  CHECK(step_times(trace).warmup_steps == 0);
  CHECK(step_times(trace).median_s == Approx(6));
}

TEST_CASE("errors and differences are those counted by hand", "[reports]") {
  const Comparison c = compare(make_trace(false, 6), make_trace(true, 8));
  CHECK(c.step_time_error == Approx(10.0 / 12.0 - 1));
  REQUIRE(c.operations.size() == 2);
  CHECK(c.operations[0].name == "qkv.input_grad");       // differs most
  CHECK(c.operations[0].predicted_s == Approx(4.5e-3));  // (6 + 3) / 2 ranks
  CHECK(c.operations[0].measured_s == Approx(6e-3));     // (8 + 4) / 2
  CHECK(c.operations[1].predicted_s == Approx(3e-3));    // (4 + 2) / 2
  CHECK(c.operations[1].measured_s == Approx(3e-3));
}

TEST_CASE("categories sum to the traced step, and the critical rank waits least", "[reports]") {
  const Comparison c = compare(make_trace(false, 6), make_trace(true, 8));
  CHECK(c.predicted_mean.total() == Approx(10e-3));
  CHECK(c.measured_mean.total() == Approx(12e-3));
  CHECK(c.measured_mean[Category::Forward] == Approx(3e-3));
  CHECK(c.measured_mean[Category::Backward] == Approx(6e-3));
  CHECK(c.critical_rank == 0);
  CHECK(c.measured_critical[Category::Forward] == Approx(4e-3));
  CHECK(c.measured_critical[Category::Backward] == Approx(8e-3));
  CHECK(c.predicted_critical[Category::Backward] == Approx(6e-3));
}

TEST_CASE("traces of different plans, or in the wrong order, are refused", "[reports]") {
  const Trace predicted = make_trace(false, 6);
  Trace measured = make_trace(true, 8);
  CHECK_THAT(refusal(measured, predicted),
             Catch::Contains("the first is measured, the second predicted"));
  CHECK_THAT(refusal(predicted, predicted), Catch::Contains("the second predicted"));
  measured.plan.micro_batch_size = 2;
  CHECK_THAT(refusal(predicted, measured),
             Catch::Contains("different plans") && Catch::Contains("micro-batch 2"));
}

TEST_CASE("another prediction or cluster of the same plan may be compared", "[reports]") {
  Trace predicted = make_trace(false, 6);
  predicted.plan.prediction = program::Prediction{.step_time_s = 1};
  predicted.plan.cluster_name = "calibrated-again";
  CHECK(refusal(predicted, make_trace(true, 8)) == "no ConfigError");
}

TEST_CASE("without spans only step times are compared", "[reports]") {
  Trace measured = make_trace(true, 8);
  measured.spans.clear();
  const Comparison c = compare(make_trace(false, 6), measured);
  CHECK(c.operations.empty());
  CHECK_THAT(to_text(c), Catch::Contains("no spans"));
}

// Two messages of a name are in flight from 0 to 9 and from 1 to 10: 10 ms, not 18.
TEST_CASE("no operation takes longer than the step that it is of", "[reports]") {
  const auto with_sends = [](bool measured) {
    Trace trace = make_trace(measured, 6);
    for (const double start : {0.0, 1.0}) {
      Span sent = span(0, Phase::Forward, "send_forward", start, start + 9);
      sent.lane = Lane::PpSendForward;
      sent.group = "pp";
      sent.peer = 1;
      trace.spans.push_back(sent);
    }
    return trace;
  };
  const Comparison c = compare(with_sends(false), with_sends(true));
  const auto found =
      std::ranges::find(c.operations, std::string("send_forward"), &OperationDifference::name);
  REQUIRE(found != c.operations.end());
  CHECK(found->measured_s == Approx(5e-3));   // 10 ms on one of two ranks
  CHECK(found->predicted_s == Approx(5e-3));  // of a period that is as long
  for (const OperationDifference& operation : c.operations) {
    CHECK(operation.measured_s <= c.measured_mean.total() + 1e-12);
    CHECK(operation.predicted_s <= c.predicted_mean.total() + 1e-12);
  }
  REQUIRE(c.communication.size() == 1);
  CHECK(c.communication[0].group == "pp");
  CHECK(c.communication[0].measured.total() == Approx(10e-3));
}

TEST_CASE("a measured step time is laid beside a whole step's prediction", "[reports]") {
  planner::TimedPlan predicted{.plan = make_plan()};
  predicted.step.step_time_s = 14.5;
  predicted.step.seconds[Category::Forward] = 10;
  predicted.step.seconds[Category::Bubble] = 4.5;
  predicted.step.peak_memory_bytes = 1e9;
  const Trace measured{.measured = true, .plan = make_plan(), .step_times_s = {14.66}};
  const Comparison c = compare(predicted, measured);
  CHECK(c.step_time_error == Approx(14.5 / 14.66 - 1));
  CHECK_FALSE(c.measured_operations);
  const std::string text = to_text(c);
  CHECK_THAT(text, Catch::Contains("14500.00  14660.00  -1.1 %"));
  CHECK_THAT(text, Catch::Contains("bubble         4500.00  31.0 %"));
  CHECK_THAT(text, Catch::Contains("80 % interval"));
}

TEST_CASE("what compare prints fits 100 columns", "[reports]") {
  Trace predicted = make_trace(false, 6), measured = make_trace(true, 8);
  for (Trace* trace : {&predicted, &measured})
    for (Span& one : trace->spans) {
      one.name = std::string(120, 'k');
      one.end_s *= 1e5;
      one.start_s *= 1e5;
    }
  for (Trace* trace : {&predicted, &measured})
    trace->spans[0].group = "zero-replicas";  // a communication
  measured.step_times_s.assign(20, 1200.0);
  const std::string text = to_text(compare(predicted, measured));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    CHECK(end - begin <= 100);
    begin = end + 1;
  }
}

}  // namespace meshplan::reports
