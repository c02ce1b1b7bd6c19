#include "estimator/chunk_costs.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "core/index.hpp"
#include "estimator/chunk_maker.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/frozen.hpp"
#include "program/schedule/csv.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;
using program::RecomputedPart;

/// 1F1B with one forward more in the warm-up, so that a forward can be overlapped with the backward
/// of another micro-batch, the second; the first and the third may have both gradients apart.
std::vector<std::string> small_schedule(TaskMix mix, int pp, int num_microbatches) {
  program::Schedule schedule;
  for (int stage = 0; stage < pp; ++stage) {
    auto& tasks = schedule.tasks.emplace_back();
    const int ahead = pp - stage;
    for (int m = 0; m < std::min(ahead, num_microbatches); ++m) tasks.push_back({.microbatch = m});
    for (int m = 0; m < num_microbatches; ++m) {
      const bool overlapped = overlaps(mix) && m == 1;
      if (overlapped) {
        tasks.push_back({.kind = program::TaskKind::Overlapped,
                         .microbatch = m + ahead,
                         .backward_microbatch = m});
        continue;
      }
      if (m + ahead < num_microbatches) tasks.push_back({.microbatch = m + ahead});
      if (!splits(mix)) {
        tasks.push_back({.kind = program::TaskKind::BackwardFull, .microbatch = m});
        continue;
      }
      tasks.push_back({.kind = program::TaskKind::BackwardInput, .microbatch = m});
      tasks.push_back({.kind = program::TaskKind::BackwardWeight, .microbatch = m});
    }
  }
  const std::string text = program::to_csv(schedule);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  return lines;
}

constexpr int kLayersPerStage = 2;  // of a small pipeline; the second says what one more costs

/// As few replicas as hold all experts between them.
int expert_replicas(const program::ParallelConfig& p) {
  const int experts = p.ep * p.etp;
  return experts / std::gcd(experts, p.tp * p.cp);
}

/// A pipeline of few stages and micro-batches that has the plan's blocks.
Plan small_plan(const Plan& plan, const RecomputedPart& recompute, TaskMix mix, int pp) {
  const auto& p = plan.parallel;
  // The first writes gradients, the second adds; a third one where the second is overlapped.
  const int microbatches = overlaps(mix) ? pp + 2 : 2;
  Plan small = plan;
  small.cluster_json.clear();
  small.prediction.reset();
  small.zero_stage = small.zero_shard_group = 0;  // priced apart, by zero_stage.cpp
  const int dp = expert_replicas(p);
  small.parallel = {
      .tp = p.tp, .cp = p.cp, .pp = pp, .dp = dp, .ep = p.ep, .etp = p.etp, .sp = p.sp};
  small.compression = {};           // changes no task
  small.offload_optimizer = false;  // nor does this
  small.offload_parameters = false;
  small.offload_activations = 0;  // nor this: copies stand beside them
  small.frozen.clear();           // frozen_part() says it
  small.rank_order = program::Mesh::kDefaultOrder;
  small.schedule = program::ScheduleKind::GPipe;
  small.custom_schedule.clear();
  small.workload.global_batch_size = std::int64_t{microbatches} * plan.micro_batch_size * dp;
  if (mix != TaskMix::Full) {
    small.schedule = program::ScheduleKind::Custom;
    small.custom_schedule = small_schedule(mix, pp, microbatches);
  }
  small.recompute = program::recompute_of_all_layers(recompute);
  small.layers_per_stage.assign(at(pp), kLayersPerStage);
  small.count_ends_as_layers = false;
  small.model.num_layers = kLayersPerStage * pp;
  if (small.model.moe) small.model.moe->dense_layers.clear();  // the graph says which they are
  return small;
}

/// What the prices of layers with experts depend on besides.
void add_experts(const PlanKeys& keys, const TaskGroups& groups, CacheKey& key) {
  key.add(keys.expert_blocks);
  key.add(groups.ep.domains);
  key.add(groups.etp.domains);
  key.add(groups.ep_within.domains);
  key.add(groups.ep_across.domains);
}

/// The small pipeline has no ZeRO, but may have to do without what ZeRO takes away.
program::LoweringProfile profile_of(const Plan& plan) {
  program::LoweringProfile profile = program::meshplan_profile();
  profile.kept_quantized_weights = program::keeps_quantized_weights(plan);
  return profile;
}

