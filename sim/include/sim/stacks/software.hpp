// Plans on other training stacks: what one can be asked for, and how it would run a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/checks/check.hpp"
#include "program/plan/stack.hpp"

namespace meshplan::sim {

struct Cluster;
struct ExecutionProfile;
struct RunPrediction;
struct StepPrediction;
struct StepParts;
struct TrainingRun;

using program::kOwnSoftware;

/// What the plan asks for that its stack does not do, or whose time this version cannot tell.
std::vector<program::Violation> software_violations(const program::Plan& plan);

/// Of these what the stack does not do; the rest is only not priced.
std::vector<program::Violation> feature_violations(const program::Plan& plan);

/// Does selective recompute that names no modules compute anything again? Where a stack recomputes
/// the scores of attention and these stay on chip there is nothing to.
bool recomputes_selectively(const program::Stack& stack, const models::ModelSpec& model);

/// The ZeRO stage that a run of this stack has unless it says otherwise.
int default_zero_stage(const ExecutionProfile& software);

/// The plan as its stack would run it: with all the overlap that this has unless the settings say
/// otherwise; how it exchanges keys and what it recomputes selectively are the stack's.
/// @param cluster  key of a data sheet, for which PreparedRun can be given another cluster
/// @throws ConfigError for an unknown stack, with the nearest known one
TrainingRun run_of(const program::Plan& plan, std::string cluster);

/// The dispatcher that a stack states, or leaves open and can have: HybridEP where NVLink joins
/// nodes, else DeepEP. None of models without experts, of stacks without a fused one, and beside
/// fixed capacities.
std::optional<program::ExpertDispatch> fused_dispatch_of(const program::Stack& stack,
                                                         const models::ModelSpec& model,
                                                         const Cluster& cluster);

/// A predicted run in the categories of a plan's step.
/// @param plan  that the run is of
StepPrediction step_of(const RunPrediction& run, const program::Plan& plan, const Cluster& cluster);

/// Parts of a predicted run, of its busiest stage: what that computes beyond an even share of the
/// model's FLOPs is in StepPart::Beyond.
/// @param sends  PreparedRun::exposed_sends
StepParts parts_of(const RunPrediction& run, double sends, const program::Plan& plan,
                   const Cluster& cluster);

}  // namespace meshplan::sim
