#include "commands/run/slow_rank.hpp"

#include <fmt/format.h>
#include <limits>

#include "planner/elastic/replan.hpp"
#include "planner/explain/priced_plan.hpp"
#include "sim/engine/simulated_step.hpp"

namespace meshplan::cli {
namespace {

std::string slowness_of(const SlowRankOfJob& slow) {
  return fmt::format("computes {:.2f} x as long as its peers", slow.times);
}

/// A way, and the step time that is expected of it.
struct ExpectedWay {
  const WayOn* way = nullptr;
  std::string what;
  double step_s = std::numeric_limits<double>::infinity();  // of none, too
};

std::string text_of(const ExpectedWay& expected, const ElasticLayout& running,
                    const RunAhead& ahead) {
  const std::optional<ElasticLayout>& layout = expected.way->layout;
  if (!layout) return fmt::format("{} has no plan ({})", expected.what, expected.way->why_not);
  if (same_layout(*layout, running)) return fmt::format("{} has no faster plan", expected.what);
  const std::string plan = planner::layout_text(layout->plan);
  const double saved = ahead.saved_s(expected.step_s);
  if (saved <= 0) return fmt::format("{} ({}) would not be faster", expected.what, plan);
  return fmt::format("{} ({}) would save {:.1f} s", expected.what, plan, saved);
}

}  // namespace

double predicted_step_s(const ElasticLayout& layout, const runtime::Nodes& nodes) {
  return sim::simulate_step(layout.plan, with_slow_slots(layout.cluster, nodes, layout.hosts))
      .step.step_time_s;
}

bool same_layout(const ElasticLayout& a, const ElasticLayout& b) {
  return planner::candidate_of(a.plan) == planner::candidate_of(b.plan) && a.hosts == b.hosts;
}

SlowRankWays ways_on(const ElasticRun& run, const ElasticLayout& running,
                     const runtime::Nodes& nodes, const SlowRankOfJob& slow, double clock_s) {
  runtime::Nodes all = nodes, without = nodes;
  all.note_slow(slow.host, slow.slot, slow.times, clock_s);
  without.lose_rank(slow.host, clock_s, fmt::format("rank {} {}", slow.rank, slowness_of(slow)));
  const double now_s = predicted_step_s(running, all);
  return {.slow = slow,
          .now_s = now_s,
          .less_work = way_on(run, std::move(all)),
          .left_out = way_on(run, std::move(without))};
}

SlowRankDecision decide(const SlowRankWays& ways, const ElasticLayout& running,
                        const RunAhead& ahead, double measured_over_predicted) {
  const auto expected = [&](const WayOn& way, const std::string& what) {
    ExpectedWay one{.way = &way, .what = what};
    if (way.layout && !same_layout(*way.layout, running))
      one.step_s = way.layout->step_time_s * measured_over_predicted;
    return one;
  };
  const ExpectedWay less = expected(ways.less_work, "less work for it");
  const ExpectedWay out = expected(ways.left_out, "leaving it out");
  const ExpectedWay& best = less.step_s <= out.step_s ? less : out;
  const bool worth = ahead.saved_s(best.step_s) > ahead.move_s;
  const std::string host = ways.slow.host.empty() ? "this machine" : ways.slow.host;
  return {.taken = worth ? best.way : nullptr,
          .text = fmt::format(
              "rank {} on {} {}, with {:.1f} s left: {}; {}; a move takes about {:.1f} s: {}",
              ways.slow.rank, host, slowness_of(ways.slow), ahead.left_s(),
              text_of(less, running, ahead), text_of(out, running, ahead), ahead.move_s,
              !worth           ? "stays"
              : &best == &less ? "gives it less work after this step"
                               : "leaves it out after this step")};
}

}  // namespace meshplan::cli
