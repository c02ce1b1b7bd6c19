#include "program/lower.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "program/address.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

// Assembles the program of one stage.
class Lowering {
 public:
  Lowering(const Plan& plan, int stage, Pass pass, const ExecutionProfile& profile)
      : pass_(pass), profile_(profile), graph_(models::build_graph(plan.model)) {
    program_.plan = plan;
    program_.role = {
        .stage = stage, .first_stage = stage == 0, .last_stage = stage + 1 == plan.parallel.pp};
    program_.sizes = {.tokens = plan.tokens_per_microbatch(), .sequences = plan.micro_batch_size};
    context_ = {.tp = plan.parallel.tp, .sp = plan.parallel.sp, .compute = plan.workload.precision};
  }

  Program run() {
    place_layers();
    order_ = place_parameters(program_, placed_, sharded_);
    for (ShardedLayer& layer : sharded_) program_.blocks.push_back(std::move(layer.block));
    make_tasks();
    plan_memory();
    emit_instances();
    link(program_);
    return std::move(program_);
  }

 private:
  const Plan& plan() const { return program_.plan; }

  void place_layers() {
    if (program_.role.first_stage)
      place(graph_.embedding, std::nullopt, "embedding.", RecomputeKind::None);
    const std::vector<int> counts = resolved_layers_per_stage(plan());
    int first = 0;
    for (int stage = 0; stage < program_.role.stage; ++stage) first += counts[at(stage)];
    const int count = counts[at(program_.role.stage)];
    const int recomputed = plan().recompute.num_layers.value_or(count);
    for (int i = 0; i < count; ++i) {
      const int layer = first + i;
      const RecomputeKind recompute = i < recomputed ? plan().recompute.kind : RecomputeKind::None;
      place(graph_.kinds[at(graph_.layer_kind[at(layer)])], layer, fmt::format("layers.{}.", layer),
            recompute);
    }
    if (program_.role.last_stage) place(graph_.head, std::nullopt, "head.", RecomputeKind::None);
  }

  void place(const models::LayerGraph& graph, std::optional<int> layer, std::string prefix,
             RecomputeKind recompute) {
    const auto key = std::pair(&graph, recompute);
    const auto [entry, fresh] = block_of_.try_emplace(key, static_cast<int>(sharded_.size()));
    if (fresh) {
      sharded_.push_back(shard(graph, context_));
      if (pass_ == Pass::Training)
        differentiate(sharded_.back(), context_, recompute, profile_);
      else
        mark_partial_gradients(sharded_.back());
      transient_bytes_ =
          std::max(transient_bytes_, plan_block_memory(sharded_.back(), program_.sizes));
    }
    const std::int64_t saved_offset = saved_bytes_;
    saved_bytes_ += sharded_[at(entry->second)].block.saved_bytes;
    placed_.push_back({.sharded = entry->second, .layer = layer, .prefix = std::move(prefix)});
    program_.layers.push_back(
        {.block = entry->second, .layer = layer, .saved_offset = saved_offset});
  }

  /// Gradients that are partial over tp decide where a parameter lies; without this, a forward-only
  /// program would look for the weights in other places than training leaves them.
  void mark_partial_gradients(ShardedLayer& layer) const {
    ShardedLayer trained = layer;
    differentiate(trained, context_, RecomputeKind::None, profile_);
    for (std::size_t i = 0; i < layer.parameters.size(); ++i)
      layer.parameters[i].parameter.tp_partial = trained.parameters[i].parameter.tp_partial;
  }

