#include "program/lower/lower.hpp"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include "checks/dataflow.hpp"
#include "checks/step_limits.hpp"
#include "compression/compress_reductions.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "core/limits.hpp"
#include "lower/emit.hpp"
#include "lower/link.hpp"
#include "lower/merge_layers.hpp"
#include "lower/place_parameters.hpp"
#include "lower/step_end.hpp"
#include "memory/block_memory.hpp"
#include "memory/stage_memory.hpp"
#include "passes/differentiate.hpp"
#include "passes/fill_exchanges.hpp"
#include "passes/fuse_activations.hpp"
#include "passes/fuse_residuals.hpp"
#include "passes/fuse_rotations.hpp"
#include "passes/keep_largest.hpp"
#include "passes/quantize_linears.hpp"
#include "passes/shard.hpp"
#include "passes/weight_gradients.hpp"
#include "program/checks/check.hpp"
#include "program/compression/compression.hpp"
#include "program/memory/activations.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offload.hpp"
#include "program/plan/frozen.hpp"
#include "program/zero/zero.hpp"
#include "zero/weight_gathers.hpp"

namespace meshplan::program {
namespace {

/// Layers with equal keys share a block: with the mask of frozen parameters, is there a backward,
/// does it end in a gradient of the input, and are weight gradients put off?
using BlockKey =
    std::tuple<const models::LayerGraph*, RecomputedPart, std::vector<bool>, bool, bool, bool>;

}  // namespace

/// What is made once for all stages of a plan.
struct StagesInCommon {
  models::ModelGraph graph;
  Schedule schedule;
  std::map<BlockKey, ShardedLayer> blocks = {};
};

namespace {

// Assembles the program of one stage.
class Lowering {
 public:
  Lowering(const Plan& plan, std::shared_ptr<StagesInCommon> common, int stage, Pass pass,
           const LoweringProfile& profile)
      : pass_(pass),
        profile_(profile),
        common_(std::move(common)),
        graph_(common_->graph),
        schedule_(common_->schedule),
        frozen_(profile.frozen_part ? FrozenParameters(*profile.frozen_part)
                                    : FrozenParameters(plan.frozen, graph_)) {
    program_.plan = plan;
    program_.role.stage = stage;
    set_sizes(program_);
    context_ = {.tp = plan.parallel.tp,
                .sp = plan.parallel.sp,
                .compute = plan.workload.precision,
                .ep = plan.parallel.ep,
                .etp = plan.parallel.etp,
                .num_experts = plan.model.moe ? plan.model.moe->num_experts : 0,
                .expert_capacity = expert_capacity(plan),
                .vocab_parallel_loss = profile.vocab_parallel_loss,
                .cp = plan.parallel.cp,
                .method = plan.context_parallel,
                .documents = plan.workload.documents.packed,
                .ep_nodes = expert_nodes(plan),
                .seq_len = plan.workload.seq_len,
                .float8_dispatch = plan.expert_dispatch_fp8};
    make_tasks();
  }

  /// @param listed  operations of programs that are placed already
  /// @returns those and this one's
  /// @throws ConfigError if they are too many
  std::int64_t require_listable(std::int64_t listed) const {
    return program::require_listable(program_, listed, merged_);
  }
  /// Everything but the tasks' operations, of which there are too many for a program or not.
  void place_model() {
    place_chunks();
    order_ = place_parameters(program_, placed_, sharded_, profile_);
    for (ShardedLayer& layer : sharded_) program_.blocks.push_back(std::move(layer.block));
  }

  /// Operations of the step, and how many of them are left to list.
  struct Merged {
    std::int64_t operations = 0;
    std::int64_t listed = 0;
  };
  /// @see lower_merged
  Merged merge_layers(const ListedOperations& listed) {
    const std::int64_t operations = listed_operations(program_, {});
    for (Block& block : program_.blocks) add_passes(block, listed);
    merged_ = merged_tasks(program_, listed);
    return {operations, listed_operations(program_, merged_)};
  }

  Program run() {
    plan_memory(program_, schedule_, pass_);
    append_load(program_);
    emit_tasks(program_, pass_, profile_, merged_);
    insert_weight_gathers(program_);
    append_step_end(program_, order_, pass_);
    if (pass_ == Pass::Training) compress_reductions(program_);
    link(program_);
    return std::move(program_);
  }

