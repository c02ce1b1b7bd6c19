#include "stacks/open_choices.hpp"

#include <algorithm>
#include <optional>

#include "core/index.hpp"
#include "models/graph.hpp"
#include "stacks/stage_work.hpp"

namespace meshplan::sim {
namespace {

using models::Module;
using models::ModuleSet;

/// Modules that the stack can recompute and the model has.
std::vector<Module> known_modules(const TrainingRun& run, const ExecutionProfile& profile) {
  const models::ModelGraph graph = models::build_graph(run.model);
  ModuleSet in_model;
  for (const models::LayerGraph& layer : graph.kinds)
    for (const models::Op& op : layer.ops)
      for (const Module module : op.modules.list()) in_model.add(module);
  std::vector<Module> modules;
  for (const Module module : profile.can.recompute_modules) {
    // Overlapped exchanges hold what a recomputed layer with experts would enter again
    // (Megatron-LM, transformer_config.py, overlap_moe_expert_parallel_comm).
    const bool refused = is_on(run.settings.overlap_ep) && module == Module::Moe;
    if (in_model.contains(module) && !refused) modules.push_back(module);
  }
  return modules;
}

void add_modules(const TrainingRun& run, const ExecutionProfile& profile,
                 std::vector<TrainingRun>& ways) {
  const std::vector<Module> modules = known_modules(run, profile);
  const unsigned sets = 1U << modules.size();
  for (unsigned set = 1; set < sets; ++set) {
    TrainingRun& way = ways.emplace_back(run);
    way.recompute = RunRecompute::Modules;
    for (std::size_t i = 0; i < modules.size(); ++i)
      if ((set >> i & 1U) != 0) way.recompute_modules.add(modules[i]);
  }
}

void add_layers(const TrainingRun& run, const ExecutionProfile& profile,
                std::vector<TrainingRun>& ways) {
  if (is_on(run.settings.overlap_ep) && profile.can.expert_parallel) return;  // refused, as above
  TrainingRun all = run;
  all.recompute = RunRecompute::Full;
  if (profile.can.recomputes_some_layers) {
    const int largest = std::ranges::max(layers_per_position(run));
    for (int layers = 1; layers < largest; ++layers) {
      ways.push_back(all);
      ways.back().recompute_layers = layers;
    }
  }
  ways.push_back(all);
}

std::vector<TrainingRun> ways_to_recompute(const TrainingRun& run,
                                           const ExecutionProfile& profile) {
  std::vector<TrainingRun> ways{run};
  if (run.recompute_stated) return ways;
  add_modules(run, profile, ways);
  if (profile.can.recomputes_operations)
    for (const RunRecompute kind : {RunRecompute::PerOp, RunRecompute::EverySecondLayer}) {
      ways.push_back(run);
      ways.back().recompute = kind;
    }
  add_layers(run, profile, ways);
  for (TrainingRun& way : ways) way.recompute_stated = true;
  return ways;
}

}  // namespace

std::vector<TrainingRun> ways_to_run(const TrainingRun& run, const ExecutionProfile& profile) {
  std::vector<TrainingRun> ways = ways_to_recompute(run, profile);
  if (run.parallel.pp > 1) return ways;  // pipelines keep both: TrainingRun::shards_layers
  for (bool TrainingRun::*kept : {&TrainingRun::keeps_gathered, &TrainingRun::defers_gradients}) {
    if (!(run.*kept)) continue;
    const std::size_t before = ways.size();
    for (std::size_t i = 0; i < before; ++i) {
      ways.push_back(ways[i]);
      ways.back().*kept = false;
    }
  }
  return ways;
}

TrainingRun cheapest_that_fits(const std::vector<TrainingRun>& ways, const WayCosts& costs) {
  if (ways.size() == 1) return ways.front();
  const TrainingRun* best = nullptr;
  const TrainingRun* smallest = &ways.front();
  double shortest = 0;
  std::optional<double> least;
  for (const TrainingRun& way : ways) {
    const RunMemory memory = costs.memory(way);
    if (memory.fits() && &way == &ways.front()) return way;
    if (!least || memory.allocated() < *least) {
      least = memory.allocated();
      smallest = &way;
    }
    if (!memory.fits()) continue;
    const double seconds = costs.seconds(way);
    if (best != nullptr && seconds >= shortest) continue;
    shortest = seconds;
    best = &way;
  }
  return best != nullptr ? *best : *smallest;
}

}  // namespace meshplan::sim