  void make_tasks() {
    const Schedule schedule =
        make_schedule(plan().schedule, plan().parallel.pp, plan().num_microbatches());
    slots_ = pass_ == Pass::Training ? max_in_flight(schedule, program_.role.stage) : 1;
    program_.tasks = schedule.tasks[at(program_.role.stage)];
    if (pass_ == Pass::ForwardOnly)
      std::erase_if(program_.tasks,
                    [](const Task& task) { return task.kind != TaskKind::Forward; });
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
    const std::int64_t fp32 = program_.parameter_elements * size_of(DType::F32);
    const bool training = pass_ == Pass::Training;
    set(Region::Weights, program_.parameter_elements * size_of(context_.compute));
    if (training) {
      if (context_.compute != DType::F32) set(Region::MasterWeights, fp32);
      set(Region::Gradients, fp32);
      set(Region::Moment1, fp32);
      if (plan().workload.optimizer.kind != OptimizerKind::Sgd) set(Region::Moment2, fp32);
    }
    const std::int64_t batch_tokens = program_.sizes.tokens * plan().num_microbatches();
    set(Region::Batch, 2 * batch_tokens * size_of(DType::I32));
    set(Region::Saved, saved_bytes_, slots_);
    set(Region::Transient, transient_bytes_);
    const int gradients = training ? gradient_slots(program_) : 0;
    const int outputs = program_.role.last_stage ? 0 : kOutputSlots;
    set(Region::Boundary, stream_bytes(), std::max(1, gradients + outputs));
    set(Region::Scalars, kNumScalars * kScalarBytes);
  }

  // ------------------------------------------------------------ instances

  void emit_instances() {
    append_load(program_);
    const std::vector<Bucket> buckets = make_buckets(program_, order_);
    std::vector<int> slot_of(at(plan().num_microbatches()), 0);
    std::vector<int> free_slots;
    for (int slot = slots_; slot-- > 0;) free_slots.push_back(slot);
    const int last_backward = static_cast<int>(program_.tasks.size()) - 1;
    for (int task = 0; task <= last_backward; ++task) {
      const Task& work = program_.tasks[at(task)];
      if (work.kind == TaskKind::Forward) {
        require_invariant(!free_slots.empty(), "more micro-batches in flight than slots");
        slot_of[at(work.microbatch)] = free_slots.back();
        if (pass_ == Pass::Training) free_slots.pop_back();
        emit_forward(task, slot_of[at(work.microbatch)]);
      } else {
        emit_backward(task, slot_of[at(work.microbatch)],
                      task == last_backward ? &buckets : nullptr);
        free_slots.push_back(slot_of[at(work.microbatch)]);
      }
    }
    if (!profile_.bucketed_gradients && pass_ == Pass::Training)
      append_bucket(program_, order_.early);
    append_step_end(program_, order_, pass_);
  }

  OperationInstance instance_of(int task, int slot, int boundary_slot) const {
    return {.task = task,
            .microbatch = program_.tasks[at(task)].microbatch,
            .saved_slot = slot,
            .boundary_slot = boundary_slot};
  }

  void emit_peer(OperationInstance instance, bool forward, bool send) {
    const std::string name =
        fmt::format("{}_{}", send ? "send" : "recv", forward ? "forward" : "backward");
    program_.step_operations.push_back(
        {.name = name,
         .phase = forward ? Phase::Forward : Phase::InputGrad,
         .lane = forward ? Lane::PpForward : Lane::PpBackward,
         .work = PeerOp{.send = send,
                        .stage_offset = forward == send ? 1 : -1,
                        .dtype = context_.compute,
                        .elements = {.count = plan().model.hidden_size,
                                     .symbol = models::Symbol::Tokens,
                                     .divisor = plan().parallel.sp ? plan().parallel.tp : 1}}});
    instance.operation = {.index = static_cast<int>(program_.step_operations.size()) - 1};
    instance.id = instance_id(instance.task, -1, name);
    program_.instances.push_back(std::move(instance));
  }

