#include "stacks/release_recipes.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "program/plan_file/stack_settings.hpp"
#include "sim/stacks/release.hpp"
#include "stacks/run_habits.hpp"

namespace meshplan::sim {
namespace {

bool holds(const RecipePlace& where, const Cluster& cluster, const TrainingRun& run) {
  const bool racks =
      !cluster.fabric.empty() && cluster.fabric.front().ranks_per_group > cluster.devices_per_node;
  return where.architecture.value_or(cluster.device.architecture) == cluster.device.architecture &&
         where.racks.value_or(racks) == racks &&
         where.experts.value_or(run.model.moe.has_value()) == run.model.moe.has_value() &&
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

}  // namespace

std::vector<std::string> take_recipes(const Cluster& cluster, ExecutionProfile& profile,
                                      TrainingRun& run) {
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
    run.settings = merged(stated.settings, merged(recipe.settings, run.settings));
    profile.flash = recipe.flash.value_or(profile.flash);
    chosen.push_back(fmt::format("since {}: {}", recipe.since, recipe.source));
  }
  return chosen;
}

}  // namespace meshplan::sim
