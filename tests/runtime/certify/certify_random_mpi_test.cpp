// No false alarm: random plans of the sizes that users run, on up to thousands of ranks, agree with
// one rank. Prints the counts. How many: MESHPLAN_RANDOM_PLANS, else a few.
//   MESHPLAN_RANDOM_PLANS=100 tests/tcp_ranks.sh 8 build/release/tests/test_certify
//                             -# "[#certify_random_mpi_test]"
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <set>

#include "plan/techniques.hpp"
#include "program/certificate/twin.hpp"
#include "program/checks/check.hpp"
#include "program/plan_file/plan_file.hpp"
#include "runtime/certify/certify.hpp"
#include "runtime/parity/parity_job.hpp"
#include "sim/random_training_plans.hpp"

namespace meshplan::test::certify_random {
namespace {

constexpr int kFew = 10;
constexpr int kShrunk = 1000;  // the rarest technique is in one of some 400
constexpr double kFar = 0.5;   // of a tolerance: printed

int plans_to_certify() {
  const char* count = std::getenv("MESHPLAN_RANDOM_PLANS");
  return count == nullptr ? kFew : std::atoi(count);
}

/// MESHPLAN_RANDOM_SEED: other plans.
std::uint64_t seed() {
  const char* number = std::getenv("MESHPLAN_RANDOM_SEED");
  return number == nullptr ? 20 : std::strtoull(number, nullptr, 10);
}

}  // namespace

TEST_CASE("random plans shrink to twins that have all of their techniques", "[certify]") {
  testing::Random random(seed());
  std::set<std::string> seen, uncovered;
  std::size_t twins = 0, most = 0;
  for (int i = 0; i < kShrunk; ++i) {
    const Plan plan = sim::random_training_plan(random);
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
  CHECK(never == std::set<std::string>{"bf16", "fp16", "fp8", "fp8-dispatch"});
  CHECK(uncovered == std::set<std::string>{});
  if (ParityJob{.steps = 0}.world->rank() == 0)
    std::cout << fmt::format("{} random plans: {} twins, at most {} of one plan\n", kShrunk, twins,
                             most);
}

namespace {

/// What certificates of many plans have shown.
struct Tally {
  int plans = 0, alarms = 0, second_seeds = 0;
  std::size_t twins = 0, figures = 0;
  double furthest = 0;

  /// @returns does any twin differ?
  bool add(const Plan& plan, const std::vector<program::TwinResult>& results) {
    bool alarm = false;
    for (const program::TwinResult& result : results) {
      const program::Compared* most = program::furthest(result.compared);
      REQUIRE(most != nullptr);
      furthest = std::max(furthest, most->share());
      second_seeds += result.seeds.size() > 1 ? 1 : 0;
      figures += result.compared.size();
      ++twins;
      alarm = alarm || !result.agrees();
      if (most->share() > kFar)
        std::cout << fmt::format("{} {} as {}: {} of {} is {:.2e}, tolerance {:.2e}\n",
                                 program::precision_name(result.plan.workload), plan.model.name,
                                 to_string(result.plan.parallel), most->what, most->name,
                                 most->difference, most->tolerance);
      INFO(to_json(plan));
      INFO(plan.model.name << " " << to_string(plan.parallel) << " as "
                           << to_string(result.plan.parallel) << ": "
                           << fmt::format("{}", fmt::join(result.techniques, " ")) << ": "
                           << most->what << " of " << most->name << " is " << most->difference
                           << ", tolerance " << most->tolerance);
      CHECK(result.agrees());
    }
    ++plans;
    alarms += alarm ? 1 : 0;
    return alarm;
  }
  void print(std::string_view what) const {
    std::cout << fmt::format(
        "{} random plans {}, {} twins, {} figures: {} false alarms, {} second seeds, furthest "
        "{:.2f} of its tolerance\n",
        plans, what, twins, figures, alarms, second_seeds, furthest);
  }
};

/// What the one rank computes in, as certify() decides by whose kernels it has.
enum class OneRank { SamePrecision, InFp32 };

void certify_random_plans(std::string_view what, program::TwinPrecision precision, int count,
                          const std::vector<program::Precision>& precisions,
                          OneRank one_rank = OneRank::SamePrecision) {
  ParityJob job{.steps = 0};
  const auto other = kernels::make_cpu_backend(1);
  runtime::HostDevice device(one_rank == OneRank::InFp32 ? *other : *job.backend);
  testing::Random random(seed());
  const bool leads = job.world->rank() == 0;
  Tally tally;
  for (int i = 0; i < count; ++i) {
    const Plan plan = sim::random_training_plan(random, precisions);
    const program::TwinSet set = program::twins_of(plan, precision);
    const std::vector<program::TwinResult> results =
        runtime::certify(set.twins, {*job.world, device, *job.backend}, [](std::size_t) {});
    if (!leads) continue;
    const double before = tally.furthest;
    const bool alarm = tally.add(plan, results);
    if (count > kFew && (alarm || tally.furthest > before || (i + 1) % 100 == 0))
      std::cout << fmt::format("{:>4} {:<20} {:<36} {:<5} {} twins, furthest so far {:.2f}{}\n",
                               i + 1, plan.model.name, to_string(plan.parallel),
                               program::precision_name(plan.workload), results.size(),
                               tally.furthest, alarm ? "  FALSE ALARM" : "")
                << std::flush;
  }
  if (leads) tally.print(what);
}

}  // namespace

TEST_CASE("random plans agree with one rank", "[certify]") {
  certify_random_plans("in fp32", program::TwinPrecision::Exact, plans_to_certify(),
                       {program::Precision::BF16});
}

TEST_CASE("random plans agree with one rank in their own precision", "[certify][own]") {
  certify_random_plans(
      "in their own precision", program::TwinPrecision::Own, plans_to_certify(),
      {program::Precision::BF16, program::Precision::F16, program::Precision::Fp8});
}

TEST_CASE("random plans in their own precision agree with one rank in fp32", "[certify][own]") {
  certify_random_plans("in their own precision beside fp32", program::TwinPrecision::Own,
                       plans_to_certify(),
                       {program::Precision::BF16, program::Precision::F16, program::Precision::Fp8},
                       OneRank::InFp32);
}

}  // namespace meshplan::test::certify_random