  MemoryPlan memory() {
    plan_memory(program_, schedule_, pass_);
    return std::move(program_.memory);
  }

 private:
  const Plan& plan() const { return program_.plan; }
  bool is_layer(int number) const { return number >= 0 && number < plan().model.num_layers; }

  void make_tasks() {
    const int stage = program_.role.stage;
    program_.tasks = schedule_.tasks[at(stage)];
    split_ = std::ranges::find(program_.tasks, TaskKind::BackwardInput, &Task::kind) !=
             program_.tasks.end();
  }
  void place_chunks() {
    const int num_stages = schedule_.num_stages();
    const auto stage_of = [&](int number) {
      const bool exists = number >= 0 && number < schedule_.num_virtual_stages();
      return exists ? std::optional(place_of(schedule_.placement, num_stages, number).stage)
                    : std::nullopt;
    };
    program_.role.first_stage = program_.role.last_stage = false;
    for (int chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      const int number =
          virtual_stage(schedule_.placement, num_stages, {program_.role.stage, chunk});
      const int first_layer = static_cast<int>(program_.layers.size());
      program_.chunks.push_back(
          {.virtual_stage = number,
           .first_layer = first_layer,
           .next_stage = stage_of(number + 1),
           .previous_stage = stage_of(number - 1),
           .returns = schedule_.placement == ChunkPlacement::V && chunk % 2 == 1});
      place_layers(chunk, number);
      Chunk& placed = program_.chunks.back();
      placed.end_layer = static_cast<int>(program_.layers.size());
      placed.has_backward = layer_at(placed.end_layer - 1).has_backward;
      placed.input_gradient = layer_at(placed.first_layer).needs_input_gradient;
    }
  }

  void place_layers(int chunk, int number) {
    const bool first_of_model = number == 0;
    const bool last_of_model = number + 1 == schedule_.num_virtual_stages();
    program_.role.first_stage = program_.role.first_stage || first_of_model;
    program_.role.last_stage = program_.role.last_stage || last_of_model;
    if (first_of_model) place(chunk, graph_.embedding, -1, "embedding.", {});
    const std::vector<int> counts = resolved_layers_per_stage(plan());
    const int first = std::accumulate(counts.begin(), counts.begin() + number, 0);
    const int recomputed = recomputed_layers_per_stage(plan())[at(number)];
    for (int i = 0; i < counts[at(number)]; ++i) {
      const int layer = first + i;
      const RecomputedPart recompute =
          i < recomputed ? recomputed_part(plan().recompute) : RecomputedPart{};
      place(chunk, graph_.kinds[at(graph_.layer_kind[at(layer)])], layer, layer_prefix(layer),
            recompute);
      program_.layers.back().offloaded = pass_ == Pass::Training && i < plan().offload_activations;
    }
    if (!last_of_model) return;
    // Prediction modules are layers, and recompute where all others of the stage do.
    const bool recomputes = !graph_.mtp.empty() && recomputed == counts[at(number)];
    place(chunk, graph_.ending, plan().model.num_layers, "head.",
          recomputes ? recomputed_part(plan().recompute) : RecomputedPart{});
  }

  /// @param number  of the layer in the model: -1 the embedding, num_layers the head
  void place(int chunk, const models::LayerGraph& graph, int number, std::string prefix,
             const RecomputedPart& recompute) {
    const std::optional<int> layer = is_layer(number) ? std::optional(number) : std::nullopt;
    const BlockKey key{&graph,
                       recompute,
                       frozen_.mask(graph, prefix),
                       frozen_.has_backward(number),
                       frozen_.needs_input_gradient(number),
                       split_};
    const auto [entry, fresh] = block_of_.try_emplace(key, static_cast<int>(sharded_.size()));
    if (fresh) {
      const auto [made, first] = common_->blocks.try_emplace(key);
      if (first) made->second = sharded_layer(graph, number, prefix, recompute);
      sharded_.push_back(made->second);
    }
    LayerInstance placed{.block = entry->second, .layer = layer, .chunk = chunk};
    placed.quantized_offset = quantized_bytes_;
    quantized_bytes_ += sharded_[at(entry->second)].block.quantized_bytes;
    placed_.push_back({.sharded = entry->second, .layer = layer, .prefix = std::move(prefix)});
    program_.layers.push_back(std::move(placed));
  }

