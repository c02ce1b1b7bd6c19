#include "planner/search/reasons.hpp"

#include <catch2/catch.hpp>

using namespace meshplan;
using namespace meshplan::planner;
using sim::Category;

TEST_CASE("differences come largest first and sum to the whole", "[planner][explain]") {
  sim::StepPrediction faster;
  sim::StepPrediction slower;
  slower.seconds[Category::Bubble] = 0.5;
  faster.seconds[Category::Tp] = 0.2;
  slower.seconds[Category::Dp] = 1.5;
  slower.seconds[Category::Optimizer] = 0.01;  // below 3 % of 1.5
  slower.seconds[Category::Host] = 0.02;       // so are both together
  faster.seconds[Category::Forward] = 0.1 + 0.2;
  slower.seconds[Category::Forward] = 0.3;  // the same but for its last bit
  CHECK(time_differences(faster, slower) ==
        "exposed dp +1.50 s, bubble +500 ms, exposed tp -200 ms, rest +30.0 ms");
  CHECK(time_differences(faster, faster).empty());
}

TEST_CASE("times and sizes keep three or four digits", "[planner][explain]") {
  CHECK(format_seconds(12.34) == "12.3 s");
  CHECK(format_seconds(1.234) == "1.23 s");
  CHECK(format_seconds(0.8123) == "812 ms");
  CHECK(format_seconds(0.0451) == "45.1 ms");
  CHECK(format_seconds(0.0000451) == "45.1 us");
  CHECK(format_bytes(1.5 * 1024 * 1024 * 1024) == "1.5 GiB");
  CHECK(format_bytes(3.25 * 1024 * 1024) == "3.2 MiB");
  CHECK(shortage(1.5 * 1024 * 1024 * 1024, 1024 * 1024 * 1024) == "1.5 GiB > 1.0 GiB");
  CHECK(shortage(1073741825, 1073741824) == "1073741825 > 1073741824 bytes");
}

TEST_CASE("a plan's own reasons follow from its numbers", "[planner][explain]") {
  RankedPlan ranked;
  ranked.plan.parallel = {.tp = 2, .pp = 4};
  ranked.plan.workload.global_batch_size = 12;
  ranked.estimate.step_time_s = 10;
  ranked.estimate.seconds[Category::Bubble] = 2;
  ranked.estimate.seconds[Category::Tp] = 1;
  ranked.estimate.seconds[Category::Recompute] = 0.5;
  ranked.estimate.peak_memory_bytes = 40 * 1024.0 * 1024 * 1024;
  ranked.estimate.capacity_bytes = 80 * 1024.0 * 1024 * 1024;
  const std::vector<std::string> expected = {
      "bubble 20.0 % of the step: 4 stages, 12 micro-batches (ideal (pp-1)/(m+pp-1) = 20.0 %)",
      "exposed communication: tp 10.0 %", "recompute 5.0 % of the step",
      "fits: 40.0 GiB of 80.0 GiB on stage 0"};
  CHECK(own_reasons(ranked) == expected);
}
