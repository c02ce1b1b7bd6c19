// Turns a stage's tasks into operation instances: which layers run, which messages go where, and
// where gradient buckets are complete.
#include "lower/emit.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "checks/step_limits.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "lower/activation_copies.hpp"
#include "lower/merge_layers.hpp"
#include "lower/overlap_tasks.hpp"
#include "lower/step_end.hpp"
#include "splice.hpp"
#include "step_operations.hpp"
#include "zero/unit_stream.hpp"

namespace meshplan::program {
namespace {

using Instances = std::vector<OperationInstance>;

// Slots of Region::Boundary, the one that was free for the longest time first: what was sent from
// it has gone by then.
class SlotPool {
 public:
  SlotPool(int first, int count) {
    for (int i = 0; i < count; ++i) free_.push_back(first + i);
  }
  int acquire() {
    require_invariant(!free_.empty(), "more streams at once than boundary slots");
    const int slot = free_.front();
    free_.erase(free_.begin());
    return slot;
  }
  void release(int slot) { free_.push_back(slot); }

 private:
  std::vector<int> free_;
};

Lane pipeline_lane(bool forward, bool send, bool returns) {
  constexpr Lane kLanes[2][2][2] = {{{Lane::PpRecvBackward, Lane::PpReturnRecvBackward},
                                     {Lane::PpSendBackward, Lane::PpReturnSendBackward}},
                                    {{Lane::PpRecvForward, Lane::PpReturnRecvForward},
                                     {Lane::PpSendForward, Lane::PpReturnSendForward}}};
  return kLanes[forward ? 1 : 0][send ? 1 : 0][returns ? 1 : 0];
}

class Emitter {
 public:
  Emitter(Program& program, const std::vector<bool>& merged)
      : program_(program),
        merged_(merged),
        overlap_(program),
        written_(program.parameters.size(), false),
        visited_(program.layers.size(), false) {
    int first = 0;
    for (auto [pools, counts] : {std::pair(&gradients_, program.memory.boundary.gradients),
                                 std::pair(&outputs_, program.memory.boundary.outputs)})
      for (const int count : counts) {
        pools->emplace_back(first, count);
        first += count;
      }
  }

  Instances run() {
    Instances all;
    constexpr std::size_t kRoom = 1024;  // for what is added later
    all.reserve(static_cast<std::size_t>(listed_operations(program_, merged_)) +
                4 * program_.tasks.size() + kRoom);
    for (int task = 0; task < static_cast<int>(program_.tasks.size()); ++task) {
      std::vector<Instances> parts;
      for (const Task& part : parts_of(program_.tasks[at(task)])) {
        parts.emplace_back();
        sink_ = &parts.back();
        emit_part(task, part, /*transient_slot=*/static_cast<int>(parts.size()) - 1);
      }
      Instances merged =
          parts.size() == 1 ? std::move(parts[0]) : overlap_.merge(parts[0], parts[1]);
      std::ranges::copy(merged, std::back_inserter(all));
    }
    return all;
  }

 private:
  const Chunk& chunk_of(const Task& part) const { return program_.chunks[at(part.chunk)]; }

  bool is_remote(const std::optional<int>& stage) const {
    return stage && *stage != program_.role.stage;
  }

  void emit_part(int task, const Task& part, int transient_slot) {
    OperationInstance instance{.task = task,
                               .microbatch = part.microbatch,
                               .chunk = part.chunk,
                               .transient_slot = transient_slot};
    if (part.kind == TaskKind::Forward)
      emit_forward(instance, part);
    else if (part.kind == TaskKind::BackwardWeight)
      emit_layers_backward(instance, part);
    else
      emit_backward(instance, part);
  }

  void emit_forward(OperationInstance instance, const Task& part) {
    const Chunk& chunk = chunk_of(part);
    const bool sends = is_remote(chunk.next_stage);
    SlotPool& slots = outputs_[chunk.returns ? 1 : 0];
    if (sends) instance.boundary_slot = slots.acquire();
    if (is_remote(chunk.previous_stage)) emit_peer(instance, part, /*forward=*/true, false);
    for (int layer = chunk.first_layer; layer < chunk.end_layer; ++layer)
      emit_layer(instance, layer, program_.blocks[at(program_.layers[at(layer)].block)].forward,
                 part.kind);
    if (!sends) return;
    emit_peer(instance, part, /*forward=*/true, true);
    slots.release(instance.boundary_slot);
  }

  void emit_backward(OperationInstance instance, const Task& part) {
    const Chunk& chunk = chunk_of(part);
    if (!chunk.has_backward) return;
    const Stream stream = stream_of(part);
    instance.boundary_slot = stream.slot;
    if (is_remote(chunk.next_stage)) emit_peer(instance, part, /*forward=*/false, false);
    emit_layers_backward(instance, part);
    const bool sends = chunk.input_gradient && is_remote(chunk.previous_stage);
    if (sends) emit_peer(instance, part, /*forward=*/false, true);
    const auto previous = chunk_before(program_, part.chunk);
    if (previous && chunk.input_gradient && !keeps_gradient(*previous))
      handed_on_[{*previous, part.microbatch}] = stream;
    else
      stream.pool->release(stream.slot);
  }