/// Sequences of the smallest micro-batch that the plan's tp ranks can share: with sequence
/// parallelism they divide its tokens. Every valid size is a multiple.
int smallest_micro_batch(const Plan& plan) {
  if (!plan.parallel.sp) return 1;
  const std::int64_t tokens = plan.workload.seq_len / plan.parallel.cp;
  return static_cast<int>(plan.parallel.tp / std::gcd(tokens, std::int64_t{plan.parallel.tp}));
}

}  // namespace

void ChunkCosts::forget() {
  sets_.clear();
  forget_programs();
  if (pipelines_.size() > kMostPipelines) pipelines_.clear();
  remembered_ = 0;
}

void ChunkCosts::forget_programs() {
  programs_.clear();
  lowerings_.clear();
}

void ChunkCosts::set_task(const Plan& plan) {
  forget();
  pipelines_.clear();
  shapes_.clear();
  known_operations_.clear();
  contexts_.clear();
  graph_ = models::build_graph(plan.model);
  kinds_with_experts_.clear();
  for (const models::LayerGraph& layer : graph_.kinds)
    kinds_with_experts_.push_back(std::ranges::any_of(
        layer.ops, [](const models::Op& op) { return op.kind == models::OpKind::Dispatch; }));
  classify_layers(plan);
}

void ChunkCosts::classify_layers(const Plan& plan) {
  const program::FrozenParameters frozen(plan.frozen, graph_);
  lowest_trained_ = frozen.lowest_trained().value_or(-1);
  classes_.clear();
  layer_class_.clear();
  frozen_ends_.clear();
  for (std::size_t i = 0; i < graph_.layer_kind.size(); ++i) {
    const int layer = static_cast<int>(i), kind = graph_.layer_kind[i];
    layer_class_.push_back(
        class_of({.kind = kind,
                  .frozen = frozen.mask(graph_.kinds[at(kind)], program::layer_prefix(layer)),
                  .flow = layer > lowest_trained_    ? Flow::Through
                          : layer == lowest_trained_ ? Flow::Ends
                                                     : Flow::None}));
  }
  for (const std::string& name : program::parameter_names(graph_))
    if (!name.starts_with("layers.") && frozen.contains(name)) frozen_ends_.push_back(name);
}

int ChunkCosts::class_of(LayerClass wanted) {
  const auto found = std::ranges::find(classes_, wanted);
  if (found != classes_.end()) return static_cast<int>(found - classes_.begin());
  classes_.push_back(std::move(wanted));
  return static_cast<int>(classes_.size()) - 1;
}

/// Gradients reach the ends of the model in it as they do in the plan.
int ChunkCosts::base_class(int layer) {
  LayerClass wanted = classes_[at(layer_class_[at(layer)])];
  const bool head_alone = lowest_trained_ == static_cast<int>(graph_.layer_kind.size());
  wanted.flow = head_alone ? Flow::None : Flow::Through;
  return class_of(std::move(wanted));
}

program::FrozenPart ChunkCosts::frozen_part(int layer_class, int num_layers) const {
  const LayerClass& own = classes_[at(layer_class)];
  program::FrozenPart part{.patterns = frozen_ends_};
  std::size_t parameter = 0;
  for (const models::Tensor& tensor : graph_.kinds[at(own.kind)].tensors)
    if (!own.frozen.empty() && tensor.tensor_class == models::TensorClass::Parameter &&
        own.frozen[parameter++])
      part.patterns.push_back(fmt::format("layers.0-{}.{}", num_layers, tensor.name));
  // The lowest trained layer is the first of the first stage.
  if (own.flow == Flow::Ends) part.lowest_trained = 0;
  if (own.flow == Flow::None) part.lowest_trained = num_layers;
  return part;
}

bool ChunkCosts::has_experts(int layer_class) const {
  return kinds_with_experts_[at(classes_[at(layer_class)].kind)];
}

/// Everything that the prices of a small pipeline depend on.
void ChunkCosts::describe(const PlanKeys& keys, const RecomputedPart& recompute, TaskMix mix,
                          const TaskGroups& groups, int num_stages, bool experts) {
  key_.set(keys.blocks, num_stages, recompute.key(), mix, experts, groups.tp.domains,
           groups.cp.domains);
  if (experts) add_experts(keys, groups, key_);
}

