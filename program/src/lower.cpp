#include "program/lower.hpp"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>

#include "compress_reductions.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"
#include "core/index.hpp"
#include "program/activations.hpp"
#include "program/address.hpp"
#include "program/compression.hpp"
#include "program/frozen.hpp"
#include "program/offload.hpp"
#include "program/zero.hpp"
#include "sharded_layer.hpp"
#include "step_limits.hpp"

namespace meshplan::program {
namespace {

std::optional<Keep> keep_of_input(const Block& block) {
  const auto input = std::ranges::find_if(block.values, [](const Value& value) {
    return value.storage == Storage::LayerInput && !value.alias;
  });
  return input == block.values.end() ? std::nullopt : std::optional(input->keep);
}

// Assembles the program of one stage.
class Lowering {
 public:
  /// @param graph, schedule  of the plan: made once for all of its stages
  Lowering(const Plan& plan, std::shared_ptr<const models::ModelGraph> graph, int stage, Pass pass,
           const ExecutionProfile& profile, std::shared_ptr<const Schedule> schedule)
      : pass_(pass),
        profile_(profile),
        shared_graph_(std::move(graph)),
        graph_(*shared_graph_),
        shared_schedule_(std::move(schedule)),
        schedule_(*shared_schedule_),
        frozen_(profile.frozen_part ? FrozenParameters(*profile.frozen_part, graph_)
                                    : FrozenParameters(plan.frozen, graph_)) {
    program_.plan = plan;
    program_.role.stage = stage;
    program_.sizes = {.tokens = plan.tokens_per_microbatch(),
                      .sequences = plan.micro_batch_size,
                      .routed_tokens = routed_rows_bound(plan)};
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
                .documents = plan.workload.documents.packed};
    program_.document_pairs = expected_pairs(plan);
    make_tasks();
  }

  /// Everything but the tasks' operations, of which there are too many for a program or not.
  /// @param listed  operations of programs that are placed already
  /// @returns those and this one's
  /// @throws ConfigError if they are too many
  std::int64_t place_model(std::int64_t listed) {
    place_chunks();
    order_ = place_parameters(program_, placed_, sharded_, profile_);
    for (ShardedLayer& layer : sharded_) program_.blocks.push_back(std::move(layer.block));
    return require_listable(program_, listed);
  }

  Program run() {
    plan_memory();
    append_load(program_);
    emit_tasks(program_, pass_, profile_);
    insert_weight_gathers(program_);
    append_step_end(program_, order_, pass_);
    if (pass_ == Pass::Training) compress_reductions(program_);
    link(program_);
    return std::move(program_);
  }

  MemoryPlan memory() {
    plan_memory();
    return std::move(program_.memory);
  }

 private:
  const Plan& plan() const { return program_.plan; }

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
      keeps_.emplace_back();
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
    if (first_of_model) place(chunk, graph_.embedding, -1, "embedding.", RecomputeKind::None);
    const std::vector<int> counts = resolved_layers_per_stage(plan());
    const int first = std::accumulate(counts.begin(), counts.begin() + number, 0);
    const int recomputed = recomputed_layers_per_stage(plan())[at(number)];
    for (int i = 0; i < counts[at(number)]; ++i) {
      const int layer = first + i;
      const RecomputeKind recompute = i < recomputed ? plan().recompute.kind : RecomputeKind::None;
      place(chunk, graph_.kinds[at(graph_.layer_kind[at(layer)])], layer, layer_prefix(layer),
            recompute);
    }
    if (last_of_model)
      place(chunk, graph_.head, plan().model.num_layers, "head.", RecomputeKind::None);
  }

