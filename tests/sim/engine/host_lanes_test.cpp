// Where the host drives communications: those of a lane go one after the other.
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "sim/plans.hpp"

namespace meshplan::sim {
namespace {

using program::Span;

std::vector<Span> spans_of_rank_0(const program::Plan& plan) {
  Cluster cluster = cpu_host(plan.parallel.world_size(), plan.parallel.world_size());
  cluster.fabric.front().link_gb_per_s = 0.1;  // exchanges take longer than what lies between
  std::vector<Span> spans =
      simulate(program::lower_all(plan), cluster, {.fold = false}).trace.spans;
  std::erase_if(spans, [](const Span& span) { return span.rank != 0; });
  std::ranges::sort(spans, {}, &Span::start_s);
  return spans;
}

}  // namespace

TEST_CASE("communications of a lane that the host drives go one after the other",
          "[sim][engine][by_node]") {
  program::Plan plan = tiny_plan({.dp = 4, .ep = 4}, 2);
  plan.model = models::load_preset("tiny-moe");
  plan.expert_node_ranks = 2;
  const std::vector<Span> spans = spans_of_rank_0(plan);
  double free = 0, tokens_arrived = 0;
  int exchanges = 0, dispatches = 0;
  for (const Span& span : spans) {
    if (span.lane == program::Lane::Ep) {
      CAPTURE(span.name, span.start_s, free);
      CHECK(span.start_s >= free * (1 - 1e-9));
      free = span.end_s;
      ++exchanges;
      if (span.name == "dispatch.node_all_to_all") tokens_arrived = span.end_s;
    }
    // It waits for the counts that follow on the lane, and so for the tokens before them.
    if (span.name == "dispatch") {
      CHECK(span.start_s >= tokens_arrived);
      ++dispatches;
    }
  }
  CHECK(dispatches == plan.model.num_layers * 2);
  CHECK(exchanges >= 8 * dispatches);
}

}  // namespace meshplan::sim