  struct Stream {
    SlotPool* pool = nullptr;
    int slot = 0;
  };

  /// A stream that goes on in another chunk of this rank stays where it is.
  Stream stream_of(const Task& part) {
    const auto found = handed_on_.find({part.chunk, part.microbatch});
    if (found == handed_on_.end()) {
      int begin = part.chunk;  // of the chunks of this rank that the stream passes
      while (const auto after = chunk_after(program_, begin)) begin = *after;
      SlotPool& pool = gradients_[program_.chunks[at(begin)].returns ? 1 : 0];
      return {&pool, pool.acquire()};
    }
    const Stream stream = found->second;
    handed_on_.erase(found);
    return stream;
  }

  /// Is the gradient of the chunk's output kept for a later weight gradient?
  bool keeps_gradient(int chunk) const {
    const LayerInstance& last = program_.layers[at(program_.chunks[at(chunk)].end_layer - 1)];
    return std::ranges::any_of(program_.blocks[at(last.block)].values, [](const Value& value) {
      return value.storage == Storage::LayerOutputGrad && value.keep == Keep::BetweenGrads;
    });
  }

  void emit_layers_backward(const OperationInstance& instance, const Task& part) {
    const Chunk& chunk = chunk_of(part);
    for (int layer = chunk.end_layer - 1; layer >= chunk.first_layer; --layer)
      emit_layer(instance, layer, program_.blocks[at(program_.layers[at(layer)].block)].backward,
                 part.kind);
  }

  void emit_layer(OperationInstance instance, int layer, const std::vector<Operation>& operations,
                  TaskKind kind) {
    instance.layer = layer;
    if (is_merged(*instance.task)) return emit_pass(instance, kind);
    for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
      const Operation& operation = operations[at(i)];
      if (kind == TaskKind::BackwardInput && operation.deferrable) continue;
      if (kind == TaskKind::BackwardWeight && !operation.deferrable) continue;
      if (operation.once_per_step && visited_[at(layer)]) continue;
      emit_operation(instance, kind, i, operation);
    }
    visited_[at(layer)] = true;
  }

  void emit_operation(OperationInstance& instance, TaskKind kind, int index,
                      const Operation& operation) {
    const LayerInstance& placed = layer_of(program_, instance);
    const Block& block = program_.blocks[at(placed.block)];
    instance.operation = {
        .block = placed.block, .backward = kind != TaskKind::Forward, .index = index};
    instance.accumulate = false;
    for (const ValueId output : operation.outputs)
      if (block.values[at(output)].storage == Storage::Gradient)
        instance.accumulate = !first_write(placed.parameters[at(block.values[at(output)].index)]);
    instance.id = instance_id(numbered(instance), instance.layer, operation.name);
    sink_->push_back(instance);
  }

  /// Its task; the second of two that run together has a number of its own, for both may be of one
  /// layer, and what is computed again is called as before.
  int numbered(const OperationInstance& instance) const {
    const bool second = instance.transient_slot > 0;
    return *instance.task + (second ? static_cast<int>(program_.tasks.size()) : 0);
  }

  bool is_merged(int task) const { return !merged_.empty() && merged_[at(task)]; }

  void emit_pass(OperationInstance instance, TaskKind kind) {
    const LayerInstance& placed = layer_of(program_, instance);
    const Chunk& chunk = program_.chunks[at(placed.chunk)];
    const Block& block = program_.blocks[at(placed.block)];
    const bool forward = kind == TaskKind::Forward;
    const bool lowest = instance.layer == chunk.first_layer;
    const bool highest = instance.layer == chunk.end_layer - 1;
    const Operation& pass =
        pass_of(block, kind, forward ? lowest : highest, forward ? highest : lowest);
    const auto& [own_kind, lead, operations, tail] = std::get<LayerPassOp>(pass.work);
    const std::vector<Operation>& listed = forward ? block.forward : block.backward;
    for (const int i : lead) emit_operation(instance, kind, i, listed[at(i)]);
    if (!operations.empty()) {
      instance.operation = {.block = placed.block,
                            .backward = !forward,
                            .index = static_cast<int>(&pass - block.passes.data()),
                            .pass = true};
      instance.accumulate = true;
      instance.id = instance_id(numbered(instance), instance.layer, pass.name);
      sink_->push_back(instance);
    }
    for (const int i : tail) emit_operation(instance, kind, i, listed[at(i)]);
  }

  bool first_write(int parameter) {
    const bool first = !written_[at(parameter)];
    written_[at(parameter)] = true;
    return first;
  }