  ShardedLayer sharded_layer(const models::LayerGraph& graph, int number, const std::string& prefix,
                             const RecomputedPart& recompute) const {
    ShardedLayer layer = shard(graph, context_);
    mark_frozen(layer, number, prefix);
    const auto sound_after = [&](const char* pass) { require_sound(layer.block, pass); };
    if (pass_ == Pass::Training)
      differentiate(layer, context_, recompute, profile_);
    else
      mark_partial_gradients(layer);
    sound_after("differentiate");
    if (is_layer(number) && plan().workload.fp8 != Float8Recipe::None) {
      quantize_linears(layer, profile_.kept_quantized_weights && keeps_quantized_weights(plan()));
      sound_after("quantize_linears");
    }
    if (profile_.fused_activations) {
      fuse_activations(layer);
      sound_after("fuse_activations");
    }
    if (profile_.fused_residuals) {
      fuse_residuals(layer);
      sound_after("fuse_residuals");
    }
    if (profile_.fused_rotations) {
      fuse_rotations(layer);
      sound_after("fuse_rotations");
    }
    if (profile_.kept_largest) {
      keep_largest(layer);
      sound_after("keep_largest");
    }
    if (split_) {
      separate_weight_gradients(layer);
      sound_after("separate_weight_gradients");
    }
    if (profile_.filled_exchanges) {
      fill_exchanges(layer, program_);
      sound_after("fill_exchanges");
    }
    plan_block_memory(layer.block, program_.sizes);
    return layer;
  }

  const ShardedLayer& layer_at(int index) const { return sharded_[at(placed_[at(index)].sharded)]; }

  void mark_frozen(ShardedLayer& layer, int number, const std::string& prefix) const {
    layer.has_backward = frozen_.has_backward(number);
    layer.needs_input_gradient = frozen_.needs_input_gradient(number);
    for (LayerParameter& of_layer : layer.parameters) {
      Parameter& parameter = of_layer.parameter;
      parameter.frozen = frozen_.contains(parameter_name(prefix, parameter.name));
      parameter.trained = parameter.trained && !parameter.frozen;
    }
  }

  /// Gradients that are partial over tp decide where a parameter lies; without this, a forward-only
  /// program would look for the weights in other places than training leaves them.
  void mark_partial_gradients(ShardedLayer& layer) const {
    ShardedLayer trained = layer;
    differentiate(trained, context_, {}, profile_);
    for (std::size_t i = 0; i < layer.parameters.size(); ++i)
      layer.parameters[i].parameter.tp_partial = trained.parameters[i].parameter.tp_partial;
  }

