#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "search/evaluation.hpp"
#include "search/module_choices.hpp"
#include "search/stage_division.hpp"
#include "search/variants.hpp"

namespace meshplan::planner {
namespace {

constexpr std::size_t kRecomputeSeeds = 24;  // candidates whose recompute is thinned out
constexpr std::size_t kModuleSeeds = 8;      // candidates whose modules are recomputed instead
constexpr std::size_t kOffloadSeeds = 8;     // candidates whose activations go to the host instead
constexpr std::size_t kStageSeeds = 8;       // candidates whose stages are rebalanced
constexpr int kMaxMoves = 6;                 // layers moved between stages

using program::RecomputeKind;

std::set<MeshKey> fitting_without_recompute(const std::vector<Evaluation>& evaluations) {
  std::set<MeshKey> keys;
  for (const Evaluation& evaluation : evaluations)
    if (evaluation.candidate.recompute.kind == RecomputeKind::None && evaluation.fits())
      keys.insert(mesh_key(evaluation.candidate));
  return keys;
}

/// Memory falls with every layer that `set` counts, so the fewest with which a plan fits are found
/// by bisection.
/// @param enough  layers with which it fits
template <class Set>
std::vector<Evaluation> fewest_layers(const SearchContext& context, const Candidate& seed,
                                      int enough, const Set& set, int worker) {
  int too_few = 0;
  std::vector<Evaluation> priced;
  while (enough - too_few > 1) {
    const int layers = too_few + (enough - too_few) / 2;
    Candidate candidate = seed;
    set(candidate, layers);
    Evaluation evaluation = evaluate(context, candidate, worker);
    (evaluation.fits() ? enough : too_few) = layers;
    evaluation.refined = true;
    priced.push_back(std::move(evaluation));
  }
  return priced;
}

int most_layers_of_a_stage(const SearchContext& context, const Candidate& seed) {
  return std::ranges::max(program::resolved_layers_per_stage(make_plan(context.request, seed)));
}

void recompute_layers(Candidate& candidate, int layers) {
  candidate.recompute.num_layers = layers;
}

std::vector<Evaluation> thin_recompute(const SearchContext& context, const Candidate& seed,
                                       int worker) {
  const int enough = seed.recompute.num_layers.value_or(most_layers_of_a_stage(context, seed));
  return fewest_layers(context, seed, enough, recompute_layers, worker);
}

/// A seed with all layers that `set` counts, then, if it fits so and `thins`, with as few as fit.
/// Nothing if it breaks a rule.
template <class Set>
void all_then_fewest(const SearchContext& context, const Candidate& seed, int all, const Set& set,
                     bool thins, int worker, std::vector<Evaluation>& priced) {
  Evaluation all_layers = evaluate(context, seed, worker);
  if (all_layers.broken) return;
  all_layers.refined = true;
  const bool fits = all_layers.fits();
  priced.push_back(std::move(all_layers));
  if (!fits || !thins) return;
  std::ranges::move(fewest_layers(context, seed, all, set, worker), std::back_inserter(priced));
}

/// Host memory instead of recompute, and beside that of norms and activation functions, which costs
/// least; of as few layers as fit. Schedules that may split their backwards are refused.
std::vector<Evaluation> offload_activations(const SearchContext& context, Candidate seed,
                                            int worker) {
  std::vector<Evaluation> priced;
  const int all = most_layers_of_a_stage(context, seed);
  const auto offload = [](Candidate& candidate, int layers) {
    candidate.offload_activations = layers;
  };
  for (const RecomputeKind kind : {RecomputeKind::None, RecomputeKind::Selective}) {
    seed.recompute = {.kind = kind};
    offload(seed, all);
    all_then_fewest(context, seed, all, offload, /*thins=*/true, worker, priced);
  }
  return priced;
}

/// Is activations' place searched?
bool may_offload_activations(const SearchRequest& request) {
  return request.space.offload_activations && !request.constraints.offload_activations &&
         !recompute_is_pinned(request.constraints) && request.stack.is_own() &&
         request.cluster.device.kind == sim::DeviceKind::Gpu;
}

/// What the space's sets of modules make of a seed, each of as few layers as fit. Other stacks know
/// no number of layers for it.
std::vector<Evaluation> recompute_modules(const SearchContext& context, Candidate seed,
                                          const std::vector<program::Recompute>& choices,
                                          int worker) {
  std::vector<Evaluation> priced;
  const bool thins = context.request.stack.is_own();
  for (const program::Recompute& recompute : choices) {
    seed.recompute = recompute;  // another stack may not have it
    const int all = recompute.num_layers.value_or(most_layers_of_a_stage(context, seed));
    all_then_fewest(context, seed, all, recompute_layers, thins, worker, priced);
  }
  return priced;
}

/// Selective recompute, and the space's sets of modules.
std::vector<program::Recompute> refined_recompute(const SearchRequest& request) {
  if (recompute_is_pinned(request.constraints) || request.space.refined_modules.empty()) return {};
  std::vector<program::Recompute> choices{{.kind = RecomputeKind::Selective}};
  for (const models::ModuleSet modules : request.space.refined_modules)
    choices.push_back({.kind = RecomputeKind::Selective, .modules = modules});
  return different_recompute(request.model, choices);
}

// The stage away from both ends that holds the fewest layers; the last of them, because later
// stages keep fewer micro-batches.
std::size_t lightest_inner_stage(const std::vector<int>& layers) {
  std::size_t lightest = 1;
  for (std::size_t stage = 1; stage + 1 < layers.size(); ++stage)
    if (layers[stage] <= layers[lightest]) lightest = stage;
  return lightest;
}

std::vector<std::vector<int>> one_layer_moved(const std::vector<int>& layers) {
  std::vector<std::vector<int>> moved;
  const std::size_t last = layers.size() - 1;
  const auto move = [&](std::size_t from, std::size_t to) {
    if (from == to || layers[from] < 2) return;
    moved.push_back(layers);
    --moved.back()[from];
    ++moved.back()[to];
  };
  move(last, 0);
  move(0, last);
  if (layers.size() > 2) {
    const std::size_t inner = lightest_inner_stage(layers);
    move(last, inner);
    move(0, inner);
  }
  return moved;
}

// Takes layers from the first or last stage for as long as the step gets faster.
std::vector<Evaluation> balance_stages(const SearchContext& context, const Evaluation& seed,
                                       int worker) {
  std::vector<Evaluation> priced;
  Evaluation best = seed;
  best.candidate.layers_per_stage =
      program::resolved_layers_per_stage(make_plan(context.request, seed.candidate));
  best.candidate.count_ends_as_layers = context.request.constraints.count_ends_as_layers;
  for (int move = 0; move < kMaxMoves; ++move) {
    std::optional<Evaluation> faster;
    for (const auto& layers : one_layer_moved(best.candidate.layers_per_stage)) {
      Candidate candidate = best.candidate;
      candidate.layers_per_stage = layers;
      Evaluation evaluation = evaluate(context, candidate, worker);
      evaluation.refined = true;
      priced.push_back(evaluation);
      const double to_beat = (faster ? *faster : best).estimate->step_time_s;
      if (evaluation.fits() && evaluation.estimate->step_time_s < to_beat)
        faster = std::move(evaluation);
    }
    if (!faster) break;
    best = *std::move(faster);
  }
  return priced;
}

void append(std::vector<Evaluation>& to, std::vector<std::vector<Evaluation>> parts) {
  for (auto& part : parts) std::ranges::move(part, std::back_inserter(to));
}

std::vector<std::size_t> recompute_seeds(const SearchContext& context,
                                         const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> seeds;
  if (!chooses_recomputed_layers(context.request)) return seeds;
  // Where everything can be kept, thinning recompute out ends at a plan that is known already.
  const std::set<MeshKey> light = fitting_without_recompute(evaluations);
  for (const std::size_t i : rank(evaluations)) {
    if (seeds.size() == kRecomputeSeeds) break;
    const Candidate& candidate = evaluations[i].candidate;
    if (candidate.recompute.kind == RecomputeKind::Full && !light.contains(mesh_key(candidate)))
      seeds.push_back(i);
  }
  return seeds;
}

/// Of each sharding the best one that recomputes something, because it must.
std::vector<std::size_t> forced_to_recompute(const std::vector<Evaluation>& evaluations,
                                             std::size_t most) {
  std::vector<std::size_t> seeds;
  std::set<MeshKey> known = fitting_without_recompute(evaluations);
  for (const std::size_t i : rank(evaluations)) {
    if (seeds.size() == most) break;
    if (known.insert(mesh_key(evaluations[i].candidate)).second) seeds.push_back(i);
  }
  return seeds;
}

std::vector<std::size_t> stage_seeds(const SearchContext& context,
                                     const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> seeds;
  if (!context.request.constraints.layers_per_stage.empty()) return seeds;
  for (const std::size_t i : rank(evaluations)) {
    if (seeds.size() == kStageSeeds) break;
    if (evaluations[i].candidate.parallel.pp > 1) seeds.push_back(i);
  }
  return seeds;
}

}  // namespace

std::vector<Evaluation> refine_best(const SearchContext& context,
                                    const std::vector<Evaluation>& evaluations) {
  // Seeds fit; of what does not, there may be half a million.
  std::vector<Evaluation> fitting;
  std::ranges::copy_if(evaluations, std::back_inserter(fitting), &Evaluation::fits);
  std::vector<Evaluation> refined;
  const auto run = [&](const std::vector<std::size_t>& seeds, const auto& step) {
    std::vector<std::vector<Evaluation>> parts(seeds.size());
    context.parallel_for.run(seeds.size(), [&](std::size_t i, int worker) {
      if (context.stops()) return;
      parts[i] = step(fitting[seeds[i]], worker);
    });
    append(refined, std::move(parts));
  };
  run(recompute_seeds(context, fitting), [&](const Evaluation& seed, int worker) {
    return thin_recompute(context, seed.candidate, worker);
  });
  if (const auto choices = refined_recompute(context.request); !choices.empty())
    run(forced_to_recompute(fitting, kModuleSeeds), [&](const Evaluation& seed, int worker) {
      return recompute_modules(context, seed.candidate, choices, worker);
    });
  if (may_offload_activations(context.request))
    run(forced_to_recompute(fitting, kOffloadSeeds), [&](const Evaluation& seed, int worker) {
      return offload_activations(context, seed.candidate, worker);
    });
  std::ranges::copy_if(refined, std::back_inserter(fitting), &Evaluation::fits);
  run(stage_seeds(context, fitting),
      [&](const Evaluation& seed, int worker) { return balance_stages(context, seed, worker); });
  return refined;
}

}  // namespace meshplan::planner
