#include "search/stage_division.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "models/model_spec.hpp"
#include "sim/engine/simulated_step.hpp"
#include "sim/stacks/cluster_preset.hpp"

namespace meshplan::planner {
namespace {

using Layers = std::vector<int>;

sim::Cluster nodes(const std::string& preset, int count) {
  return sim::with_ranks(sim::load_cluster_preset(preset), 8 * count);
}

/// A node each of H100 and A100: large products at 989.4 x 0.7 and 312 x 0.8 TFLOP/s, 35 to 12.5.
SearchRequest request_on(sim::Cluster cluster) {
  SearchRequest request{.model = models::load_preset("llama3-8b"), .cluster = std::move(cluster)};
  request.workload.precision = DType::BF16;
  request.workload.seq_len = 2048;
  request.workload.global_batch_size = 32;
  return request;
}

SearchRequest mixed() {
  sim::Cluster cluster = sim::joined({nodes("dgx-h100", 1), nodes("dgx-a100", 1)});
  cluster.device.efficiency.gemm = 0.7;
  cluster.other_nodes[0].device.efficiency.gemm = 0.8;
  return request_on(std::move(cluster));
}

Layers divided(const SearchRequest& request, program::ParallelConfig parallel,
               program::ScheduleKind schedule = program::ScheduleKind::OneFOneB) {
  return StageDivision(request).layers({.parallel = parallel, .schedule = schedule});
}

}  // namespace

TEST_CASE("Layers are divided by the speed of a stage's nodes", "[planner][stage_division]") {
  const SearchRequest request = mixed();
  // 32 x 692.6 / (692.6 + 249.6) = 23.52.
  CHECK(divided(request, {.pp = 2, .dp = 8}) == Layers{24, 8});
  // 11.76 and 4.24 of two stages each.
  CHECK(divided(request, {.pp = 4, .dp = 4}) == Layers{12, 12, 4, 4});
  CHECK(divided(request, {.pp = 2, .vpp = 2, .dp = 8}, program::ScheduleKind::Interleaved) ==
        Layers{12, 4, 12, 4});
  CHECK(divided(request, {.pp = 2, .vpp = 2, .dp = 8}, program::ScheduleKind::ZbV) ==
        Layers{12, 4, 4, 12});
}

TEST_CASE("A slow rank's stage has fewer layers", "[planner][stage_division]") {
  SearchRequest request = request_on(nodes("dgx-h100", 1));
  request.cluster.slow_ranks = {{.rank = 5, .times = 2}};
  // 32 / 3.5 = 9.14 for a quick stage, half of that for ranks 4 and 5.
  CHECK(divided(request, {.pp = 4, .dp = 2}) == Layers{9, 9, 5, 9});
  CHECK(divided(request, {.pp = 2, .dp = 4}) == Layers{21, 11});
  CHECK(divided(request, {.dp = 8}).empty());
  request.cluster.slow_ranks.front().times = 1;
  CHECK(divided(request, {.pp = 4, .dp = 2}).empty());
}

TEST_CASE("A step is shorter where the slow rank has fewer layers", "[planner][stage_division]") {
  SearchRequest request = request_on(nodes("dgx-h100", 1));
  request.cluster.slow_ranks = {{.rank = 5, .times = 2}};
  Candidate candidate{.parallel = {.pp = 4, .dp = 2}, .micro_batch_size = 1};
  const auto seconds = [&] {
    return sim::simulate_step(make_plan(request, candidate), request.cluster).step.step_time_s;
  };
  const double even = seconds();
  candidate.layers_per_stage = StageDivision(request).layers(candidate);
  // The slowest stage computes 2 x 8 layers of an even division, and 10 of this one.
  CHECK(seconds() < 0.8 * even);
}

TEST_CASE("A search gives a slow rank's stage fewer layers", "[planner][stage_division]") {
  SearchRequest request = request_on(nodes("dgx-h100", 1));
  request.cluster.slow_ranks = {{.rank = 5, .times = 2}};
  request.constraints.tp = 2;
  request.constraints.pp = 4;
  request.constraints.schedule = program::ScheduleKind::OneFOneB;
  const auto result = std::get<SearchResult>(search(request, cost_model(request), serial()));
  const program::Plan& plan = result.ranked.front().plan;
  const Layers layers = program::resolved_layers_per_stage(plan);
  REQUIRE(layers.size() == 4);
  CHECK(layers[2] < std::min({layers[0], layers[1], layers[3]}));
  program::Plan even = plan;
  even.layers_per_stage.clear();
  CHECK(result.ranked.front().step_time_s() <
        0.85 * sim::simulate_step(even, request.cluster).step.step_time_s);
}

TEST_CASE("The even division stands where nothing speaks against it", "[planner][stage_division]") {
  CHECK(divided(mixed(), {.dp = 16}).empty());
  CHECK(divided(request_on(nodes("dgx-h100", 2)), {.pp = 2, .dp = 8}).empty());
  CHECK(divided(mixed(), {.pp = 16, .vpp = 4, .dp = 1}).empty());  // 64 chunks, 32 layers
  SearchRequest across = mixed();
  across.constraints.rank_order = "tp-cp-ep-pp-dp";  // each stage on both nodes
  CHECK(divided(across, {.pp = 2, .dp = 8}).empty());
  SearchRequest pinned = mixed();
  pinned.constraints.layers_per_stage = {20, 12};
  CHECK(divided(pinned, {.pp = 2, .dp = 8}) == Layers{20, 12});
}

TEST_CASE("Every stage has a layer, however slow", "[planner][stage_division]") {
  SearchRequest request = mixed();
  request.cluster.other_nodes[0].device.efficiency.gemm = 0.001;
  const Layers layers = divided(request, {.pp = 16});
  CHECK(std::accumulate(layers.begin(), layers.end(), 0) == 32);
  CHECK(Layers(layers.begin(), layers.begin() + 8) == Layers(8, 3));
  CHECK(Layers(layers.begin() + 8, layers.end()) == Layers(8, 1));
}

TEST_CASE("A search on mixed nodes finds a division that beats the even one",
          "[planner][stage_division]") {
  SearchRequest request = mixed();
  request.constraints.tp = 8;
  request.constraints.pp = 2;
  request.constraints.schedule = program::ScheduleKind::OneFOneB;
  const auto search_on = [&](const SearchRequest& asked) {
    return std::get<SearchResult>(search(asked, cost_model(asked), serial())).ranked.front();
  };
  const RankedPlan best = search_on(request);
  const Layers layers = program::resolved_layers_per_stage(best.plan);
  REQUIRE(layers.size() >= 2);
  CHECK(layers.front() > 2 * layers.back());
  request.constraints.layers_per_stage = {16, 16};
  CHECK(best.step_time_s() < 0.75 * search_on(request).step_time_s());
}

TEST_CASE("The stages of a mixed cluster are laid out in the fastest order of its nodes",
          "[planner][stage_division]") {
  SearchRequest given = mixed();
  given.constraints.tp = 8;
  given.constraints.pp = 2;
  given.cluster.device.memory_gib = 40;  // of the fast nodes, which the first stage needs more of
  given.space.node_orders = true;
  SearchRequest turned = given;
  turned.cluster = sim::in_node_order(given.cluster, {1, 0});
  CHECK(turned.cluster.name == "dgx-a100:1+dgx-h100:1");
  CHECK(sim::in_node_order(turned.cluster, {1, 0}) == given.cluster);

  const auto seconds_on = [](const SearchRequest& request) {
    return std::get<SearchResult>(search(request, cost_model(request), serial()))
        .ranked.front()
        .step_time_s();
  };
  const double as_given = seconds_on(given), the_other = seconds_on(turned);
  REQUIRE(as_given != the_other);
  SearchRequest searched = given;
  const auto result = std::get<SearchResult>(search_node_orders(searched, serial()));
  CHECK(result.ranked.front().step_time_s() == std::min(as_given, the_other));
  CHECK(searched.cluster == (as_given < the_other ? given : turned).cluster);
  CHECK(result.ranked.front().plan.cluster_name == searched.cluster.name);
  REQUIRE(result.node_orders.size() == 2);
  CHECK(result.node_orders[0].step_time_s == as_given);
  CHECK(result.node_orders[1].step_time_s == the_other);

  SearchRequest pinned = given;
  pinned.space.node_orders = false;
  const auto only = std::get<SearchResult>(search_node_orders(pinned, serial()));
  CHECK(only.node_orders.empty());
  CHECK(pinned.cluster == given.cluster);
}

}  // namespace meshplan::planner
