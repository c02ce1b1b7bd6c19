#include "planner/search/space.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "core/error.hpp"
#include "planner/search/fake_costs.hpp"

using namespace meshplan;
using namespace meshplan::planner;
using Catch::Matchers::Contains;

namespace {

const program::Workload kWorkload{.seq_len = 128, .global_batch_size = 8};

}  // namespace

TEST_CASE("every candidate uses exactly the ranks", "[planner][space]") {
  for (const int num_ranks : {1, 2, 6, 8}) {
    const auto candidates = enumerate(small_model(), kWorkload, {num_ranks}, {});
    CHECK_FALSE(candidates.empty());
    for (const Candidate& candidate : candidates)
      CHECK(candidate.parallel.world_size() == num_ranks);
  }
}

TEST_CASE("one rank leaves micro-batch size and recompute to choose", "[planner][space]") {
  // 8 sequences have the divisors 1, 2, 4, 8; three kinds of recompute; one schedule.
  CHECK(enumerate(small_model(), kWorkload, {1}, {}).size() == 4 * 3);
}

TEST_CASE("two ranks are counted by hand", "[planner][space]") {
  // tp2: sp or not, 4 micro-batch sizes, 3 recompute kinds         2 * 4 * 3     = 24
  // pp2: 4 sizes, 3 kinds, 2 schedules                             4 * 3 * 2     = 24
  // dp2: 4 sequences a replica: sizes 1, 2, 4; 3 kinds; 4 stages   3 * 3 * 4     = 36
  CHECK(enumerate(small_model(), kWorkload, {2}, {}).size() == 84);
  CHECK(enumerate(small_model(), kWorkload, {2}, {.zero_stage = 0}).size() == 24 + 24 + 9);
}

TEST_CASE("no candidate appears twice", "[planner][space]") {
  const auto candidates = enumerate(small_model(), kWorkload, {8}, {});
  for (std::size_t i = 0; i < candidates.size(); ++i)
    CHECK(std::count(candidates.begin(), candidates.end(), candidates[i]) == 1);
}

TEST_CASE("replicas that do not divide the batch have one candidate for all sizes",
          "[planner][space]") {
  const auto candidates = enumerate(small_model(), {.seq_len = 128, .global_batch_size = 8}, {3},
                                    Constraints{.tp = 1, .pp = 1});
  CHECK(candidates.size() == 3 * 4);  // one size, three kinds of recompute, four stages of ZeRO
}

TEST_CASE("an uneven batch has every size that saves a micro-batch", "[planner][space]") {
  // 16 sequences on 3 replicas: 6, 3 and 2 micro-batches of 1, 2 and 3 sequences; 4 and 5 take 2,
  // too; 6 takes one, 7 as well, and 8 leaves the last replica without a sequence.
  const auto sizes = [](int ranks, std::int64_t batch, bool uneven) {
    std::vector<int> found;
    for (const Candidate& candidate :
         enumerate(small_model(), {.seq_len = 128, .global_batch_size = batch}, {ranks},
                   Constraints{.tp = 1,
                   .pp = 1,
                   .zero_stage = 0,
                   .uneven_batch = uneven,
                   .recompute = program::RecomputeKind::None}))
      found.push_back(candidate.micro_batch_size);
    return found;
  };
  CHECK(sizes(3, 16, true) == std::vector<int>{1, 2, 3, 6});
  CHECK(sizes(3, 16, false) == std::vector<int>{1});
  CHECK(sizes(4, 16, true) == std::vector<int>{1, 2, 4});
  CHECK(sizes(4, 16, false) == std::vector<int>{1, 2, 4});
  CHECK(sizes(7, 8, true) == std::vector<int>{1});  // two would leave three replicas idle
}

TEST_CASE("pins are never overridden", "[planner][space]") {
  const Constraints pins{.tp = 1,
                         .pp = 2,
                         .zero_stage = 2,
                         .zero_shard_group = 2,
                         .micro_batch_size = 3,
                         .sp = true,
                         .recompute = program::RecomputeKind::Full,
                         .recompute_layers = 2,
                         .schedule = program::ScheduleKind::GPipe,
                         .layers_per_stage = {5, 7}};
  const auto candidates = enumerate(small_model(), kWorkload, {4}, pins);
  REQUIRE(candidates.size() == 1);
  const Candidate& only = candidates.front();
  CHECK(only.parallel == program::ParallelConfig{.tp = 1, .pp = 2, .dp = 2, .sp = true});
  CHECK(only.micro_batch_size == 3);
  CHECK(only.zero_stage == 2);
  CHECK(only.zero_shard_group == 2);
  CHECK(only.recompute == program::Recompute{program::RecomputeKind::Full, 2});
  CHECK(only.schedule == program::ScheduleKind::GPipe);
  CHECK(only.layers_per_stage == std::vector<int>{5, 7});
}

