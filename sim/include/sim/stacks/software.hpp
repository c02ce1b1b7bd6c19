// Plans on other training stacks: what one can be asked for, and how it would run a plan.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/checks/check.hpp"

namespace meshplan::sim {

struct Cluster;
struct ExecutionProfile;
struct RunPrediction;
struct StepParts;
struct StepPrediction;
struct TrainingRun;

/// The stack whose runs are programs of ours: planned and priced operation by operation.
inline constexpr std::string_view kOwnSoftware = "meshplan";

/// What the plan asks for that the stack does not do, or whose time this version cannot tell.
std::vector<program::Violation> software_violations(const program::Plan& plan,
                                                    const ExecutionProfile& software);

/// Of these what the stack does not do; the rest is only not priced.
std::vector<program::Violation> feature_violations(const program::Plan& plan,
                                                   const ExecutionProfile& software);

/// The ZeRO stage that a run of this stack has unless it says otherwise.
int default_zero_stage(const ExecutionProfile& software);

/// What somebody's launch script asks of a stack beyond a plan; absent: as the stack does it.
struct RunSettings {
  std::optional<bool> overlap_dp;
  std::optional<bool> overlap_tp;
  std::optional<bool> overlap_p2p;
  std::optional<bool> fp32_gradients;  // accumulated and summed in fp32
  std::optional<bool> overlap_ep;      // the experts' all-to-all
  bool operator==(const RunSettings&) const = default;
};

/// The plan as that stack would run it: with all the overlap that it has unless the settings say
/// otherwise; how it exchanges keys and what it recomputes selectively are the stack's.
/// @param cluster  key of a data sheet, for which PreparedRun can be given another cluster
/// @throws ConfigError for an unknown stack, with the nearest known one
TrainingRun run_of(const program::Plan& plan, std::string cluster, std::string_view software,
                   const RunSettings& settings = {});

/// A predicted run in the categories of a plan's step.
/// @param plan  that the run is of
StepPrediction step_of(const RunPrediction& run, const program::Plan& plan, const Cluster& cluster);

/// Parts of a predicted run, of its busiest stage: what that computes beyond an even share of the
/// model's FLOPs is in StepPart::Beyond.
/// @param sends  PreparedRun::exposed_sends
StepParts parts_of(const RunPrediction& run, double sends, const program::Plan& plan,
                   const Cluster& cluster);

}  // namespace meshplan::sim
