// Programs of random plans read what they mean to, whatever they combine: family of the model,
// frozen parameters, recompute and its modules, schedule, what lies on the host. More of them:
//   MESHPLAN_RANDOM_PLANS=5000 build/release/tests/test_sim "[random-programs]"
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <set>

#include "checks/program_errors.hpp"
#include "checks/provenance.hpp"
#include "plan/techniques.hpp"
#include "program/certificate/twin.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"
#include "sim/random_training_plans.hpp"
#include "support/cases.hpp"

namespace meshplan::sim {
namespace {

using program::Pass;
using program::Plan;
using program::Program;

constexpr int kPlans = 1500;
constexpr int kWholeEvery = 30;  // of these as they are, not only as twins
constexpr std::uint64_t kProgramSeed = 34;

int plans_to_lower() {
  const char* count = std::getenv("MESHPLAN_RANDOM_PLANS");
  return count == nullptr ? testing::random_cases(kPlans) : std::atoi(count);
}

struct Counts {
  std::size_t plans = 0, programs = 0, instances = 0, wrong = 0;
};

/// Of training, of evaluating, and with layers merged as the simulator plays them.
void check_programs(const Plan& plan, Counts& counts) {
  const std::vector<Program> training = lower_all(plan);
  std::vector<std::string> errors = program_errors(training);
  for (const std::string& error : program_errors(lower_all(plan, Pass::ForwardOnly)))
    errors.push_back("forward only: " + error);
  if (const auto merged = lower_merged(plan, {}))
    for (const Program& program : *merged)
      if (const auto error = provenance_error(program)) errors.push_back("merged: " + *error);
  INFO(plan.model.name << " " << to_string(plan.parallel) << ", frozen "
                       << fmt::format("{}", fmt::join(plan.frozen, ",")) << ", recompute "
                       << recompute_name(plan.recompute) << "\n"
                       << (errors.empty() ? "" : to_json(plan)));
  CHECK(errors == std::vector<std::string>{});
  for (const Program& program : training) counts.instances += program.instances.size();
  counts.programs += training.size();
  counts.wrong += errors.empty() ? 0 : 1;
  ++counts.plans;
}

}  // namespace

TEST_CASE("programs of random plans read what their operands name", "[sim][random-programs]") {
  testing::Random random(kProgramSeed);
  Counts counts;
  std::set<std::string> seen;
  const int plans = plans_to_lower();
  for (int i = 0; i < std::max(plans, kPlans); ++i) {
    const Plan plan = random_training_plan(
        random, {program::Precision::BF16, program::Precision::F32, program::Precision::Fp8});
    if (i < plans && i % kWholeEvery == 0) check_programs(plan, counts);
    for (const program::Twin& twin : program::twins_of(plan, program::TwinPrecision::Own).twins) {
      const std::size_t before = seen.size();
      seen.insert(twin.techniques.begin(), twin.techniques.end());
      // Of more plans than are to be lowered those with a technique that none before has.
      if (i < plans || seen.size() > before) check_programs(twin.plan, counts);
    }
  }
  std::cout << fmt::format("{} plans, {} programs, {} operations: {} wrong\n", counts.plans,
                           counts.programs, counts.instances, counts.wrong);
  for (const program::Technique& technique : program::techniques()) {
    INFO(technique.name);
    if (technique.name != "fp16") CHECK(seen.contains(technique.name));
  }
}

}  // namespace meshplan::sim
