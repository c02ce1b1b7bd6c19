// No false alarm: random plans of the sizes that users run, on up to thousands of ranks, agree with
// one rank. Prints the counts. How many: MESHPLAN_RANDOM_PLANS, else a few.
//   MESHPLAN_RANDOM_PLANS=100 tests/tcp_ranks.sh 8 build/release/tests/certify_random_mpi_test
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <set>

#include "plan/techniques.hpp"
#include "program/certificate/twin.hpp"
#include "program/checks/check.hpp"
#include "runtime/certify/certify.hpp"
#include "runtime/parity/parity_job.hpp"
#include "sim/random_plans.hpp"

namespace meshplan::test {
namespace {

constexpr std::uint64_t kSeed = 20;
constexpr int kFew = 10;
constexpr int kShrunk = 300;

int plans_to_certify() {
  const char* count = std::getenv("MESHPLAN_RANDOM_PLANS");
  return count == nullptr ? kFew : std::atoi(count);
}

/// Products included, and attention.
models::ModuleSet whole_modules(const models::ModelSpec& model) {
  using models::Module;
  models::ModuleSet modules{Module::Norms, Module::Attention, Module::Mlp};
  if (model.moe) modules.add(Module::Moe);
  if (model.mla) modules.add(Module::MlaUpProj);
  return modules;
}

/// With what the estimator's random plans lack.
Plan random_plan(testing::Random& random) {
  while (true) {
    Plan plan = sim::random_plan(random).plan;
    if (random.one_in(6)) {
      const bool int8 = random.one_in(2);
      plan.compression = {
          .kind = int8 ? program::CompressionKind::Int8 : program::CompressionKind::TopK,
          .ratio = 0.1};
    }
    if (random.one_in(4)) plan.rank_order = "dp-cp-ep-tp-pp";
    if (plan.recompute.kind == program::RecomputeKind::Selective && random.one_in(2))
      plan.recompute.modules = whole_modules(plan.model);
    if (plan.workload.documents.packed && random.one_in(2))
      plan.max_tokens_per_rank = plan.workload.seq_len / plan.parallel.cp + 128;
    if (program::check(plan).empty()) return plan;
  }
}

}  // namespace

TEST_CASE("random plans shrink to twins that have all of their techniques", "[certify]") {
  testing::Random random(kSeed);
  std::set<std::string> seen, uncovered;
  std::size_t twins = 0, most = 0;
  for (int i = 0; i < kShrunk; ++i) {
    const Plan plan = random_plan(random);
    const program::TwinSet set = program::twins_of(plan, program::TwinPrecision::Exact);
    INFO(plan.model.name << " " << to_string(plan.parallel));
    REQUIRE(!set.twins.empty());
    for (const program::Twin& twin : set.twins) {
      CHECK(twin.plan.parallel.world_size() <= program::kMostTwinRanks);
      CHECK(program::check(twin.plan).empty());
      seen.insert(twin.techniques.begin(), twin.techniques.end());
    }
    for (const std::string& name : set.uncovered)
      uncovered.insert(fmt::format("{} ({}, layers [{}]{})", name, to_string(plan.parallel),
                                   fmt::join(program::resolved_layers_per_stage(plan), " "),
                                   plan.count_ends_as_layers ? " with ends" : ""));
    twins += set.twins.size();
    most = std::max(most, set.twins.size());
  }
  std::set<std::string> never;
  for (const program::Technique& technique : program::techniques())
    if (!seen.contains(technique.name)) never.insert(technique.name);
  CHECK(never == std::set<std::string>{"bf16", "fp16", "fp8"});
  CHECK(uncovered == std::set<std::string>{});
  if (ParityJob{.steps = 0}.world->rank() == 0)
    std::cout << fmt::format("{} random plans: {} twins, at most {} of one plan\n", kShrunk, twins,
                             most);
}

TEST_CASE("random plans agree with one rank", "[certify]") {
  ParityJob job{.steps = 0};
  testing::Random random(kSeed);
  const int count = plans_to_certify();
  const bool leads = job.world->rank() == 0;
  std::size_t twins = 0, figures = 0;
  int alarms = 0, second_seeds = 0;
  double furthest = 0;
  for (int i = 0; i < count; ++i) {
    const Plan plan = random_plan(random);
    const program::TwinSet set = program::twins_of(plan, program::TwinPrecision::Exact);
    const std::vector<program::TwinResult> results =
        runtime::certify(set.twins, {*job.world, *job.backend}, [](std::size_t) {});
    if (!leads) continue;
    bool alarm = false;
    for (const program::TwinResult& result : results) {
      const program::Compared* most = program::furthest(result.compared);
      REQUIRE(most != nullptr);
      furthest = std::max(furthest, most->share());
      second_seeds += result.seeds.size() > 1 ? 1 : 0;
      figures += result.compared.size();
      ++twins;
      alarm = alarm || !result.agrees();
      INFO(plan.model.name << " " << to_string(plan.parallel) << " as "
                           << to_string(result.plan.parallel) << ": "
                           << fmt::format("{}", fmt::join(result.techniques, " ")) << ": "
                           << most->what << " of " << most->name << " is " << most->difference
                           << ", tolerance " << most->tolerance);
      CHECK(result.agrees());
    }
    alarms += alarm ? 1 : 0;
    if (count > kFew)
      std::cout << fmt::format("{:>4} {:<20} {:<36} {} twins, furthest so far {:.2f}{}\n", i + 1,
                               plan.model.name, to_string(plan.parallel), results.size(), furthest,
                               alarm ? "  FALSE ALARM" : "")
                << std::flush;
  }
  if (leads)
    std::cout << fmt::format(
        "{} random plans, {} twins, {} figures: {} false alarms, {} second seeds, furthest {:.2f} "
        "of its tolerance\n",
        count, twins, figures, alarms, second_seeds, furthest);
}

}  // namespace meshplan::test
