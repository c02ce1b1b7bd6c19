#include "stacks/stage_work.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/plan/frozen.hpp"

namespace meshplan::sim {
namespace {

/// Is layer `index` of a chunk recomputed?
bool is_recomputed(const TrainingRun& run, int index) {
  if (run.recompute == RunRecompute::None) return false;
  if (run.recompute == RunRecompute::EverySecondLayer) return index % 2 == 0;
  return !run.recompute_layers || index < *run.recompute_layers;
}

}  // namespace

bool StageWork::holds_embedding(int stage) const {
  return std::ranges::any_of(stages[at(stage)],
                             [](const ChunkWork& chunk) { return chunk.lookups > 0; });
}

bool StageWork::holds_head(int stage) const {
  return std::ranges::any_of(stages[at(stage)], &ChunkWork::head) && !(tied && stages.size() == 1);
}

ParameterCount StageWork::count(int stage, ParameterCount LayerWork::*of) const {
  ParameterCount sum;
  if (holds_embedding(stage)) sum.add(embedding.*of, 1);
  if (holds_head(stage)) sum.add(head.*of, 1);
  for (const ChunkWork& chunk : stages[at(stage)])
    for (const LayerCount& layers : chunk.layers) sum.add(works[at(layers.work)].*of, layers.count);
  return sum;
}

std::vector<int> layers_per_position(const TrainingRun& run) {
  const int positions = run.parallel.pp * run.parallel.vpp;
  if (!run.layout.empty()) {
    std::vector<int> layers;
    for (const program::LayoutStage& stage : run.layout) layers.push_back(stage.layers);
    return layers;
  }
  const int extra = run.count_ends_as_layers ? 2 : 0;
  const int total = run.model.num_layers + extra;
  std::vector<int> layers(at(positions), total / positions);
  for (int i = 0; i < total % positions; ++i) ++layers[at(i)];
  if (extra > 0) {
    --layers.front();
    --layers.back();
  }
  for (const int count : layers)
    if (count < 0)
      throw ConfigError(fmt::format("{} layers do not fill pp ({}) * vpp ({}) chunks; nearest: {}",
                                    run.model.num_layers, run.parallel.pp, run.parallel.vpp,
                                    positions));
  return layers;
}

std::vector<int> balanced_layers(int num_layers, double head_cost, int stages) {
  std::vector<int> layers(at(stages), 0);
  const double total = num_layers + head_cost;
  int stage = 0;
  for (int layer = 0; layer < num_layers; ++layer) {
    ++layers[at(stage)];
    if (layer + 1 > total * (stage + 1) / stages && stage + 1 < stages) ++stage;
  }
  return layers;
}

namespace {

std::vector<int> layers_of_positions(const TrainingRun& run, const ExecutionProfile& profile,
                                     const StageWork& work, StageCut cut) {
  if (cut == StageCut::Even || !profile.balances_stages || run.parallel.vpp > 1 ||
      !run.layout.empty())
    return layers_per_position(run);
  const LayerWork& layer = work.works.front();
  const double head = static_cast<double>(run.model.vocab_size) * run.model.hidden_size;
  const double cost = layer.parameters.all() * run.parallel.tp;
  return balanced_layers(run.model.num_layers, head / cost, run.parallel.pp);
}

/// Prediction modules of a position, the last where no layout says it.
int modules_at(const TrainingRun& run, const models::ModelGraph& graph, int position) {
  if (!run.layout.empty()) return run.layout[at(position)].predictions;
  const bool last = position + 1 == run.parallel.pp * run.parallel.vpp;
  return last ? static_cast<int>(graph.mtp.size()) : 0;
}

/// Layers of one graph of which the same is trained, and through which gradients pass alike.
struct LayerClass {
  int kind = 0;  // in ModelGraph::kinds
  FrozenLayer frozen;
  bool half = false;  // its products stay in 16 bit
  bool operator==(const LayerClass&) const = default;
};

struct LayerClasses {
  std::vector<LayerClass> classes;
  std::vector<int> of_layer;
};

LayerClasses classes_of(const models::ModelGraph& graph, const program::FrozenParameters& frozen,
                        const program::StackSettings& settings) {
  LayerClasses all;
  const int layers = static_cast<int>(graph.layer_kind.size());
  const int first_low = settings.bf16_layers_at_start.value_or(0);
  const int end_low = layers - settings.bf16_layers_at_end.value_or(0);
  for (int layer = 0; layer < layers; ++layer) {
    const int kind = graph.layer_kind[at(layer)];
    const LayerClass own{
        .kind = kind,
        .frozen = {.parameters = frozen.mask(graph.kinds[at(kind)], program::layer_prefix(layer)),
                   .needs_input_gradient = frozen.needs_input_gradient(layer)},
        .half = layer < first_low || layer >= end_low};
    const auto known = std::ranges::find(all.classes, own);
    all.of_layer.push_back(static_cast<int>(known - all.classes.begin()));
    if (known == all.classes.end()) all.classes.push_back(own);
  }
  return all;
}

/// A tower's run: its patches are tokens, its ranks no tensor-parallel ones (they hold it whole, as
/// Megatron-Bridge's recipes of multimodal models do).
TrainingRun run_of_tower(const TrainingRun& run, const models::VisionGraph& vision,
                         int patches_per_token) {
  TrainingRun tower = run;
  const double images = std::max(1.0, run.micro_batch_size * vision.images_per_sequence);
  tower.model = models::spec_of_tower(run.model.vision.value());
  tower.seq_len = std::max(1, vision.image_patches / patches_per_token);
  tower.micro_batch_size = static_cast<int>(std::lround(images));
  tower.parallel.tp = tower.parallel.cp = tower.parallel.ep = tower.parallel.etp = 1;
  tower.parallel.sp = false;
  return tower;
}

/// The tower of a multimodal model, on the first stage.
void add_tower(const TrainingRun& run, const models::ModelGraph& graph,
               const ExecutionProfile& profile, StageWork& work) {
  if (!graph.vision || graph.vision->images_per_sequence <= 0) return;
  const models::VisionGraph& vision = *graph.vision;
  const TrainingRun patches = run_of_tower(run, vision, 1);
  const TrainingRun merged = run_of_tower(run, vision, vision.patches_per_token);
  const bool recomputed = run.recompute != RunRecompute::None;
  const auto add = [&](const models::LayerGraph& part, const TrainingRun& own, bool again,
                       int count) {
    work.stages.front().front().layers.push_back({static_cast<int>(work.works.size()), count});
    work.works.push_back(layer_work(part, own, profile, again));
  };
  add(vision.patches, patches, false, 1);
  add(vision.block, patches, recomputed, vision.layers);
  add(vision.projector, merged, false, vision.projectors);
}

}  // namespace

StageWork stage_work(const TrainingRun& run, const models::ModelGraph& graph,
                     const ExecutionProfile& profile, StageCut cut) {
  const program::FrozenParameters frozen(run.frozen, graph);
  const LayerClasses classes = classes_of(graph, frozen, run.settings);
  TrainingRun half = run;  // of layers that stay in 16 bit
  half.precision = RunPrecision::Bf16;
  StageWork work;
  work.tied = graph.tied_embeddings;
  work.embedding = layer_work(graph.embedding, run, profile, false,
                              {.parameters = frozen.mask(graph.embedding, "embedding.")});
  work.head =
      layer_work(graph.head, run, profile, false,
                 {.parameters = frozen.mask(graph.head, "head."),
                  .needs_input_gradient = frozen.needs_input_gradient(run.model.num_layers)});
  for (const LayerClass& own : classes.classes)
    for (const bool recomputed : {false, true})
      work.works.push_back(layer_work(graph.kinds[at(own.kind)], own.half ? half : run, profile,
                                      recomputed, own.frozen));

  const int first_module = static_cast<int>(work.works.size());
  for (const models::LayerGraph& module : graph.mtp)
    work.works.push_back(layer_work(module, run, profile, run.recompute != RunRecompute::None));

  const auto layers = layers_of_positions(run, profile, work, cut);
  const int pp = run.parallel.pp, vpp = run.parallel.vpp;
  work.stages.assign(at(pp), std::vector<ChunkWork>(at(vpp)));
  int layer = 0, module = 0;
  for (int position = 0; position < pp * vpp; ++position) {
    ChunkWork& chunk = work.stages[at(position % pp)][at(position / pp)];
    chunk.embedding = position == 0;
    chunk.head = position == pp * vpp - 1;
    std::vector<int> counts(work.works.size(), 0);
    for (int i = 0; i < layers[at(position)]; ++i, ++layer)
      ++counts[at(2 * classes.of_layer[at(layer)] + (is_recomputed(run, i) ? 1 : 0))];
    for (std::size_t w = 0; w < counts.size(); ++w)
      if (counts[w] > 0) chunk.layers.push_back({static_cast<int>(w), counts[w]});
    // The modules follow the last layer; the head and the embedding are shared (DeepSeek-V3, 2.2).
    const int modules = modules_at(run, graph, position);
    for (int i = 0; i < modules; ++i) chunk.layers.push_back({first_module + module++, 1});
    chunk.lookups = modules + (chunk.embedding ? 1 : 0);
    if (chunk.head) chunk.predictions += static_cast<int>(graph.mtp.size());
  }
  add_tower(run, graph, profile, work);
  return work;
}

}  // namespace meshplan::sim