  Pass pass_;
  LoweringProfile profile_;
  std::shared_ptr<StagesInCommon> common_;
  const models::ModelGraph& graph_;
  const Schedule& schedule_;
  FrozenParameters frozen_;
  bool split_ = false;        // does this stage put weight gradients off?
  std::vector<bool> merged_;  // by task: do its layers run as one operation each? Or empty
  ShardContext context_;
  Program program_;
  std::map<BlockKey, int> block_of_;  // index into those of this stage
  std::vector<ShardedLayer> sharded_;
  std::vector<PlacedLayer> placed_;
  ParameterOrder order_;
  std::int64_t quantized_bytes_ = 0;
};

void keep_forwards(std::vector<Task>& tasks) {
  std::erase_if(tasks, [](const Task& task) {
    return task.kind != TaskKind::Forward && task.kind != TaskKind::Overlapped;
  });
  for (Task& task : tasks) task = parts_of(task).front();
}

Schedule tasks_of(const Plan& plan, Pass pass) {
  Schedule schedule = schedule_of(plan);
  if (pass == Pass::ForwardOnly)
    for (std::vector<Task>& tasks : schedule.tasks) keep_forwards(tasks);
  return schedule;
}

std::shared_ptr<StagesInCommon> in_common(const Plan& plan, models::ModelGraph graph, Pass pass) {
  return std::make_shared<StagesInCommon>(
      StagesInCommon{.graph = std::move(graph), .schedule = tasks_of(plan, pass)});
}

void require_valid(const Plan& plan, const models::ModelGraph& graph) {
  const std::vector<Violation> violations = check(plan, graph);
  if (!violations.empty()) {
    std::vector<std::string> messages;
    for (const Violation& violation : violations) messages.push_back(violation.message);
    throw ConfigError(fmt::format("the plan cannot be lowered: {}", fmt::join(messages, "; ")));
  }
}

void require_lowerable(const Plan& plan, const models::ModelGraph& graph, int stage) {
  require_valid(plan, graph);
  require_invariant(stage >= 0 && stage < plan.parallel.pp, "stage outside the pipeline");
  require_listable(plan, plan.model.num_layers / plan.parallel.pp, "of a stage",
                   limits::kLayerRuns);
}

std::deque<Lowering> stages_of(const Plan& plan, Pass pass, const LoweringProfile& profile,
                               std::int64_t most_layer_runs) {
  models::ModelGraph graph = models::build_graph(plan.model);
  require_valid(plan, graph);
  require_listable(plan, plan.model.num_layers, "of all stages", most_layer_runs);
  const auto common = in_common(plan, std::move(graph), pass);
  std::deque<Lowering> stages;  // which refer to their own members
  for (int stage = 0; stage < plan.parallel.pp; ++stage)
    stages.emplace_back(plan, common, stage, pass, profile);
  return stages;
}

/// @param stages  placed, so that what is too long is refused before any of it is listed
std::vector<Program> list_all(std::deque<Lowering> stages) {
  std::int64_t listed = 0;
  for (const Lowering& stage : stages) listed = stage.require_listable(listed);
  std::vector<Program> programs;
  programs.reserve(stages.size());
  for (; !stages.empty(); stages.pop_front()) programs.push_back(stages.front().run());
  return programs;
}

}  // namespace

Program lower(const Plan& plan, int stage, Pass pass, const LoweringProfile& profile) {
  models::ModelGraph graph = models::build_graph(plan.model);
  require_valid(plan, graph);
  return StageLowering(plan, std::move(graph), pass, profile).lower(stage);
}

StageLowering::StageLowering(Plan plan, models::ModelGraph graph, Pass pass,
                             const LoweringProfile& profile)
    : plan_(std::move(plan)),
      pass_(pass),
      profile_(profile),
      common_(in_common(plan_, std::move(graph), pass)) {}

Program StageLowering::lower(int stage) const {
  require_lowerable(plan_, common_->graph, stage);
  Lowering lowering(plan_, common_, stage, pass_, profile_);
  lowering.place_model();
  lowering.require_listable(0);
  return lowering.run();
}

Program lower(const Plan& plan, const models::ModelGraph& graph, int stage, Pass pass,
              const LoweringProfile& profile) {
  return StageLowering(plan, graph, pass, profile).lower(stage);
}

std::vector<Program> lower_all(const Plan& plan, Pass pass, const LoweringProfile& profile) {
  std::deque<Lowering> stages = stages_of(plan, pass, profile, limits::kLayerRuns);
  std::ranges::for_each(stages, &Lowering::place_model);
  return list_all(std::move(stages));
}

std::optional<std::vector<Program>> lower_merged(const Plan& plan, const ListedOperations& listed) {
  if (!merges_layers(plan)) return std::nullopt;
  std::deque<Lowering> stages =
      stages_of(plan, Pass::Training, meshplan_profile(), limits::kMergedLayerRuns);
  std::int64_t all = 0, left = 0;
  for (Lowering& stage : stages) {
    stage.place_model();
    const Lowering::Merged merged = stage.merge_layers(listed);
    all += merged.operations;
    left += merged.listed;
  }
  constexpr int kWorthwhile = 2;
  if (kWorthwhile * left > all) return std::nullopt;
  return list_all(std::move(stages));
}

void set_micro_batch_size(Program& program, int size) {
  Plan& plan = program.plan;
  require_invariant(plan.offload_activations == 0, "copies of activations have a size");
  const int microbatches = plan.num_microbatches();
  plan.micro_batch_size = size;
  plan.workload.global_batch_size = std::int64_t{microbatches} * size * plan.parallel.dp;
  set_sizes(program);
  for (Block& block : program.blocks) plan_block_memory(block, program.sizes);
  plan_memory(program, tasks_of(plan, Pass::Training), Pass::Training);
}

std::vector<MemoryPlan> lower_memory(const Plan& plan) {
  std::vector<MemoryPlan> memory;
  memory.reserve(at(plan.parallel.pp));
  std::deque<Lowering> stages =
      stages_of(plan, Pass::Training, meshplan_profile(), limits::kMergedLayerRuns);
  for (; !stages.empty(); stages.pop_front()) {
    stages.front().place_model();
    memory.push_back(stages.front().memory());
  }
  return memory;
}

}  // namespace meshplan::program
