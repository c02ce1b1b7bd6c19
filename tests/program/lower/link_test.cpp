// Every pair of operations that touch the same bytes on different lanes must be ordered. The
// checker here knows nothing of link(): it compares all pairs of footprints with the transitive
// closure of lane order and waits.
#include "lower/link.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "checks/races.hpp"
#include "core/index.hpp"
#include "program/lower/lower.hpp"
#include "program/memory/address.hpp"
#include "program/plans.hpp"
#include "support/posting_waits.hpp"

namespace meshplan::program {
namespace {

using test::varied_plans;

bool overlap(const Address& a, const Address& b) {
  return a.region == b.region && a.slot == b.slot && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

bool any_overlap(const std::vector<Address>& a, const std::vector<Address>& b) {
  for (const Address& x : a)
    for (const Address& y : b)
      if (overlap(x, y)) return true;
  return false;
}

/// before[i][j]: instance j must have ended when i starts.
std::vector<std::vector<bool>> closure(const Program& program) {
  const std::size_t count = program.instances.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count, false));
  std::vector<int> last_of_lane(kNumLanes, -1);
  for (std::size_t i = 0; i < count; ++i) {
    int& previous =
        last_of_lane[static_cast<std::size_t>(operation_of(program, program.instances[i]).lane)];
    const auto waits = waits_of(program, program.instances[i]);
    std::vector<int> direct(waits.begin(), waits.end());
    if (previous >= 0) direct.push_back(previous);
    for (const int earlier : direct) {
      before[i][at(earlier)] = true;
      for (std::size_t j = 0; j < at(earlier); ++j)
        if (before[at(earlier)][j]) before[i][j] = true;
    }
    previous = static_cast<int>(i);
  }
  return before;
}

/// Pairs (later, earlier) that conflict and are not ordered.
std::vector<std::pair<std::size_t, std::size_t>> races(const Program& program) {
  std::vector<Footprint> touched;
  for (const OperationInstance& instance : program.instances)
    touched.push_back(footprint(program, instance));
  const auto before = closure(program);
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < touched.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!before[i][j] && (any_overlap(touched[i].writes, touched[j].writes) ||
                            any_overlap(touched[i].writes, touched[j].reads) ||
                            any_overlap(touched[i].reads, touched[j].writes)))
        found.emplace_back(i, j);
  return found;
}

int count_waits(const Program& program) {
  int count = 0;
  for (const OperationInstance& instance : program.instances) count += instance.num_waits;
  return count;
}

}  // namespace

TEST_CASE("Operations on different lanes that touch the same bytes are ordered",
          "[program][link]") {
  for (const Plan& plan : varied_plans())
    for (const Program& program : lower_all(plan)) {
      INFO(test::describe(plan) << " stage " << program.role.stage);
      const auto found = races(program);
      if (!found.empty())
        UNSCOPED_INFO("first race: "
                      << operation_of(program, program.instances[found.front().second]).name << ", "
                      << operation_of(program, program.instances[found.front().first]).name);
      CHECK(found.empty());
      CHECK(race_error(program) == std::nullopt);
    }
}

TEST_CASE("Chunks and split backwards race no more than one chunk does", "[program][link]") {
  for (Plan plan : test::scheduled_plans()) {
    if (plan.parallel.pp > 2 || plan.model.name == "gemma-style") continue;
    plan.workload.global_batch_size = 4 * plan.parallel.dp;
    plan.layers_per_stage.clear();
    plan.model.num_layers = plan.parallel.pp * plan.parallel.vpp;
    for (const Program& program : lower_all(plan)) {
      INFO(test::describe(plan) << " stage " << program.role.stage);
      CHECK(races(program).empty());
    }
  }
}

TEST_CASE("Forward-only programs are ordered as well", "[program][link]") {
  for (const ParallelConfig& mesh :
       {ParallelConfig{.tp = 2, .sp = true}, ParallelConfig{.tp = 2, .pp = 2}})
    for (const Program& program :
         lower_all(test::make_plan(test::llama_style(), mesh), Pass::ForwardOnly))
      CHECK(races(program).empty());
}

// But for one of a receive, which decides when it is posted: when the task before its own begins.
TEST_CASE("No wait is redundant: without any one of them two operations race", "[program][link]") {
  Plan plan = test::make_plan(test::gpt2_style(), {.tp = 2, .pp = 2, .dp = 2, .sp = true}, 3);
  plan.model.num_layers = 2;
  for (Program& program : lower_all(plan)) {
    REQUIRE(count_waits(program) > 50);
    for (OperationInstance& instance : program.instances)
      for (int i = 0; i < instance.num_waits; ++i) {
        const int earlier = waits_of(program, instance)[at(i)];
        const OperationInstance& awaited = program.instances[at(earlier)];
        if (testing::decides_posting(program, instance, earlier)) continue;
        testing::drop_wait(program, instance, i);
        INFO("stage " << program.role.stage << ": " << operation_of(program, instance).name
                      << " waits for " << operation_of(program, awaited).name);
        CHECK_FALSE(races(program).empty());
        CHECK(race_error(program).has_value());
        testing::restore_wait(program, instance, i);
      }
  }
}

TEST_CASE("Waits point backwards, to other lanes, and one lane is waited for once",
          "[program][link]") {
  for (const Plan& plan : varied_plans())
    for (const Program& program : lower_all(plan))
      for (std::size_t i = 0; i < program.instances.size(); ++i) {
        const OperationInstance& instance = program.instances[i];
        std::vector<Lane> lanes = {operation_of(program, instance).lane};
        for (const int earlier : waits_of(program, instance)) {
          REQUIRE(at(earlier) < i);
          const Lane lane = operation_of(program, program.instances[at(earlier)]).lane;
          REQUIRE(std::ranges::find(lanes, lane) == lanes.end());
          lanes.push_back(lane);
        }
      }
}

TEST_CASE("Linking again changes nothing", "[program][link]") {
  Program program = lower(test::make_plan(test::llama_style(), {.tp = 2, .pp = 2, .sp = true}), 0);
  const Program linked = program;
  link(program);
  for (std::size_t i = 0; i < program.instances.size(); ++i)
    REQUIRE(std::ranges::equal(waits_of(program, program.instances[i]),
                               waits_of(linked, linked.instances[i])));
}

TEST_CASE("On one rank only the load of the batch is waited for", "[program][link]") {
  const Program program = lower(test::make_plan(test::llama_style()), 0);
  // Lanes: the load runs on the host, everything else on the compute lane.
  CHECK(count_waits(program) == 1);
}

}  // namespace meshplan::program
