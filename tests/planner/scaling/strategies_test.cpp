// The textbooks' layouts: what each fixes, and that the search's own answer is no worse.
#include "planner/scaling/strategies.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/explain/plans.hpp"

namespace meshplan::planner {
namespace {

SearchRequest gpt2_on(int ranks) {
  SearchRequest request;
  request.model = models::load_preset("gpt2-124m");
  request.cluster = h100s(ranks);
  request.workload = {.seq_len = 1024, .global_batch_size = 64, .precision = DType::BF16};
  return request;
}

const StrategyRow& row_named(const std::vector<StrategyRow>& rows, const std::string& name) {
  const auto found =
      std::ranges::find_if(rows, [&](const StrategyRow& row) { return row.strategy.name == name; });
  REQUIRE(found != rows.end());
  return *found;
}

}  // namespace

TEST_CASE("A strategy's plan uses the axes that its name says", "[planner][scaling]") {
  const auto rows = compare_strategies(gpt2_on(8), serial(), {});
  const auto parallel = [&](const char* name) {
    const StrategyRow& row = row_named(rows, name);
    REQUIRE(row.figures);
    return row.figures->plan.parallel;
  };
  CHECK(parallel("dp").dp == 8);
  CHECK(row_named(rows, "dp").figures->plan.zero_stage == 0);
  CHECK(row_named(rows, "dp + ZeRO-3").figures->plan.zero_stage == 3);
  const program::ParallelConfig both = parallel("tp x dp");
  CHECK(both.tp * both.dp == 8);
  CHECK((both.tp > 1 && both.dp > 1 && !both.sp));
  const program::ParallelConfig all = parallel("3-D + sp");
  CHECK((all.tp == 2 && all.pp == 2 && all.dp == 2 && all.sp));
  // 12 heads on 8 ranks.
  CHECK_FALSE(row_named(rows, "tp").figures);
  CHECK(row_named(rows, "tp").rule == "heads");
  CHECK(std::ranges::none_of(rows, [](const StrategyRow& row) {
    return row.strategy.name.find("ep") != std::string::npos;
  }));
  // ZeRO divides state that every replica holds without it.
  CHECK(row_named(rows, "dp + ZeRO-1").figures->step.peak_memory_bytes <
        row_named(rows, "dp").figures->step.peak_memory_bytes * 1.0001);

  const auto fastest = fastest_of(rows);
  REQUIRE(fastest);
  const PlanFigures& any = *row_named(rows, "any").figures;
  const PlanFigures& best = *rows[*fastest].figures;
  CHECK(any.step.step_time_s <= best.step.step_time_s + told_apart_s(any, best));
}

TEST_CASE("Experts are listed for models that have some", "[planner][scaling]") {
  SearchRequest request = gpt2_on(8);
  const std::size_t dense = textbook_strategies(request).size();
  request.model = models::load_preset("mixtral-8x7b");
  CHECK(textbook_strategies(request).size() == dense + 3);
}

TEST_CASE("What lacks memory is shown with what it lacks", "[planner][scaling]") {
  SearchRequest request = gpt2_on(2);
  request.model = models::load_preset("llama3-8b");
  const auto rows = compare_strategies(request, serial(), {});
  const StrategyRow& dp = row_named(rows, "dp");
  REQUIRE(dp.figures);
  CHECK_FALSE(dp.fits);
  CHECK(dp.figures->step.peak_memory_bytes > dp.figures->step.capacity_bytes * 0.96);
}

}  // namespace meshplan::planner
