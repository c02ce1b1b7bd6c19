// A plan with some of its choices changed, as "tp=8,pp=2" asks for, and what follows from them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/checks/check.hpp"
#include "program/plan/plan.hpp"

namespace meshplan::planner {

/// A choice of a plan: "tp", "4", "8".
struct ChoiceChange {
  std::string name;
  std::string before;
  std::string after;
  bool operator==(const ChoiceChange&) const = default;
};

struct ChangedChoices {
  program::Plan plan;                        // without prediction
  std::vector<ChoiceChange> asked;           // what the text changes; without what it only repeats
  std::vector<ChoiceChange> followed;        // what could not stay as it was
  std::optional<program::Violation> broken;  // degrees that cannot use the plan's ranks
};

/// Changes choices of a plan. All of its ranks stay in use: dp follows from the other degrees
/// unless the text gives it. What the plan has besides stays as long as it can: chunks and
/// schedules that the number of stages allows, divisions of layers of the same length, ZeRO where
/// anything is divided, sp where tp > 1 (and with experts always there); a gradient bucket of the
/// default size stays one.
/// @param changes  with commas between them: tp, pp, dp, cp, ep, etp, vpp, mbs = 2;
/// zero = 0..3; sp, offload_optimizer, offload_parameters, deterministic, ends_as_layers,
/// expert_dispatch_fp8, uneven_batch = on or off ("sp", "no-sp"); recompute, schedule,
/// context_parallel, compress = a name; recompute_layers, offload_activations, zero_shard_group,
/// expert_node_ranks, bucket_bytes = a number; layers_per_stage = 9,10,11; order = tp-cp-ep-dp-pp.
/// A dash may stand for an underscore.
/// @throws ConfigError for a choice or value that there is not, with the nearest one
ChangedChoices change_choices(const program::Plan& plan, std::string_view changes);

/// Names of all choices, as "changes" may have them.
std::vector<std::string> choice_names();

}  // namespace meshplan::planner
