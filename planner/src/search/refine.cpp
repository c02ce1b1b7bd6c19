#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "search/evaluation.hpp"
#include "search/stage_division.hpp"

namespace meshplan::planner {
namespace {

constexpr std::size_t kRecomputeSeeds = 24;  // candidates whose recompute is thinned out
constexpr std::ptrdiff_t kScheduleSeeds =
    12;                                 // of each kind of candidates whose schedule is varied
constexpr int kSeedsOfMesh = 2;         // of these, that share tp and pp
constexpr std::size_t kStageSeeds = 8;  // candidates whose stages are rebalanced
constexpr int kMaxMoves = 6;            // layers moved between stages

using program::RecomputeKind;

// Where everything can be kept, thinning recompute out ends at a plan that is known already.
std::set<MeshKey> fitting_without_recompute(const std::vector<Evaluation>& evaluations) {
  std::set<MeshKey> keys;
  for (const Evaluation& evaluation : evaluations)
    if (evaluation.candidate.recompute.kind == RecomputeKind::None && evaluation.fits())
      keys.insert(mesh_key(evaluation.candidate));
  return keys;
}

// Memory falls with every layer that is recomputed, so the fewest that fit are found by bisection.
std::vector<Evaluation> thin_recompute(const SearchContext& context, const Candidate& seed,
                                       int worker) {
  const program::Plan plan = make_plan(context.request, seed);
  const std::vector<int> layers = program::resolved_layers_per_stage(plan);
  int enough = *std::ranges::max_element(layers);
  int too_few = 0;
  std::vector<Evaluation> priced;
  while (enough - too_few > 1) {
    Candidate candidate = seed;
    candidate.recompute.num_layers = too_few + (enough - too_few) / 2;
    Evaluation evaluation = evaluate(context, candidate, worker);
    (evaluation.fits() ? enough : too_few) = *candidate.recompute.num_layers;
    evaluation.refined = true;
    priced.push_back(std::move(evaluation));
  }
  return priced;
}

// The same plan under every schedule that enumeration leaves out.
std::vector<Evaluation> vary_schedule(const SearchContext& context, const Candidate& seed,
                                      int worker) {
  std::vector<Evaluation> priced;
  const int num_layers = context.request.model.num_layers;
  for (const auto& [schedule, vpp] : chunked_schedules(seed.parallel.pp, num_layers)) {
    Candidate candidate = seed;
    candidate.schedule = schedule;
    candidate.parallel.vpp = vpp;
    candidate.count_ends_as_layers =
        seed.count_ends_as_layers || ends_fill_up(seed.parallel.pp * vpp, num_layers);
    candidate.layers_per_stage = StageDivision(context.request).layers(candidate);
    Evaluation evaluation = evaluate(context, candidate, worker);
    evaluation.refined = true;
    priced.push_back(std::move(evaluation));
  }
  return priced;
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

/// @param refined  of those that refinement found, or of those that were enumerated
std::vector<std::size_t> recompute_seeds(const SearchContext& context,
                                         const std::vector<Evaluation>& evaluations, bool refined) {
  std::vector<std::size_t> seeds;
  const Constraints& pins = context.request.constraints;
  if (pins.recompute) return seeds;
  const std::set<MeshKey> light = fitting_without_recompute(evaluations);
  for (const std::size_t i : rank(evaluations)) {
    if (seeds.size() == kRecomputeSeeds) break;
    const Candidate& candidate = evaluations[i].candidate;
    const bool thins = candidate.recompute.kind == RecomputeKind::Full &&
                       !candidate.recompute.num_layers && evaluations[i].refined == refined;
    if (thins && !light.contains(mesh_key(candidate))) seeds.push_back(i);
  }
  return seeds;
}

/// With c chunks a rank, about 1 / c of the waiting is left (Narayanan et al. 2021, section 2.2).
double with_most_chunks_s(const Evaluation& evaluation, int num_layers) {
  int chunks = 1;
  for (const ScheduleChoice& choice :
       chunked_schedules(evaluation.candidate.parallel.pp, num_layers))
    chunks = std::max(chunks, choice.vpp);
  const sim::StepPrediction& step = *evaluation.estimate;
  return step.step_time_s - (1 - 1.0 / chunks) * step.seconds[sim::Category::Bubble];
}

/// The fastest under 1F1B, and those that would be under another schedule: a deep pipeline may wait
/// so long that it is far behind before it is interleaved. Of each mesh a few.
std::vector<std::size_t> schedule_seeds(const SearchContext& context,
                                        const std::vector<Evaluation>& evaluations) {
  std::vector<std::size_t> seeds;
  const Constraints& pins = context.request.constraints;
  if (pins.schedule || pins.vpp || !pins.layers_per_stage.empty()) return seeds;
  std::vector<std::size_t> pipelines = rank(evaluations);
  std::erase_if(pipelines, [&](std::size_t i) {
    const Candidate& candidate = evaluations[i].candidate;
    return candidate.parallel.pp == 1 || candidate.schedule != program::ScheduleKind::OneFOneB;
  });
  seeds.assign(pipelines.begin(),
               pipelines.begin() + std::min(std::ssize(pipelines), kScheduleSeeds));
  std::vector<std::pair<double, std::size_t>> promising;
  for (const std::size_t i : pipelines)
    promising.emplace_back(with_most_chunks_s(evaluations[i], context.request.model.num_layers), i);
  std::ranges::sort(promising);
  std::map<std::pair<int, int>, int> of_mesh;
  for (std::size_t p = 0; p < promising.size() && std::ssize(seeds) < 2 * kScheduleSeeds; ++p) {
    const std::size_t i = promising[p].second;
    const program::ParallelConfig& parallel = evaluations[i].candidate.parallel;
    if (++of_mesh[{parallel.tp, parallel.pp}] <= kSeedsOfMesh &&
        std::ranges::find(seeds, i) == seeds.end())
      seeds.push_back(i);
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
  std::vector<Evaluation> refined;
  const auto run = [&](const std::vector<Evaluation>& from, const std::vector<std::size_t>& seeds,
                       const auto& step) {
    std::vector<std::vector<Evaluation>> parts(seeds.size());
    context.parallel_for.run(
        seeds.size(), [&](std::size_t i, int worker) { parts[i] = step(from[seeds[i]], worker); });
    append(refined, std::move(parts));
  };
  const auto thin = [&](const Evaluation& seed, int worker) {
    return thin_recompute(context, seed.candidate, worker);
  };
  run(evaluations, recompute_seeds(context, evaluations, false), thin);
  // Seeds fit; of what does not, there may be half a million.
  const auto fitting_so_far = [&] {
    std::vector<Evaluation> fitting;
    std::ranges::copy_if(evaluations, std::back_inserter(fitting), &Evaluation::fits);
    std::ranges::copy_if(refined, std::back_inserter(fitting), &Evaluation::fits);
    return fitting;
  };
  std::vector<Evaluation> fitting = fitting_so_far();
  run(fitting, schedule_seeds(context, fitting), [&](const Evaluation& seed, int worker) {
    return vary_schedule(context, seed.candidate, worker);
  });
  fitting = fitting_so_far();
  run(fitting, recompute_seeds(context, fitting, true), thin);  // of other schedules
  fitting = fitting_so_far();
  run(fitting, stage_seeds(context, fitting),
      [&](const Evaluation& seed, int worker) { return balance_stages(context, seed, worker); });
  return refined;
}

}  // namespace meshplan::planner