  /// @param number  of the layer in the model: -1 the embedding, num_layers the head
  void place(int chunk, const models::LayerGraph& graph, int number, std::string prefix,
             RecomputeKind recompute) {
    const bool is_layer = number >= 0 && number < plan().model.num_layers;
    const std::optional<int> layer = is_layer ? std::optional(number) : std::nullopt;
    const BlockKey key{&graph, recompute, frozen_.mask(graph, prefix), frozen_.has_backward(number),
                       frozen_.needs_input_gradient(number)};
    const auto [entry, fresh] = block_of_.try_emplace(key, static_cast<int>(sharded_.size()));
    if (fresh) {
      sharded_.push_back(shard(graph, context_));
      mark_frozen(sharded_.back(), number, prefix);
      if (pass_ == Pass::Training)
        differentiate(sharded_.back(), context_, recompute, profile_);
      else
        mark_partial_gradients(sharded_.back());
      if (layer && plan().workload.fp8 != Float8Recipe::None)
        quantize_linears(sharded_.back(),
                         profile_.kept_quantized_weights && keeps_quantized_weights(plan()));
      if (profile_.fused_activations) fuse_activations(sharded_.back());
      if (split_) separate_weight_gradients(sharded_.back());
      transient_bytes_ =
          std::max(transient_bytes_, plan_block_memory(sharded_.back(), program_.sizes));
    }
    LayerInstance placed{.block = entry->second, .layer = layer, .chunk = chunk};
    const Block& block = sharded_[at(entry->second)].block;
    keeps_.back().add(block.kept_bytes, keep_of_input(block));
    placed.quantized_offset = quantized_bytes_;
    quantized_bytes_ += sharded_[at(entry->second)].block.quantized_bytes;
    placed_.push_back({.sharded = entry->second, .layer = layer, .prefix = std::move(prefix)});
    program_.layers.push_back(std::move(placed));
  }

  const ShardedLayer& layer_at(int index) const { return sharded_[at(placed_[at(index)].sharded)]; }

  void mark_frozen(ShardedLayer& layer, int number, const std::string& prefix) const {
    layer.has_backward = frozen_.has_backward(number);
    layer.needs_input_gradient = frozen_.needs_input_gradient(number);
    for (LayerParameter& of_layer : layer.parameters) {
      Parameter& parameter = of_layer.parameter;
      parameter.frozen =
          frozen_.contains(parameter_name(prefix, parameter.name, graph_.tied_embeddings));
      parameter.trained = parameter.trained && !parameter.frozen;
    }
  }

  /// Gradients that are partial over tp decide where a parameter lies; without this, a forward-only
  /// program would look for the weights in other places than training leaves them.
  void mark_partial_gradients(ShardedLayer& layer) const {
    ShardedLayer trained = layer;
    differentiate(trained, context_, RecomputeKind::None, profile_);
    for (std::size_t i = 0; i < layer.parameters.size(); ++i)
      layer.parameters[i].parameter.tp_partial = trained.parameters[i].parameter.tp_partial;
  }

