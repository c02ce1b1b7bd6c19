// What one role does in one training step: the contract between lowering, the simulator and the
// runtime. See docs/design.md.
//
// A Program is a loop body: `instances`, in issue order, are all operations of a step. Each names
// an Operation of a Block (shared by identical layers), the layer and micro-batch it works on, and
// the earlier instances on other lanes that it waits for. Within a lane, issue order is execution
// order.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/index.hpp"
#include "program/block.hpp"
#include "program/memory_plan.hpp"
#include "program/operation.hpp"
#include "program/parameter.hpp"
#include "program/plan/plan.hpp"
#include "program/schedule/schedule.hpp"

namespace meshplan::program {

/// A layer of the model placed in a chunk of this role.
struct LayerInstance {
  int block = 0;
  std::optional<int> layer;  // model layer; absent for embedding and head
  int chunk = 0;
  std::vector<int> parameters;        // block-local parameter index -> Program::parameters
  std::int64_t quantized_offset = 0;  // of its part in Region::QuantizedWeights
  bool offloaded = false;  // its activations lie on the host: memory/offloaded_activations.hpp
};

/// A virtual stage that this role holds: layers [first_layer, end_layer).
struct Chunk {
  int virtual_stage = 0;
  int first_layer = 0;  // indexes into Program::layers
  int end_layer = 0;
  std::optional<int> next_stage;      // that gets its output; absent for the last virtual stage
  std::optional<int> previous_stage;  // that sends its input; absent for the first one
  bool returns = false;               // on the way back of a V
  bool has_backward = true;           // something here or before it is trained
  bool input_gradient = true;         // something before it is: it hands a gradient on
};

/// Names an Operation: of a block, or of Program::step_operations if `block` is absent.
struct OperationRef {
  std::optional<int> block;
  bool backward = false;
  int index = 0;
  bool pass = false;  // of Block::passes
  bool operator==(const OperationRef&) const = default;
};

struct OperationInstance {
  OperationRef operation;
  std::optional<int> task;  // index into tasks; absent: step-level (load, reduce, optimizer)
  std::optional<int> microbatch;
  int chunk = 0;
  std::optional<int> layer;  // index into layers; absent: task- or step-level
  int boundary_slot = 0;
  int transient_slot = 0;
  int weight_slot = 0;      // of Region::GatheredWeights
  int gradient_slot = 0;    // of Region::UnreducedBuckets, OptimizerStaging
  int compressed_slot = 0;  // of Region::CompressedGradients
  int staged_slot = 0;      // of Region::StagedActivations: the layer's, if it is offloaded; the
                            // next layer of the task has the slot after it
  bool accumulate = false;  // weight gradients: add to what earlier micro-batches left
  std::uint64_t id = 0;     // stable over lowerings of the same plan: hash of (task, layer, name)
  int first_wait = 0;       // in Program::waits, see waits_of()
  int num_waits = 0;
};

/// Ranks with equal stage and local shapes share one program.
struct Role {
  int stage = 0;            // coordinate in the pipeline
  bool first_stage = true;  // holds the embedding
  bool last_stage = true;   // holds the head; in a V that is the first rank, too
};

/// Pairs of query and key of a sequence per head, on the rank that has most of them, in the mean
/// over the sequences that the workload expects.
struct DocumentPairs {
  int ring_step = 0;
  std::int64_t window = 0;
  double pairs = 0;
};

struct Program {
  Plan plan;
  Role role;
  models::SymbolValues sizes;                 // planned values of the symbols, per micro-batch
  std::vector<DocumentPairs> document_pairs;  // packed documents: what attention is priced by
  std::vector<Parameter> parameters;
  std::int64_t parameter_elements = 0;  // of the flat regions, with alignment gaps
  std::vector<Bucket> buckets;
  std::vector<Unit> units;  // ZeRO-2 and 3
  std::vector<Block> blocks;
  std::vector<LayerInstance> layers;  // chunk by chunk
  std::vector<Chunk> chunks;
  std::vector<KeptBytes>
      kept_places;  // offset in Region::Saved by layer * microbatches + microbatch
  std::vector<std::int64_t> host_places;  // in Region::OffloadedActivations, likewise; may be empty
  std::vector<Task> tasks;
  std::vector<Operation> step_operations;  // load, pp transfers, reductions, optimizer
  std::vector<OperationInstance> instances;
  std::vector<int> waits;  // of the instances
  MemoryPlan memory;
};

/// Indexes of earlier instances, on other lanes, that must be done when this one starts.
inline std::span<const int> waits_of(const Program& program, const OperationInstance& instance) {
  return std::span(program.waits).subspan(at(instance.first_wait), at(instance.num_waits));
}

inline const Operation& operation_of(const Program& program, const OperationInstance& instance) {
  const OperationRef& ref = instance.operation;
  if (!ref.block) return program.step_operations[at(ref.index)];
  const Block& block = program.blocks[at(*ref.block)];
  if (ref.pass) return block.passes[at(ref.index)];
  return (ref.backward ? block.backward : block.forward)[at(ref.index)];
}

/// The layer that an instance works on, which must name one.
const LayerInstance& layer_of(const Program& program, const OperationInstance& instance);
/// "send_forward of micro-batch 3", as messages name an instance.
std::string text_of(const Program& program, const OperationInstance& instance);

/// Whose communicators the program's collectives need.
std::set<Group> groups_used(const Program& program);

/// The chunk of this role that gets the output of `chunk` without a message, if one does.
std::optional<int> chunk_after(const Program& program, int chunk);
/// The one whose output it gets so.
std::optional<int> chunk_before(const Program& program, int chunk);

/// Local shape of a value, evaluated. @throws InvariantError if a size does not divide
std::vector<std::int64_t> local_shape(const Program& program, const Value& value);

}  // namespace meshplan::program
