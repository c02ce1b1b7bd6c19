#include "stacks/release_recipes.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "program/plan_file/stack_settings.hpp"
#include "sim/stacks/release.hpp"
#include "stacks/run_habits.hpp"

namespace meshplan::sim {

bool has_racks(const Cluster& cluster) {
  return !cluster.fabric.empty() &&
         cluster.fabric.front().ranks_per_group > cluster.devices_per_node;
}

namespace {

bool holds(const RecipePlace& where, const Cluster& cluster, const TrainingRun& run) {
  const bool racks = has_racks(cluster);
  return where.architecture.value_or(cluster.device.architecture) == cluster.device.architecture &&
         where.racks.value_or(racks) == racks &&
         where.experts.value_or(run.model.moe.has_value()) == run.model.moe.has_value() &&
         where.fused_dispatch.value_or(run.any_fused_dispatch) == run.any_fused_dispatch &&
         (where.precisions.empty() ||
          std::ranges::find(where.precisions, run.precision) != where.precisions.end());
}

/// Does the run state something that the recipe chooses otherwise? One fused dispatcher passes for
/// another.
bool contradicts(const program::StackSettings& chosen, const TrainingRun& stated) {
  const program::StackSettings& s = stated.settings;
  TrainingRun with_chosen = stated;
  with_chosen.settings = chosen;
  const bool fused = fused_dispatch(with_chosen);
  // Fused dispatchers know neither capacities nor their padding (Megatron-LM,
  // core/transformer/transformer_config.py).
  if (chosen.expert_dispatch && (fused ? is_on(s.token_drop) : fused_dispatch(stated))) return true;
  if (is_on(chosen.fused_experts) && s.grouped_experts == false) return true;
  program::StackSettings same_dispatch = chosen;
  if (fused && fused_dispatch(stated)) same_dispatch.expert_dispatch = s.expert_dispatch;
  return program::contradict(same_dispatch, s);
}

/// Between the nodes of a rack tokens go by HybridEP: DeepEP's kernels reach their peers inside a
/// node of eight (Megatron-Bridge, training/flex_dispatcher_backend.py).
void name_fused_dispatch(const Cluster& cluster, TrainingRun& run) {
  if (run.any_fused_dispatch && has_racks(cluster))
    run.settings.expert_dispatch = program::ExpertDispatch::HybridEp;
}

}  // namespace

std::vector<std::string> take_recipes(const Cluster& cluster, ExecutionProfile& profile,
                                      TrainingRun& run) {
  name_fused_dispatch(cluster, run);
  const SoftwareRelease software = parse_software(run.profile);
  if (!run.settings.recipes.value_or(software.release.has_value())) return {};
  const TrainingRun stated = run;
  const std::optional<Release> release =
      software.release ? Release::parse(*software.release) : std::nullopt;
  std::vector<std::string> chosen;
  for (const ReleaseRecipe& recipe : profile.releases.recipes) {
    const bool known = !release || Release::parse(recipe.since) <= release;
    if (!known || !holds(recipe.where, cluster, stated) || contradicts(recipe.settings, stated))
      continue;
    program::StackSettings kept = stated.settings;
    if (stated.any_fused_dispatch && recipe.settings.expert_dispatch) kept.expert_dispatch.reset();
    run.settings = merged(kept, merged(recipe.settings, run.settings));
    profile.flash = recipe.flash.value_or(profile.flash);
    chosen.push_back(fmt::format("since {}: {}", recipe.since, recipe.source));
  }
  return chosen;
}

}  // namespace meshplan::sim