/// Equal numbers: operations of one form cost the same in these pipelines.
std::uint32_t ChunkCosts::context_of(const PlanKeys& keys, const TaskGroups& groups, bool experts) {
  key_.set(keys.blocks, experts, groups.tp.domains, groups.cp.domains);
  if (experts) add_experts(keys, groups, key_);
  return contexts_.try_emplace(key_, static_cast<std::uint32_t>(contexts_.size())).first->second;
}

ChunkCosts::PipelinePair ChunkCosts::pipelines_of(const Plan& plan, const PlanKeys& keys,
                                                  const RecomputedPart& recompute, TaskMix mix,
                                                  const TaskGroups& groups, int num_stages) {
  program_key_.set(keys.programs, keys.expert_blocks);
  if (program_key_ != last_programs_) forget_programs();
  last_programs_ = program_key_;
  const auto get = [&](bool experts) {
    describe(keys, recompute, mix, groups, num_stages, experts);
    if (const auto found = pipelines_.find(key_); found != pipelines_.end()) return &found->second;
    Plan small = small_plan(plan, recompute, mix, num_stages);
    if (!experts) {
      small.parallel.ep = small.parallel.etp = small.parallel.dp = 1;
      small.expert_node_ranks = 0;
      small.expert_dispatch_fp8 = false;
      small.workload.global_batch_size /= expert_replicas(plan.parallel);
    }
    program_key_.set(keys.programs, num_stages, recompute.key(), mix, experts);
    if (experts) program_key_.add(keys.expert_blocks);
    Pipeline& pipeline = pipelines_[key_];
    pipeline = {std::move(small), profile_of(plan), groups, 0, program_key_, {}};
    pipeline.context = context_of(keys, groups, experts);  // another key than that of the pipeline
    return &pipeline;
  };
  PipelinePair pair{.dense = get(false)};
  if (plan.model.moe) pair.experts = get(true);
  return pair;
}

ChunkCosts::Set& ChunkCosts::set_of(const Plan& plan, const PlanKeys& keys,
                                    const RecomputedPart& recompute, TaskMix mix,
                                    const TaskGroups& groups) {
  // Three stages have all that two have: an embedding, or a head.
  const int chunks = plan.parallel.pp * plan.parallel.vpp;
  const int num_stages = chunks == 2 && !splits(mix) ? 3 : std::min(chunks, 3);
  // What pairs save is added to what tasks take alone, so that they have these in common.
  const TaskMix alone = mix == TaskMix::OverlappedFull ? TaskMix::Full : mix;
  describe(keys, recompute, mix, groups, num_stages, plan.model.moe.has_value());
  key_.add(plan.offload_activations);
  if (const auto found = sets_.find(key_); found != sets_.end()) return found->second;
  const CacheKey key = key_;
  Set& set = sets_[key];
  set.num_stages = num_stages;
  set.ends = pipelines_of(plan, keys, recompute, alone, groups, num_stages);
  set.middle = set.ends;
  if (!splits(mix) && num_stages == 1)
    set.middle = pipelines_of(plan, keys, recompute, alone, groups, 3);
  if (mix == TaskMix::OverlappedFull)
    set.pairs = pipelines_of(plan, keys, recompute, mix, groups, 1);
  return set;
}

/// Lowered for all sizes of micro-batches, as the smallest, so that what waits for what does not
/// depend on which of them comes first.
const program::StageLowering& ChunkCosts::lowering_of(const Pipeline& pipeline, int layer_class) {
  program_key_.set(pipeline.program, layer_class);
  const auto found = lowerings_.find(program_key_);
  if (found != lowerings_.end()) return found->second;
  Plan single = pipeline.plan;
  const int size = smallest_micro_batch(single);
  single.workload.global_batch_size =
      single.workload.global_batch_size / single.micro_batch_size * size;
  single.micro_batch_size = size;
  const int num_layers = single.model.num_layers;
  program::LoweringProfile profile = pipeline.profile;
  profile.frozen_part = frozen_part(layer_class, num_layers);
  models::ModelGraph graph = graph_;  // all of whose layers are of that class
  graph.layer_kind.assign(at(num_layers), classes_[at(layer_class)].kind);
  return lowerings_
      .try_emplace(program_key_, std::move(single), std::move(graph), program::Pass::Training,
                   profile)
      .first->second;
}

