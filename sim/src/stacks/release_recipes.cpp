#include "stacks/release_recipes.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "sim/stacks/release.hpp"

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

bool is_fused(ExpertDispatch dispatch) {
  return dispatch != ExpertDispatch::AllToAll;
}

/// Does the run state something that the recipe chooses otherwise?
bool contradicts(const ReleaseRecipe& recipe, const TrainingRun& stated) {
  const RunSwitches& s = stated.switches;
  if (recipe.cuda_graphs && s.cuda_graphs != CudaGraphs::None &&
      s.cuda_graphs != *recipe.cuda_graphs)
    return true;
  // Fused dispatchers know neither capacities nor their padding (Megatron-LM,
  // core/transformer/transformer_config.py).
  if (recipe.expert_dispatch &&
      (is_fused(*recipe.expert_dispatch) ? s.token_drop : s.fused_dispatch))
    return true;
  return recipe.fused_experts.value_or(false) && s.no_grouped_gemm;
}

void apply(const ReleaseRecipe& recipe, ExecutionProfile& profile, TrainingRun& run) {
  RunSwitches& s = run.switches;
  if (recipe.expert_dispatch) s.fused_dispatch = is_fused(*recipe.expert_dispatch);
  s.moe_a2a_overlap = recipe.overlaps_exchange.value_or(s.moe_a2a_overlap);
  s.cuda_graphs = recipe.cuda_graphs.value_or(s.cuda_graphs);
  run.fused_experts = recipe.fused_experts.value_or(run.fused_experts);
  run.fp8_attention = recipe.fp8_attention.value_or(run.fp8_attention);
  profile.flash = recipe.flash.value_or(profile.flash);
}

}  // namespace

std::vector<std::string> take_recipes(const Cluster& cluster, ExecutionProfile& profile,
                                      TrainingRun& run) {
  const SoftwareRelease software = parse_software(run.profile);
  if (!software.release || run.states_choices) return {};
  const TrainingRun stated = run;
  const auto release = Release::parse(*software.release);
  std::vector<std::string> chosen;
  for (const ReleaseRecipe& recipe : profile.releases.recipes) {
    const bool known = Release::parse(recipe.since) <= release;
    if (!known || !holds(recipe.where, cluster, stated) || contradicts(recipe, stated)) continue;
    apply(recipe, profile, run);
    chosen.push_back(fmt::format("since {}: {}", recipe.since, recipe.source));
  }
  return chosen;
}

}  // namespace meshplan::sim