  void emit_peer(OperationInstance instance, const Task& part, bool forward, bool send) {
    const Chunk& chunk = chunk_of(part);
    const int peer = forward == send ? *chunk.next_stage : *chunk.previous_stage;
    const Plan& plan = program_.plan;
    const std::tuple key(chunk.returns, forward, send, peer);
    const auto [message, fresh] =
        messages_.try_emplace(key, static_cast<int>(program_.step_operations.size()));
    if (fresh)
      program_.step_operations.push_back(
          {.name = fmt::format("{}_{}", send ? "send" : "recv", forward ? "forward" : "backward"),
           .phase = forward ? Phase::Forward : Phase::InputGrad,
           .lane = pipeline_lane(forward, send, chunk.returns),
           .work = PeerOp{.send = send,
                          .stage_offset = peer - program_.role.stage,
                          .dtype = plan.workload.precision,
                          .elements = {.count = plan.model.hidden_size,
                                       .symbol = models::Symbol::Tokens,
                                       .divisor = plan.parallel.sp ? plan.parallel.tp : 1}},
           .inputs = {},
           .outputs = {}});
    instance.operation = {.index = message->second};
    instance.id = instance_id(instance.task, std::nullopt,
                              program_.step_operations[at(message->second)].name);
    sink_->push_back(instance);
  }

  Program& program_;
  const std::vector<bool>& merged_;  // by task; or empty
  TaskOverlap overlap_;
  std::vector<SlotPool> gradients_;  // by leg
  std::vector<SlotPool> outputs_;
  Instances* sink_ = nullptr;
  std::map<std::tuple<bool, bool, bool, int>, int> messages_;  // operations, by what they send
  std::vector<bool> written_;                                  // by parameter
  std::vector<bool> visited_;                                  // by layer: has it run in this step?
  std::map<std::pair<int, int>, Stream> handed_on_;            // by (chunk, micro-batch)
};

/// By parameter: the last instance of the layer and task that complete its gradient.
std::vector<int> completed_at(const Program& program, const Instances& instances) {
  std::vector<int> complete(program.parameters.size(), -1);
  for (int i = 0; i < static_cast<int>(instances.size()); ++i) {
    const OperationInstance& instance = instances[at(i)];
    if (!instance.layer) continue;
    const LayerInstance& layer = layer_of(program, instance);
    const Block& block = program.blocks[at(layer.block)];
    for (const ValueId output : operation_of(program, instance).outputs) {
      const Value& value = block.values[at(output)];
      if (value.storage != Storage::Gradient) continue;
      int last = i;  // the layer's communication goes first: others wait for it
      while (last + 1 < static_cast<int>(instances.size()) &&
             instances[at(last + 1)].task == instance.task &&
             instances[at(last + 1)].layer == instance.layer)
        ++last;
      complete[at(layer.parameters[at(value.index)])] = last;
    }
  }
  return complete;
}

int completed_at(const Program& program, const std::vector<int>& complete, const Bucket& bucket) {
  int last = -1;
  for (std::size_t i = 0; i < program.parameters.size(); ++i) {
    const std::int64_t offset = program.parameters[i].offset;
    if (offset >= bucket.range.begin && offset < bucket.range.end)
      last = std::max(last, complete[i]);
  }
  return last;
}

/// What append_reduction appends, for a place further up.
void add_reduction(Program& program, int bucket, int position, std::vector<Addition>& additions) {
  const std::size_t before = program.instances.size();
  append_reduction(program, bucket);
  for (std::size_t i = before; i < program.instances.size(); ++i)
    additions.emplace_back(position, program.instances[i]);
  program.instances.resize(before);
}

}  // namespace

void emit_tasks(Program& program, Pass pass, const LoweringProfile& profile,
                const std::vector<bool>& merged) {
  Instances instances = Emitter(program, merged).run();
  std::vector<Addition> additions;
  if (program.plan.zero_stage >= 2) {
    instances = stream_units(program, std::move(instances));
  } else if (pass == Pass::Training) {
    const bool bucketed = profile.bucketed_gradients;
    const std::vector<int> complete =
        bucketed ? completed_at(program, instances) : std::vector<int>{};
    for (int bucket = 0; bucket < static_cast<int>(program.buckets.size()); ++bucket) {
      if (program.buckets[at(bucket)].late) continue;
      const int last = bucketed ? completed_at(program, complete, program.buckets[at(bucket)])
                                : static_cast<int>(instances.size()) - 1;
      if (last >= 0) add_reduction(program, bucket, last + 1, additions);
    }
  }
  if (program.plan.offload_activations > 0 && pass == Pass::Training)
    add_activation_copies(program, instances, additions);
  for (const OperationInstance& first : program.instances) additions.emplace_back(0, first);
  splice(instances, std::move(additions));
  program.instances = std::move(instances);
}

}  // namespace meshplan::program