const ChunkCosts::Stage& ChunkCosts::stage_of(const Pipeline& pipeline, int layer_class,
                                              int stage) {
  program_key_.set(pipeline.program, layer_class, stage);
  auto found = programs_.find(program_key_);
  if (found == programs_.end()) {
    program::Program program = lowering_of(pipeline, layer_class).lower(stage);
    OperationForms::Numbers forms = forms_.numbers_of(program);
    program_key_.set(pipeline.program, layer_class, stage);
    found = programs_.emplace(program_key_, Stage{std::move(program), std::move(forms)}).first;
  }
  program::Program& program = found->second.program;
  if (program.plan.micro_batch_size != pipeline.plan.micro_batch_size)
    program::set_micro_batch_size(program, pipeline.plan.micro_batch_size);
  return found->second;
}

const StagePrices& ChunkCosts::prices(const PipelinePair& pipelines, int layer_class, int stage) {
  Pipeline& pipeline = has_experts(layer_class) ? *pipelines.experts : *pipelines.dense;
  if (classes_[at(layer_class)].flow == Flow::Ends) stage = 0;
  const auto [entry, fresh] = pipeline.stages.try_emplace({layer_class, stage});
  if (!fresh) return entry->second;
  const BlockPricing pricing{.cluster = &cluster_,
                             .table = &table_,
                             .known = &known_,
                             .known_operations = &known_operations_,
                             .context = pipeline.context,
                             .tp = pipeline.groups.tp,
                             .cp = pipeline.groups.cp,
                             .ep = pipeline.groups.ep,
                             .etp = pipeline.groups.etp,
                             .ep_within = pipeline.groups.ep_within,
                             .ep_across = pipeline.groups.ep_across};
  const Stage& lowered = stage_of(pipeline, layer_class, stage);
  entry->second = price_stage(lowered.program, lowered.forms, pricing);
  return entry->second;
}

const ChunkCost& ChunkCosts::chunk_of(const Plan& plan, Set& set, Set* plain, const Place& place) {
  const int virtual_stages = plan.parallel.pp * plan.parallel.vpp;
  const int small = set.num_stages;
  int which = place.number;
  if (place.number > 0)
    which = place.number + 1 == virtual_stages ? small - 1 : std::min(place.number, small - 2);
  const int first = classes_.size() > 1 ? place.first_layer : 0;
  const std::int64_t key = (std::int64_t{which} << 60) + (std::int64_t{first} << 40) +
                           (std::int64_t{place.num_layers} << 20) + place.plain_layers;
  const auto found = set.chunks.find(key);
  if (found != set.chunks.end()) return found->second;
  const int model_layers = static_cast<int>(graph_.layer_kind.size());
  const int base = base_class(std::min(place.first_layer, model_layers - 1));
  ChunkMaker maker(cluster_, prices(set.ends, base, which));
  for (int i = 0; i < place.num_layers; ++i) {
    const bool recomputes = i < place.num_layers - place.plain_layers;
    const Set& own = recomputes ? set : *plain;
    const int layer = layer_class_[at(place.first_layer + i)];
    // Another class needs no embedding and no head to say what a layer of it adds.
    const int middle = own.middle.dense->plan.parallel.pp > 2 ? 1 : which;
    maker.add_layer(layer == base ? prices(own.ends, layer, which)
                                  : prices(own.middle, layer, middle));
    if (own.pairs.dense != nullptr) maker.add_saved(prices(own.pairs, layer, 0));
  }
  const bool last = place.number + 1 == virtual_stages;
  if (plan.offload_activations > 0)
    maker.offload(plan.offload_activations, place.number == 0, last);
  if (!last && place.first_layer + place.num_layers - 1 < lowest_trained_) maker.drop_backward();
  ChunkCost& cost = set.chunks.emplace(key, maker.run()).first->second;
  cost.gradient_shape = shape_of(cost.ready);
  remembered_ += cost.ready.size() + cost.layers.size();
  return cost;
}

int ChunkCosts::shape_of(const std::vector<ReadyGradients>& gradients) {
  shape_.set();
  for (const ReadyGradients& part : gradients) {
    shape_.add(part.elements);
    shape_.add(part.expert);
  }
  return shapes_.try_emplace(shape_, static_cast<int>(shapes_.size())).first->second;
}

}  // namespace meshplan::sim
