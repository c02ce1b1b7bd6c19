#include "sim/engine/extrapolation.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "program/calibration/collective_table.hpp"
#include "sim/engine/engine.hpp"
#include "sim/engine/prediction_terms.hpp"
#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

using program::CommOp;

/// All-reduces of 4 ranks at these sizes, 1 us and 1 GB/s.
Cluster measured_at(const std::vector<std::int64_t>& sizes) {
  Cluster cluster = cpu_host(4, 4);
  for (const std::int64_t bytes : sizes)
    cluster.collectives.push_back({.op = std::string(program::name_of(CommOp::AllReduce)),
                                   .group_size = 4,
                                   .ranks_on_host = 4,
                                   .bytes = bytes,
                                   .seconds = 1e-6 + 1e-9 * static_cast<double>(bytes)});
  return cluster;
}

const Extrapolation* find(const std::vector<Extrapolation>& list, std::string_view what) {
  const auto found = std::ranges::find(list, what, &Extrapolation::what);
  return found == list.end() ? nullptr : &*found;
}

double relative_sigma(const program::Plan& plan, const Cluster& cluster) {
  const SimulationResult played = simulate(program::lower_all(plan), cluster);
  return relative_sigma_of(
      terms_of(program::lower(plan, 0), cluster, mean_of(played.breakdown), played.step_time_s),
      played.step_time_s);
}

}  // namespace

TEST_CASE("How far beyond the samples a size is", "[sim][extrapolation]") {
  CHECK(MeasuredSizes{8, 16, 64}.beyond() == 4);
  CHECK(MeasuredSizes{64, 128, 8}.beyond() == 8);
  CHECK(MeasuredSizes{8, 16, 12}.beyond() == 1);
  CHECK(MeasuredSizes{}.beyond() == 1);
}

// A calibration of 2 seconds had measured messages of 8 and 16 bytes; gradients take megabytes.
TEST_CASE("Gradients priced from tiny messages are flagged", "[sim][extrapolation]") {
  const program::Plan plan = tiny_plan({.dp = 4}, 1);
  const auto flagged = extrapolations(plan, measured_at({8, 16}));
  const Extrapolation* gradients = find(flagged, "all_reduce of 4 ranks");
  REQUIRE(gradients != nullptr);
  CHECK(gradients->message);
  CHECK(gradients->sizes.least == 8);
  CHECK(gradients->sizes.most == 16);
  CHECK(gradients->sizes.asked > 1e5);
  CHECK(gradients->seconds > 0);
  CHECK(extrapolations(plan, measured_at({8, 1 << 16, 64 << 20})).empty());
  CHECK(extrapolations(plan, cpu_host(4, 4)).empty());  // data sheets claim no size
}

// The formula of what was not measured itself is fitted to the other messages.
TEST_CASE("Unmeasured communication rests on the sizes of the others", "[sim][extrapolation]") {
  program::Plan plan = tiny_plan({.dp = 4}, 1);
  plan.zero_stage = 1;
  CHECK(find(extrapolations(plan, measured_at({8, 16})), "all_gather of 4 ranks") != nullptr);
  CHECK(extrapolations(plan, measured_at({8, 64 << 20})).empty());
  const program::Plan pipeline = tiny_plan({.pp = 4}, 4);
  CHECK(find(extrapolations(pipeline, measured_at({8, 16})), "message between stages") != nullptr);
}

// Products of the plan are of up to 2 * 128 * 704 * 256 FLOP and more; the sample is of 2 * 8^3.
TEST_CASE("Operators priced from a tiny sample are flagged", "[sim][extrapolation]") {
  const program::Plan plan = tiny_plan({}, 1);
  Cluster cluster = cpu_host(1, 1);
  cluster.operators = {{.signature = "linear.forward fp32 t=8 out=8 in=8",
                        .seconds = 1e-6,
                        .flops = 1024,
                        .bytes = 768}};
  const auto flagged = extrapolations(plan, cluster);
  REQUIRE(flagged.size() == 1);  // no samples of other kinds: the data sheet's formula
  CHECK(flagged.front().what == "linear.forward fp32");
  CHECK_FALSE(flagged.front().message);
  CHECK(flagged.front().sizes.most == 1024);
  cluster.operators.push_back({.signature = "linear.forward fp32 t=8192 out=8192 in=8192",
                               .seconds = 1,
                               .flops = 2.0 * 8192 * 8192 * 8192,
                               .bytes = 1e9});
  CHECK(extrapolations(plan, cluster).empty());
}

// Dozens of activations of 2^15 elements and more, of which only one of 2^24 was measured, at no
// time at all and at so much that they are a part of the step.
TEST_CASE("Small work below its samples matters only if it takes time", "[sim][extrapolation]") {
  const program::Plan plan = tiny_plan({}, 1);
  Cluster cluster = cpu_host(1, 1);
  cluster.operators = {
      {.signature = "gated_activation.forward fp32 65536 256 silu", .seconds = 1e-9, .bytes = 2e8}};
  const std::string kind = "gated_activation.forward fp32";
  CHECK(find(extrapolations(plan, cluster), kind) == nullptr);
  cluster.operators.front().seconds = 1e3;
  CHECK(find(extrapolations(plan, cluster), kind) != nullptr);
}

// f^0.3 either way at one standard deviation; at most a factor of ten at 80 %.
TEST_CASE("The farther beyond the samples, the wider the interval", "[sim][extrapolation]") {
  CHECK(extrapolation_sigma(1) == 0);
  CHECK(std::exp(extrapolation_sigma(32)) == Approx(std::pow(32, 0.3)));
  CHECK(1 + half_width_80(extrapolation_sigma(1e12)) == Approx(10).epsilon(0.01));
}

TEST_CASE("A plan that rests on tiny messages has a wide interval", "[sim][extrapolation]") {
  const program::Plan plan = tiny_plan({.dp = 4}, 1);
  const Cluster far = measured_at({8, 16});
  const SimulationResult played = simulate(program::lower_all(plan), far);
  bool named = false;
  for (const PredictionTerm& term :
       terms_of(program::lower(plan, 0), far, mean_of(played.breakdown), played.step_time_s))
    if (term.name == "gradients far beyond samples") {
      named = true;
      CHECK(term.sigma > 1);
      CHECK(term.source == TermSource::Assumed);
    }
  CHECK(named);
  CHECK(relative_sigma(plan, far) > relative_sigma(plan, measured_at({8, 1 << 16, 64 << 20})));
}

}  // namespace meshplan::sim