TEST_CASE("cp is searched where it leaves a rank enough of a sequence", "[planner][space]") {
  const auto degrees = [](std::int64_t seq_len, const Constraints& pins) {
    std::vector<int> found;
    for (const Candidate& candidate :
         enumerate(small_model(), {.seq_len = seq_len, .global_batch_size = 8}, {8}, pins))
      if (std::ranges::find(found, candidate.parallel.cp) == found.end())
        found.push_back(candidate.parallel.cp);
    return found;
  };
  CHECK(degrees(8192, {.tp = 1}) == std::vector<int>{1});
  CHECK(degrees(32768, {.tp = 1}) == std::vector<int>{1, 2, 4});
  CHECK(degrees(128, {.tp = 1, .cp = 2}) == std::vector<int>{2});
  CHECK_THROWS_WITH(validate({.tp = 4, .cp = 4}, 8), Contains("tp(4) * cp(4) = 16"));
  std::vector<std::string> names;
  for (const Candidate& candidate : enumerate(small_model(), kWorkload, {2},
                                              {.cp = 2,
                                              .zero_stage = 0,
                                              .micro_batch_size = 1,
                                              .recompute = program::RecomputeKind::None}))
    names.push_back(describe(candidate));
  CHECK(names ==
        std::vector<std::string>{"cp2 mbs1 all_gather", "cp2 mbs1 ring", "cp2 mbs1 ulysses"});
}

TEST_CASE("ZeRO is tried in groups of a node, its later stages without a pipeline",
          "[planner][space]") {
  const auto stages = [](const Constraints& pins) {
    std::vector<std::string> found;
    for (const Candidate& candidate : enumerate(small_model(), kWorkload, {8, 4}, pins))
      found.push_back(describe(candidate));
    return found;
  };
  const Constraints one{.micro_batch_size = 1, .recompute = program::RecomputeKind::None};
  Constraints pins = one;
  pins.tp = 2, pins.sp = true, pins.dp = 4;  // 2 of 4 replicas share a node
  CHECK(stages(pins) == std::vector<std::string>{"tp2 sp dp4 mbs1", "tp2 sp dp4 mbs1 zero1",
                                                 "tp2 sp dp4 mbs1 zero2", "tp2 sp dp4 mbs1 zero2/2",
                                                 "tp2 sp dp4 mbs1 zero3",
                                                 "tp2 sp dp4 mbs1 zero3/2"});
  pins = one;
  pins.pp = 2, pins.dp = 4, pins.schedule = program::ScheduleKind::OneFOneB;
  CHECK(stages(pins) == std::vector<std::string>{"pp2 dp4 mbs1", "pp2 dp4 mbs1 zero1"});
  CHECK_THROWS_WITH(validate({.zero_stage = 4}, 8), Contains("nearest: 3"));
  CHECK_THROWS_WITH(validate({.ep = 3}, 8),
                    Contains("ep = 3 does not divide") && Contains("nearest ep: 2"));
}

TEST_CASE("ep takes what divides experts and ranks, etp 1 or tp", "[planner][space]") {
  models::ModelSpec model = small_model();
  model.ffn_size = 0;
  model.moe = models::MoeSpec{.num_experts = 6, .top_k = 2, .expert_ffn_size = 512};
  std::vector<std::string> found;
  for (const Candidate& candidate : enumerate(model, kWorkload, {8},
                                              {.tp = 2,
                                              .dp = 4,
                                              .zero_stage = 0,
                                              .micro_batch_size = 1,
                                              .recompute = program::RecomputeKind::None}))
    found.push_back(describe(candidate));
  // 8 ranks and 6 experts have 1 and 2 in common; sp, or every tp rank would route the same.
  CHECK(found == std::vector<std::string>{"tp2 sp dp4 mbs1", "tp2 sp dp4 ep2 mbs1",
                                          "tp2 sp dp4 etp2 mbs1", "tp2 sp dp4 ep2 etp2 mbs1"});
}

TEST_CASE("gradients are compressed where there are some to sum", "[planner][space]") {
  const program::GradientCompression int8{.kind = program::CompressionKind::Int8};
  const auto candidates =
      enumerate(small_model(), kWorkload, {4}, Constraints{.compression = int8});
  const auto compressed = [](const Candidate& candidate) {
    return candidate.compression.kind == program::CompressionKind::Int8;
  };
  CHECK(std::ranges::any_of(candidates, compressed));
  for (const Candidate& candidate : candidates)
    CHECK(compressed(candidate) == (candidate.parallel.dp * candidate.parallel.cp > 1));
}

TEST_CASE("compression that no mesh of the pins can have is left for check to refuse",
          "[planner][space]") {
  const program::GradientCompression int8{.kind = program::CompressionKind::Int8};
  const auto candidates =
      enumerate(small_model(), kWorkload, {4}, Constraints{.tp = 2, .pp = 2, .compression = int8});
  REQUIRE_FALSE(candidates.empty());
  for (const Candidate& candidate : candidates) CHECK(candidate.compression == int8);
}

TEST_CASE("a pinned dp leaves only the meshes that have it", "[planner][space]") {
  const auto candidates = enumerate(small_model(), kWorkload, {8}, Constraints{.dp = 2});
  CHECK(std::ranges::all_of(candidates,
                            [](const Candidate& candidate) { return candidate.parallel.dp == 2; }));
  CHECK(std::ranges::any_of(candidates,
                            [](const Candidate& candidate) { return candidate.parallel.tp == 4; }));
}

