#include "planner/check/check.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "check/doctor.hpp"
#include "core/error.hpp"
#include "program/checks/check.hpp"
#include "sim/stacks/cluster_preset.hpp"
#include "sim/stacks/software.hpp"
#include "sim/stacks/stack_memory.hpp"

namespace meshplan::planner {
namespace {

/// Whatever runs the plan, nothing can be computed beyond these.
constexpr std::array<std::string_view, 5> kRulesOfSizes = {"positive", "world", "tokens", "tasks",
                                                           "elements"};

std::vector<StageNeed> needs_of(const program::Plan& plan, const sim::Cluster& cluster) {
  std::vector<StageNeed> needs;
  if (plan.stack.is_own()) {
    for (const sim::StageMemory& stage : sim::memory_of(plan, cluster).stages)
      needs.push_back({stage.need(), stage.stage});
    return needs;
  }
  const sim::PreparedRun run(sim::run_of(plan, cluster.name), sim::data_sheet_of(cluster));
  for (const sim::RunMemory& stage : run.memory_of_stages())
    needs.push_back({stage.need(), stage.stage, sim::shown_memory(stage)});
  return needs;
}

/// What keeps this version from telling time and memory of a plan that the stack may well start.
std::string untold(const program::Plan& plan) {
  const std::vector<program::Violation> violations =
      plan.stack.is_own() ? program::check(plan) : sim::software_violations(plan);
  return violations.empty() ? std::string() : violations.front().message;
}

}  // namespace

bool CheckResult::valid() const {
  return std::ranges::none_of(judgements, &Judgement::refuses);
}

const StageNeed* CheckResult::fullest() const {
  const auto stage = std::ranges::min_element(stages, {}, &StageNeed::room_bytes);
  return stage == stages.end() ? nullptr : &*stage;
}

bool CheckResult::fits() const {
  return std::ranges::all_of(stages, &StageNeed::fits);
}

void require_sizes(const program::Plan& plan) {
  for (const program::Violation& violation : program::check(plan))
    if (std::ranges::find(kRulesOfSizes, violation.rule) != kRulesOfSizes.end())
      throw ConfigError(violation.message);
}

CheckResult check_plan(const CheckRequest& request) {
  const RuleSet& rules = rules_for(request.target);
  require_sizes(request.plan);
  CheckResult result;
  result.judgements = judge(rules, request.plan, request.beside);
  if (!result.valid())
    result.not_predicted = "a rule refuses the plan";
  else if (!request.cluster)
    result.not_predicted = request.no_cluster;
  else if (request.cluster->num_ranks() != request.plan.parallel.world_size())
    result.not_predicted =
        fmt::format("the plan has {} ranks, and its cluster {}", request.plan.parallel.world_size(),
                    request.cluster->num_ranks());
  else
    result.not_predicted = untold(request.plan);
  if (!result.not_predicted.empty()) return result;
  try {
    result.stages = needs_of(request.plan, *request.cluster);
    result.other_releases =
        sim::other_verdicts(request.plan, *request.cluster,
                            sim::memory_margin(request.plan.stack, request.memory_reserve));
    Doctor doctor(request, rules);
    result.step = doctor.estimate(request.plan);
    if (result.fits())
      result.faster = doctor.faster(*result.step);
    else
      result.fitting = doctor.fitting(*result.step);
  } catch (const ConfigError& error) {  // this version cannot lower or price it
    result = {.judgements = std::move(result.judgements),
              .stages = {},
              .step = {},
              .not_predicted = error.what(),
              .other_releases = {},
              .fitting = {},
              .faster = {}};
  }
  return result;
}

}  // namespace meshplan::planner
