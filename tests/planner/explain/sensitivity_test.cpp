#include "planner/explain/sensitivity.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "planner/explain/plans.hpp"
#include "sim/clusters/what_if.hpp"
#include "sim/estimator/estimator.hpp"

namespace meshplan::planner {
namespace {

std::map<std::string, double> by_figure(const std::vector<Sensitivity>& all) {
  std::map<std::string, double> seconds;
  for (const Sensitivity& s : all) seconds[s.figure] = s.seconds_of_10_percent;
  return seconds;
}

double estimated(const program::Plan& plan, const sim::Cluster& cluster) {
  return sim::Estimator(cluster).estimate(plan).step_time_s;
}

}  // namespace

TEST_CASE("more of a rate is faster, more of a latency is slower, and what is unused does nothing",
          "[planner][sensitivity]") {
  const sim::Cluster cluster = h100s(16);
  const PricedPlan priced = price(llama_on_two_nodes(), cluster);
  const auto seconds = by_figure(sensitivities(priced, {cluster}));
  REQUIRE(seconds.size() == 6);
  for (const char* rate : {"flops", "memory_bandwidth", "nvlink.bandwidth"})
    CHECK(seconds.at(rate) < 0);
  CHECK(seconds.at("nvlink.latency") > 0);
  CHECK(seconds.at("flops") < seconds.at("nvlink.bandwidth"));

  const PricedPlan alone = price(preset_plan("llama3.2-1b", {}, 2, 2048), h100s(1));
  const auto of_one = by_figure(sensitivities(alone, {h100s(1)}));
  CHECK(of_one.at("nvlink.bandwidth") == 0);
  CHECK(of_one.at("flops") < 0);
}

TEST_CASE("where nothing but products takes time, 10 % more FLOP/s take 1/11 of it",
          "[planner][sensitivity]") {
  sim::Cluster cluster = h100s(1);
  cluster.device.memory_gb_per_s = 1e9;
  cluster.device.launch_us = cluster.device.host_issue_us = 0;
  cluster.jitter = cluster.step_overhead_ms = 0;
  const PricedPlan priced = price(preset_plan("llama3.2-1b", {}, 2, 2048), cluster);
  const auto seconds = by_figure(sensitivities(priced, {cluster}));
  CHECK(seconds.at("flops") / priced.step.step_time_s == Approx(-1.0 / 11).epsilon(1e-3));
}

TEST_CASE("at a turning point the other plan is as fast", "[planner][sensitivity]") {
  const sim::Cluster cluster = h100s(16);
  const PricedOn on{cluster};
  const PricedPlan first = price(llama_on_two_nodes(), cluster);
  program::Plan rival = preset_plan("llama3-8b", {.tp = 8, .dp = 2, .sp = true}, 32, 4096);
  rival.zero_stage = 1;
  const PricedPlan other = price(rival, cluster);
  int found = 0;
  for (const TurningPoint& point : turning_points(first, other, on)) {
    INFO(point.figure);
    const auto seconds = [&](const PricedPlan& priced, double factor) {
      const sim::Cluster changed = sim::scaled(cluster, point.figure, factor);
      return priced.step.step_time_s * estimated(priced.plan, changed) /
             estimated(priced.plan, cluster);
    };
    const double slower_now = other.step.step_time_s - first.step.step_time_s;
    if (!point.factor) {
      for (const double factor : {kLeastTurn, 0.5, 2.0, kMostTurn})
        CHECK((seconds(other, factor) - seconds(first, factor)) * slower_now > 0);
      continue;
    }
    ++found;
    CHECK(*point.factor >= kLeastTurn / 1.01);
    CHECK(*point.factor <= kMostTurn * 1.01);
    CHECK(seconds(other, *point.factor) == Approx(seconds(first, *point.factor)).epsilon(2e-3));
  }
  CHECK(found > 0);
}

TEST_CASE("memory that does not suffice is told as a factor", "[planner][sensitivity]") {
  TimedPlan plan;
  plan.step.peak_memory_bytes = 60;
  plan.step.capacity_bytes = 100;
  CHECK(memory_factor(plan, 0) == Approx(0.6));
  CHECK(memory_factor(plan, 0.5) == Approx(1.2));
}

}  // namespace meshplan::planner
