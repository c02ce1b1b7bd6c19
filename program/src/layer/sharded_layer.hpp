// Between the passes of lowering: a layer after sharding, before and after differentiation.
#pragma once

#include <string>
#include <vector>

#include "models/graph.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::program {

/// How a value is laid out over the tp group.
enum class Placement {
  Replicated,
  FeaturesSharded,  // last dimension (its sections one by one)
  TokensSharded,    // first dimension: sequence parallelism
  Partial,          // the value is the sum over the group
};

/// What sharding needs to know besides the graph.
struct ShardContext {
  int tp = 1;
  bool sp = false;
  DType compute = DType::F32;
  int ep = 1;
  int etp = 1;
  int num_experts = 0;
  std::int64_t expert_capacity = 0;  // tokens of a sequence that an expert takes; 0 = all
  bool vocab_parallel_loss = true;   // else the head's logits are gathered
  int cp = 1;
  ContextMethod method = ContextMethod::AllGather;
  bool documents = false;  // packed into the sequences
};

/// A parameter of the layer, without its place in the model.
struct LayerParameter {
  Parameter parameter;  // name without the layer's prefix
  ValueId weight = 0;
  ValueId gradient = 0;
  bool frozen() const { return parameter.frozen; }
};

/// The value that owns the storage of `id`.
ValueId root_of(const Block& block, ValueId id);

/// Is the buffer of `id` kept, or read by anything of the block besides `reader`?
bool is_read_elsewhere(const Block& block, ValueId id, const Operation& reader);

struct ShardedLayer {
  Block block;
  std::vector<Placement> placement;                // of block.values
  std::vector<std::vector<ShardSection>> columns;  // the same: how tp cuts the last dimension
  std::vector<LayerParameter> parameters;
  std::optional<ValueId> input;
  std::optional<ValueId> output;
  std::optional<ValueId> logits;     // head only
  bool has_backward = true;          // something here or in a layer before is trained
  bool needs_input_gradient = true;  // something in a layer before is