TEST_CASE("pins that cannot use the ranks are refused with the nearest that can",
          "[planner][space]") {
  CHECK_THROWS_WITH(
      validate({.tp = 6}, 128),
      Contains("tp(6) = 6, which does not divide the 128 ranks") && Contains("nearest tp: 4"));
  CHECK_THROWS_WITH(
      validate({.tp = 4, .pp = 4, .dp = 4}, 128),
      Contains("tp(4) * pp(4) * dp(4) = 64, but the cluster has 128 ranks") && Contains("dp = 8"));
  CHECK_THROWS_WITH(validate({.tp = 8, .pp = 3}, 64), Contains("nearest pp: 2"));
  CHECK_THROWS_AS(validate({.tp = 0}, 8), ConfigError);
  CHECK_THROWS_AS(validate({.micro_batch_size = 0}, 8), ConfigError);
}

TEST_CASE("a schedule or a number of chunks that is pinned is enumerated", "[planner][space]") {
  const auto choices = [](const Constraints& pins) {
    std::vector<std::string> found;
    for (const Candidate& candidate : enumerate(small_model(), kWorkload, {2}, pins)) {
      const std::string name = label(Choice::Schedule, candidate);
      if (std::ranges::find(found, name) == found.end()) found.push_back(name);
    }
    return found;
  };
  using Names = std::vector<std::string>;
  CHECK(choices({.pp = 2}) == Names{"1f1b", "gpipe"});
  CHECK(choices({.pp = 2, .schedule = program::ScheduleKind::ZbV}) == Names{"zb-v"});
  CHECK(choices({.pp = 2, .schedule = program::ScheduleKind::Interleaved}) ==
        Names{"interleaved vpp=2", "interleaved vpp=4", "interleaved vpp=8"});
  CHECK(choices({.pp = 2, .vpp = 2}) == Names{"interleaved vpp=2", "zb-v", "dualpipe-v"});
  CHECK(choices({.pp = 2, .vpp = 3}) == Names{"interleaved vpp=3"});
  CHECK(chunked_schedules({.pp = 4}, 12) ==
        std::vector<ScheduleChoice>{{program::ScheduleKind::Interleaved, 2},
                                    {program::ScheduleKind::Interleaved, 3},
                                    {program::ScheduleKind::ZbH1, 1},
                                    {program::ScheduleKind::ZbV, 2},
                                    {program::ScheduleKind::DualPipeV, 2}});
  CHECK(chunked_schedules({}, 12).empty());
}

// Llama 3 405B: 126 layers, embedding and head make 128 (Llama 3 team 2024, section 3.3.2).
TEST_CASE("embedding and head fill up chunks that layers alone do not", "[planner][space]") {
  CHECK(ends_fill_up(128, 126));
  CHECK(ends_fill_up(64, 126));
  CHECK_FALSE(ends_fill_up(63, 126));  // two layers each
  CHECK_FALSE(ends_fill_up(16, 80));
  CHECK_FALSE(ends_fill_up(32, 80));  // 82 is no multiple of 32
  const ScheduleChoice one_layer_a_chunk{program::ScheduleKind::Interleaved, 8};
  CHECK(std::ranges::count(chunked_schedules({.pp = 16}, 126), one_layer_a_chunk) == 1);
  CHECK(std::ranges::count(chunked_schedules({.pp = 16}, 120), one_layer_a_chunk) == 0);
}

TEST_CASE("buckets grow with the ranks that sum them", "[planner][space]") {
  CHECK(default_bucket_bytes({.tp = 8, .dp = 16}) == 25 << 20);
  CHECK(default_bucket_bytes({.cp = 2, .dp = 256}) == 512 << 20);
}

TEST_CASE("pins that contradict each other are refused", "[planner][space]") {
  CHECK_THROWS_WITH(validate({.recompute_layers = 3}, 8), Contains("recompute = full"));
  CHECK_THROWS_WITH(validate({.pp = 2, .layers_per_stage = {4, 4, 4}}, 8), Contains("fixed to 3"));
  CHECK_THROWS_AS(validate({.rank_order = "tp-tp-pp-dp-ep"}, 8), ConfigError);
}

TEST_CASE("a description names what is on", "[planner][space]") {
  Candidate candidate{.parallel = {.tp = 8, .pp = 4, .dp = 2, .sp = true}, .micro_batch_size = 1};
  CHECK(describe(candidate) == "tp8 sp pp4 dp2 mbs1");
  candidate.recompute = {program::RecomputeKind::Full, 3};
  candidate.schedule = program::ScheduleKind::GPipe;
  CHECK(describe(candidate) == "tp8 sp pp4 dp2 mbs1 full-recompute(3 layers) gpipe");
  CHECK(describe({.recompute = {program::RecomputeKind::Selective, {}}}) ==
        "one rank mbs1 selective-recompute");
}