  void emit_layer(OperationInstance instance, int layer, bool backward) {
    const LayerInstance& placed = program_.layers[at(layer)];
    const Block& block = program_.blocks[at(placed.block)];
    const auto& operations = backward ? block.backward : block.forward;
    for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
      instance.operation = {.block = placed.block, .backward = backward, .index = i};
      instance.layer = layer;
      instance.accumulate = false;
      for (const ValueId output : operations[at(i)].outputs)
        if (block.values[at(output)].storage == Storage::Gradient)
          instance.accumulate = !first_write(placed.parameters[at(block.values[at(output)].index)]);
      instance.id = instance_id(instance.task, layer, operations[at(i)].name);
      program_.instances.push_back(instance);
    }
  }

  bool first_write(int parameter) {
    written_.resize(program_.parameters.size(), false);
    const bool first = !written_[at(parameter)];
    written_[at(parameter)] = true;
    return first;
  }

  void emit_forward(int task, int slot) {
    const int outputs = forward_count_++ % kOutputSlots;
    const int gradients = pass_ == Pass::Training ? gradient_slots(program_) : 0;
    const OperationInstance instance = instance_of(task, slot, gradients + outputs);
    if (!program_.role.first_stage) emit_peer(instance, /*forward=*/true, /*send=*/false);
    for (int layer = 0; layer < static_cast<int>(program_.layers.size()); ++layer)
      emit_layer(instance, layer, /*backward=*/false);
    if (!program_.role.last_stage) emit_peer(instance, /*forward=*/true, /*send=*/true);
  }

  void emit_backward(int task, int slot, const std::vector<Bucket>* buckets) {
    const OperationInstance instance =
        instance_of(task, slot, backward_count_++ % gradient_slots(program_));
    if (!program_.role.last_stage) emit_peer(instance, /*forward=*/false, /*send=*/false);
    for (int layer = static_cast<int>(program_.layers.size()) - 1; layer >= 0; --layer) {
      emit_layer(instance, layer, /*backward=*/true);
      if (buckets == nullptr || !profile_.bucketed_gradients) continue;
      for (const Bucket& bucket : *buckets)
        if (bucket.ready_after_layer == layer) append_bucket(program_, bucket.range);
    }
    if (!program_.role.first_stage) emit_peer(instance, /*forward=*/false, /*send=*/true);
  }

  static constexpr int kOutputSlots = 2;  // the next output is computed while one is being sent

  Pass pass_;
  ExecutionProfile profile_;
  models::ModelGraph graph_;
  ShardContext context_;
  Program program_;
  std::map<std::pair<const models::LayerGraph*, RecomputeKind>, int> block_of_;
  std::vector<ShardedLayer> sharded_;
  std::vector<PlacedLayer> placed_;
  ParameterOrder order_;
  std::int64_t saved_bytes_ = 0;
  std::int64_t transient_bytes_ = 0;
  int slots_ = 1;
  int forward_count_ = 0;
  int backward_count_ = 0;
  std::vector<bool> written_;
};

}  // namespace

ExecutionProfile meshplan_profile() {
  return {};
}

Program lower(const Plan& plan, int stage, Pass pass, const ExecutionProfile& profile) {
  const std::vector<Violation> violations = check(plan);
  if (!violations.empty()) {
    std::vector<std::string> messages;
    for (const Violation& violation : violations) messages.push_back(violation.message);
    throw ConfigError(fmt::format("the plan cannot be lowered: {}", fmt::join(messages, "; ")));
  }
  require_invariant(stage >= 0 && stage < plan.parallel.pp, "stage outside the pipeline");
  return Lowering(plan, stage, pass, profile).run();
}

std::vector<Program> lower_all(const Plan& plan, Pass pass, const ExecutionProfile& profile) {
  std::vector<Program> programs;
  for (int stage = 0; stage < plan.parallel.pp; ++stage)
    programs.push_back(lower(plan, stage, pass, profile));
  return programs;
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
  for (const RegionPlan& region : regions) total += region.bytes();
  return total;
}

const Operation& operation_of(const Program& program, const OperationInstance& instance) {
  const OperationRef& ref = instance.operation;
  if (!ref.block) return program.step_operations[at(ref.index)];
  const Block& block = program.blocks[at(*ref.block)];
  return (ref.backward ? block.backward : block.forward)[at(ref.index)];
}

std::vector<std::int64_t> local_shape(const Program& program, const Value& value) {
  std::vector<std::int64_t> shape;
  for (const models::Dim& dim : value.shape) shape.push_back(models::evaluate(dim, program.sizes));
  return shape;
}

}  // namespace meshplan::program