  ValueId add_value(Value value, Placement where, std::vector<ShardSection> columns = {});
  /// Something that the data feed gives with every micro-batch, int32.
  ValueId add_batch_value(std::string name, Storage storage, std::vector<models::Dim> shape,
                          int index = 0);
  /// Appends an operation: to the forward pass, or where its phase is another, to the backward one.
  void emit(std::string name, Phase phase, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  ValueId root(ValueId id) const { return root_of(block, id); }
  /// Shape (T, D) with the tokens divided among the tp group if they are sharded.
  bool tokens_sharded(ValueId id) const {
    return placement[static_cast<std::size_t>(id)] == Placement::TokensSharded;
  }
};

/// Vocabulary rounded up to a multiple of 128 * tp (Megatron-LM's rule M26), so that every rank
/// holds equally many rows and GEMMs stay aligned; padding never enters the loss or a checkpoint.
std::int64_t padded_vocabulary(std::int64_t vocab_size, int tp);

/// Pass 1: local shapes and the collectives that the placements need.
ShardedLayer shard(const models::LayerGraph& graph, const ShardContext& context);

/// Pass 2 and 3: appends the backward operations that lead to the gradient of a trained parameter
/// or of an input that needs one; values that they need are marked Saved, or computed again where
/// `recompute` says so. Forward-only programs skip it.
void differentiate(ShardedLayer& layer, const ShardContext& context, RecomputeKind recompute,
                   const ExecutionProfile& profile);

/// At the end of pass 3, where parameters are frozen: drops backward operations that lead neither
/// to the gradient of a trained parameter nor to `input_gradient`, and keeps nothing for them.
void drop_unneeded(ShardedLayer& layer, std::optional<ValueId> input_gradient);

/// After pass 3: products of the layer's linears are in FP8, and what they read is quantized before
/// them. With `keep_weights` weights are quantized once a step, else wherever they are read.
void quantize_linears(ShardedLayer& layer, bool keep_weights);

/// After pass 3: activations that matrix products can end in become part of them, forward and
/// backward. Changes no number.
void fuse_activations(ShardedLayer& layer);

/// After those: sums of the residual stream become part of the product before them or of the norm
/// after them.
void fuse_residuals(ShardedLayer& layer);

/// And rotations part of the norms of heads before them.
void fuse_rotations(ShardedLayer& layer);

/// After pass 3, for schedules that split backward tasks: marks the operations that a
/// weight-gradient task runs, and keeps what they read of the input-gradient task and the forward
/// pass.
void separate_weight_gradients(ShardedLayer& layer);

/// Does a value live in Region::Saved?
bool is_kept(const Value& value);

/// Pass 4: offsets of saved and transient values, and how much there is of each.
void plan_block_memory(Block& block, const models::SymbolValues& sizes);

/// Elements of a value, as an expression; at most one dimension has a symbol.
models::Dim element_count(const std::vector<models::Dim>& shape);

/// Parameters start on this many elements, so that bf16 weights lie on kAlignment as well as fp32.
constexpr std::int64_t kAlignmentElements = kAlignment / 2;

/// A layer placed in a stage, before its parameters have a place in the model.
struct PlacedLayer {
  int sharded = 0;           // index into the list of distinct layers
  std::optional<int> layer;  // model layer; absent for embedding and head
  std::string prefix;        // of parameter names: "layers.7."
};

/// The flat order of a stage's parameters: as their gradients become ready in the backward pass,
/// then the experts', then those that need one more sum before data parallelism (tied over stages,
/// partial over tp), so that a bucket is a contiguous range, last what no gradient moves: the
/// frozen ones at the end, of which there are weights only. Fills program.parameters,
/// parameter_elements, buckets and the layers' indexes.
struct ParameterOrder {
  FlatRange tied;  // ranges of the last bucket
  FlatRange tp_partial;
};
ParameterOrder place_parameters(Program& program, const std::vector<PlacedLayer>& placed,
                                const std::vector<ShardedLayer>& sharded,
                                const ExecutionProfile& profile);

/// Could layers of the plan run as one operation each? See lower_merged().
bool merges_layers(const Plan& plan);
/// Fills Block::passes.
void add_passes(Block& block, const ListedOperations& listed);
/// That of a layer which is the first or last, or both, that its task runs.
const Operation& pass_of(const Block& block, TaskKind kind, bool first, bool last);
/// Of each task: do its layers run as one operation each?
std::vector<bool> merged_tasks(const Program& program, const ListedOperations& listed);

/// Appends the operations of program.tasks, with the gradient buckets between them.
/// @param merged  merged_tasks(), or empty: none
void emit_tasks(Program& program, Pass pass, const ExecutionProfile& profile,
                const std::vector<bool>& merged);

/// Sums over their holders of the gradients of key/value heads that several ranks hold.
std::vector<Operation> copied_head_sums(const Program& program, int bucket, Region region);

constexpr int kUnitSlots = 2;  // one in use, one on its way

/// ZeRO-2 and 3: puts what reduces and gathers units among the operations of the tasks, and gives
/// these their slots.
std::vector<OperationInstance> stream_units(Program& program,
                                            std::vector<OperationInstance> instances);
/// Elements of the largest unit.
std::int64_t largest_unit(const Program& program);

/// ZeRO: puts the gathers of updated weights before the layers that need them.
void insert_weight_gathers(Program& program);

/// Operations between the last backward task and the next step, and the load before the first task.
void append_load(Program& program);
void append_reduction(Program& program, int bucket);
void append_step_end(Program& program, const ParameterOrder& order, Pass pass);

/// Adds an operation that belongs to no block, and its only instance.
void append_step_operation(Program& program, Operation operation);

/// Stable over lowerings of the same plan; fits the 53 bits that every JSON reader keeps.
std::uint64_t instance_id(int task, int layer, std::string_view name);

}  // namespace meshplan::program
