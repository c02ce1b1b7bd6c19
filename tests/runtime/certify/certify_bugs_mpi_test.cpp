// Bugs planted into the lowered programs of plans of the sizes that users run: a certificate must
// see each of them, at least one of every technique. Prints what caught each:
//   tests/tcp_ranks.sh 8 build/release/tests/test_certify -# "[#certify_bugs_mpi_test]~[.]"
//   tests/tcp_ranks.sh 8 build/release/tests/test_certify -# "[#certify_bugs_mpi_test][.sweep]"
//   leaves out each operation
#include <algorithm>
#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <iostream>
#include <map>
#include <set>

#include "certify/certify_twin.hpp"
#include "plan/techniques.hpp"
#include "program/certificate/large_plans.hpp"
#include "runtime/certify/planted_bugs.hpp"
#include "runtime/parity/parity_job.hpp"

namespace meshplan::test::certify_bugs {
namespace {

using program::Operation;
using program::OperationInstance;
using program::Program;
using program::TwinPrecision;
using program::test::large_plan;

constexpr std::uint64_t kSeed = 7;

struct BugJob : ParityJob {
  BugJob() : ParityJob{.steps = 0} {}

  bool agrees(const program::Twin& twin, const Mutation& mutate) {
    const program::TwinResult result =
        runtime::certify_twin(twin, kSeed, {*world, device, *backend}, groups_, mutate);
    std::int32_t agrees = result.agrees() ? 1 : 0;
    world->broadcast({&agrees, 1, DType::I32}, 0).wait();
    return agrees != 0;
  }

  /// The same without the bug, once for each plan and technique.
  const std::string& certify_right(const PlantedBug& bug) {
    const auto [entry, fresh] = right_.try_emplace(program::plan_hash(bug.plan) + bug.technique);
    if (fresh) entry->second = certify(bug, {});
    return entry->second;
  }

  /// Certifies twins of the plan that have the technique, until one differs.
  /// @returns on rank 0 what differs most; empty if all agree
  std::string certify(const PlantedBug& bug, const Mutation& mutate) {
    bool ran = false;
    for (const program::Twin& twin : program::twins_of(bug.plan, bug.precision).twins) {
      if (std::ranges::find(twin.techniques, bug.technique) == twin.techniques.end()) continue;
      ran = true;
      const program::TwinResult result =
          runtime::certify_twin(twin, kSeed, {*world, device, *backend}, groups_, mutate);
      std::int32_t differs = result.agrees() ? 0 : 1;
      world->broadcast({&differs, 1, DType::I32}, 0).wait();
      if (differs == 0) continue;
      const program::Compared* most = program::furthest(result.compared);
      return most == nullptr ? "seen by rank 0"
                             : fmt::format("{} of {}: {:.1e}, tolerance {:.1e}", most->what,
                                           most->name, most->difference, most->tolerance);
    }
    INFO("no twin has " << bug.technique);
    REQUIRE(ran);
    return {};
  }

 private:
  runtime::TwinGroups groups_{*world};
  std::map<std::string, std::string> right_;
};

}  // namespace

TEST_CASE("each planted bug makes a certificate differ, and nothing else does", "[certify]") {
  BugJob job;
  const std::vector<PlantedBug> bugs = planted_bugs();
  int caught = 0;
  for (const PlantedBug& bug : bugs) {
    INFO(bug.technique << ": " << bug.what);
    const std::string right = job.certify_right(bug);
    const std::string wrong = job.certify(bug, bug.mutate);
    CHECK(right.empty());
    CHECK_FALSE(wrong.empty());
    if (!wrong.empty()) ++caught;
    if (job.world->rank() == 0)
      std::cout << fmt::format("{:<28} {:<50} {}{}\n", bug.technique, bug.what,
                               wrong.empty() ? "NOT CAUGHT" : wrong,
                               right.empty() ? "" : "   FALSE ALARM without: " + right)
                << std::flush;
  }
  if (job.world->rank() == 0)
    std::cout << fmt::format("{} of {} planted bugs caught\n", caught, bugs.size());
}

namespace {

/// Nothing to compute without them: sizes of exchanges, and messages that someone waits for.
bool is_needed_to_run(const Operation& operation) {
  return std::holds_alternative<program::PeerOp>(operation.work) ||
         operation.name == "load_batch" || operation.name == "router" ||
         operation.name.starts_with("dispatch.choices") ||
         operation.name.starts_with("dispatch.plan") ||
         operation.name.starts_with("dispatch.counts") ||
         operation.name.starts_with("dispatch.sizes");
}

/// Names of what the programs of a plan do, without the place in the flat parameters.
std::set<std::string> operations_of(const Plan& plan) {
  std::set<std::string> names;
  for (const Program& program : program::lower_all(plan))
    for (const OperationInstance& instance : program.instances) {
      const Operation& operation = program::operation_of(program, instance);
      if (!is_needed_to_run(operation)) names.insert(operation.name);
    }
  return names;
}

/// Plans that have most kinds of operations among them.
std::vector<Plan> swept_plans() {
  std::vector<Plan> plans = {
      large_plan("llama3-8b", {.tp = 4, .pp = 2, .dp = 2, .sp = true}),
      large_plan("llama3-8b", {.cp = 4, .dp = 2}),
      large_plan("mixtral-8x7b", {.tp = 2, .cp = 2, .dp = 4, .ep = 2, .etp = 2, .sp = true}),
      large_plan("deepseek-v3", {.tp = 2, .dp = 4, .ep = 4, .sp = true})};
  plans[1].context_parallel = ContextMethod::Ring;
  plans[1].zero_stage = 3;
  plans[3].zero_stage = 1;
  plans[3].recompute.kind = RecomputeKind::Selective;
  return plans;
}

/// Clears memory between parameters, which nobody reads.
bool is_idle(const std::string& operation) {
  return operation.ends_with(".clear");
}

Mutation without_exactly(const std::string& name) {
  return without([name](const auto& /*instance*/, const Operation& operation) {
    return operation.name == name;
  });
}

}  // namespace

TEST_CASE("any operation left out is seen", "[certify][.sweep]") {
  BugJob job;
  int caught = 0, all = 0;
  for (const Plan& plan : swept_plans()) {
    const program::Twin twin = program::twins_of(plan, TwinPrecision::Exact).twins.front();
    for (const std::string& name : operations_of(twin.plan)) {
      ++all;
      const bool agrees = job.agrees(twin, without_exactly(name));
      INFO(plan.model.name << " " << to_string(twin.plan.parallel) << ": " << name);
      CHECK((!agrees || is_idle(name)));
      if (!agrees) ++caught;
    }
  }
  if (job.world->rank() == 0)
    std::cout << fmt::format("{} of {} operations left out are seen\n", caught, all);
}

TEST_CASE("every technique has a bug that is planted", "[certify]") {
  std::set<std::string> planted;
  for (const PlantedBug& bug : planted_bugs()) planted.insert(bug.technique);
  for (const program::Technique& technique : program::techniques()) {
    INFO(technique.name);
    CHECK(planted.contains(technique.name));
  }
}

}  // namespace meshplan::test::certify_bugs