  std::int64_t stream_bytes() const {
    const std::int64_t parts = plan().parallel.sp ? plan().parallel.tp : 1;
    const std::int64_t bytes =
        program_.sizes.tokens / parts * plan().model.hidden_size * size_of(context_.compute);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  void plan_memory() {
    auto& regions = program_.memory.regions;
    regions.assign(kNumRegions, {});
    const auto set = [&](Region region, std::int64_t stride, int slots = 1) {
      regions[static_cast<std::size_t>(region)] = {
          .stride_bytes = (stride + kAlignment - 1) / kAlignment * kAlignment, .slots = slots};
    };
    const auto set_flat = [&](Region region) {
      set(region, flat_elements(program_, region) * element_bytes(program_, region));
    };
    const bool training = pass_ == Pass::Training;
    set_flat(Region::Weights);
    if (training) {
      if (context_.compute != DType::F32) set_flat(Region::MasterWeights);
      set_flat(Region::Gradients);
      set_flat(Region::Moment1);
      if (plan().workload.optimizer.kind != OptimizerKind::Sgd) set_flat(Region::Moment2);
    }
    if (training && plan().offload_optimizer) {
      for (const Region region : offloaded_regions(plan()))
        regions[static_cast<std::size_t>(region)].on_host = true;
      set(Region::OptimizerStaging, staging_bytes(program_), kStagingSlots);
    }
    if (plan().zero_stage == 3)
      set(Region::GatheredWeights, largest_unit(program_) * size_of(context_.compute), kUnitSlots);
    if (plan().zero_stage >= 2 && training)
      set(Region::UnreducedBuckets, largest_unit(program_) * size_of(DType::F32), kUnitSlots);
    if (plan().compression.kind != CompressionKind::None && training) {
      const auto num_buckets = static_cast<int>(program_.buckets.size());
      const int slots = keeps_settled_errors(plan()) ? 2 : 1;
      set(Region::CompressionErrors, errors_begin(program_, num_buckets) * size_of(DType::F32),
          slots);
      set(Region::SumErrors, sum_errors_begin(program_, num_buckets) * size_of(DType::F32), slots);
      regions[static_cast<std::size_t>(Region::CompressedGradients)] = compressed_region(program_);
    }
    set(Region::Batch,
        batch_sizes(plan()).total() * plan().num_microbatches() * size_of(DType::I32));
    std::vector<bool> has_backward;
    for (const Chunk& chunk : program_.chunks) has_backward.push_back(chunk.has_backward);
    ActivationPlan activations =
        plan_activations(schedule_, program_.role.stage, plan().num_microbatches(), keeps_,
                         training, std::move(has_backward));
    program_.kept_places = std::move(activations.places);
    program_.memory.boundary = activations.boundary;
    set(Region::Saved, activations.bytes);
    set(Region::Transient, transient_bytes_, activations.transient_slots);
    set(Region::Boundary, stream_bytes(), std::max(1, activations.boundary.total()));
    set(Region::Scalars, kNumScalars * kScalarBytes);
    set(Region::QuantizedWeights, quantized_bytes_);
    set(Region::ExpertLoad, expert_load_elements(plan()) * size_of(DType::F32));
  }

  Pass pass_;
  ExecutionProfile profile_;
  std::shared_ptr<const models::ModelGraph> shared_graph_;
  const models::ModelGraph& graph_;
  std::shared_ptr<const Schedule> shared_schedule_;
  const Schedule& schedule_;
  FrozenParameters frozen_;
  bool split_ = false;  // does this stage put weight gradients off?
  ShardContext context_;
  Program program_;
  /// Layers with equal keys share a block: with the mask of frozen parameters, is there a backward,
  /// and does it end in a gradient of the input?
  using BlockKey =
      std::tuple<const models::LayerGraph*, RecomputeKind, std::vector<bool>, bool, bool>;
  std::map<BlockKey, int> block_of_;
  std::vector<ShardedLayer> sharded_;
  std::vector<PlacedLayer> placed_;
  ParameterOrder order_;
  std::vector<ChunkKeeps> keeps_;  // by chunk, of a micro-batch
  std::int64_t transient_bytes_ = 0;
  std::int64_t quantized_bytes_ = 0;
};

void keep_forwards(std::vector<Task>& tasks) {
  std::erase_if(tasks, [](const Task& task) {
    return task.kind != TaskKind::Forward && task.kind != TaskKind::Overlapped;
  });
  for (Task& task : tasks) task = parts_of(task).front();
}

std::shared_ptr<const Schedule> tasks_of(const Plan& plan, Pass pass) {
  auto schedule = std::make_shared<Schedule>(schedule_of(plan));
  if (pass == Pass::ForwardOnly)
    for (std::vector<Task>& tasks : schedule->tasks) keep_forwards(tasks);
  return schedule;
}

void require_valid(const Plan& plan) {
  const std::vector<Violation> violations = check(plan);
  if (!violations.empty()) {
    std::vector<std::string> messages;
    for (const Violation& violation : violations) messages.push_back(violation.message);
    throw ConfigError(fmt::format("the plan cannot be lowered: {}", fmt::join(messages, "; ")));
  }
}

void require_lowerable(const Plan& plan, int stage) {
  require_valid(plan);
  require_invariant(stage >= 0 && stage < plan.parallel.pp, "stage outside the pipeline");
  require_listable(plan, plan.model.num_layers / plan.parallel.pp, "of a stage");
}

/// Of every stage, before the operations of any are listed: what is too long is refused at once.
std::deque<Lowering> place_all(const Plan& plan, Pass pass, const ExecutionProfile& profile) {
  require_lowerable(plan, 0);
  require_listable(plan, plan.model.num_layers, "of all stages");
  const auto graph = std::make_shared<const models::ModelGraph>(models::build_graph(plan.model));
  const auto schedule = tasks_of(plan, pass);
  std::deque<Lowering> stages;  // which refer to their own members
  std::int64_t listed = 0;
  for (int stage = 0; stage < plan.parallel.pp; ++stage)
    listed = stages.emplace_back(plan, graph, stage, pass, profile, schedule).place_model(listed);
  return stages;
}

}  // namespace

ExecutionProfile meshplan_profile() {
  return {};
}

Program lower(const Plan& plan, int stage, Pass pass, const ExecutionProfile& profile) {
  require_lowerable(plan, stage);
  return lower(plan, models::build_graph(plan.model), stage, pass, profile);
}

Program lower(const Plan& plan, const models::ModelGraph& graph, int stage, Pass pass,
              const ExecutionProfile& profile) {
  require_lowerable(plan, stage);
  Lowering lowering(plan, std::make_shared<const models::ModelGraph>(graph), stage, pass, profile,
                    tasks_of(plan, pass));
  lowering.place_model(0);
  return lowering.run();
}

std::vector<Program> lower_all(const Plan& plan, Pass pass, const ExecutionProfile& profile) {
  std::deque<Lowering> stages = place_all(plan, pass, profile);
  std::vector<Program> programs;
  programs.reserve(stages.size());
  for (; !stages.empty(); stages.pop_front()) programs.push_back(stages.front().run());
  return programs;
}

std::vector<MemoryPlan> lower_memory(const Plan& plan) {
  std::vector<MemoryPlan> memory;
  memory.reserve(at(plan.parallel.pp));
  std::deque<Lowering> stages = place_all(plan, Pass::Training, {});
  for (Lowering& stage : stages) memory.push_back(stage.memory());
  return memory;
}

void append_step_operation(Program& program, Operation operation) {
  OperationInstance instance;
  instance.operation = {.index = static_cast<int>(program.step_operations.size())};
  instance.id = instance_id(-1, -1, operation.name);
  program.step_operations.push_back(std::move(operation));
  program.instances.push_back(std::move(instance));
}

std::uint64_t instance_id(int task, int layer, std::string_view name) {
  constexpr std::uint64_t kJsonSafe = (std::uint64_t{1} << 53) - 1;
  const std::array<std::int64_t, 2> place = {task, layer};
  return content_hash(std::as_bytes(std::span(place)), content_hash(name)) & kJsonSafe;
}

std::int64_t MemoryPlan::total_bytes() const {
  std::int64_t total = 0;
  for (const RegionPlan& region : regions) total += region.on_host ? 0 : region.bytes();
  return total;
}

std::int64_t MemoryPlan::host_bytes() const {
  std::int64_t total = 0;
  for (const RegionPlan& region : regions) total += region.on_host ? region.bytes() : 0;
  return total;
}

const Operation& operation_of(const Program& program, const OperationInstance& instance) {
  const OperationRef& ref = instance.operation;
  if (!ref.block) return program.step_operations[at(ref.index)];
  const Block& block = program.blocks[at(*ref.block)];
  return (ref.backward ? block.backward : block.forward)[at(ref.index)];
}

std::vector<std::int64_t> local_shape(const models::SymbolValues& sizes, const Value& value) {
  std::vector<std::int64_t> shape;
  for (const models::Dim& dim : value.shape) shape.push_back(models::evaluate(dim, sizes));
  return shape;
}

std::vector<std::int64_t> local_shape(const Program& program, const Value& value) {
  return local_shape(program.sizes, value);
}

bool has_routed_rows(const Value& value) {
  return std::ranges::any_of(value.shape, [](const models::Dim& dim) {
    return dim.symbol == models::Symbol::RoutedTokens;
  });
}

}  // namespace meshplan::program
