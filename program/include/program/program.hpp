// What one role does in one training step: the contract between lowering, the simulator and the
// runtime. See docs/design.md.
//
// A Program is a loop body: `instances`, in issue order, are all operations of a step. Each names
// an Operation of a Block (shared by identical layers), the layer and micro-batch it works on, and
// the earlier instances on other lanes that it waits for. Within a lane, issue order is execution
// order.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.hpp"
#include "models/graph.hpp"
#include "program/document_context.hpp"
#include "program/mesh.hpp"
#include "program/plan.hpp"
#include "program/schedule.hpp"

namespace meshplan::program {

// ---------------------------------------------------------------- memory

/// Where a value lives. Addresses are base(region) + slot * stride(region) + offset.
enum class Region {
  Weights,        // compute dtype, flat over parameters
  MasterWeights,  // fp32 copy; empty when the compute dtype is fp32
  Gradients,      // fp32, flat over parameters, same order as Weights
  Moment1,        // fp32 optimizer state
  Moment2,
  Batch,              // ids, targets and where documents lie (batch_sizes()) of all micro-batches
  Saved,              // activations kept from one task to a later one, at Program::kept_places
  Transient,          // alive inside one task; a second slot for the backward of an overlapped one
  Boundary,           // gradient streams of backward tasks, then outputs to send: slots alternate
  Scalars,            // per-step scalars: loss, squared norm, clip coefficient, ...
  GatheredWeights,    // ZeRO-3: all weights of a unit while its layers run; slots alternate
  UnreducedBuckets,   // ZeRO-2 and 3: a micro-batch's gradients of a unit until they are reduced
  ExpertLoad,         // fp32 (MoE layers of the model, experts): tokens that chose each in this
                      // step; with a capacity, then again: that each took
  CompressionErrors,  // fp32: what this rank's compression has lost so far, bucket by bucket; a
                      // second slot has what steps that fp16 did not skip left
  SumErrors,          // likewise what compressing the sums lost, of the parts that this rank sums
  CompressedGradients,  // bytes on their way, of one bucket; slots alternate
  QuantizedWeights,     // FP8: the layers' weights of this step, in both layouts, and their scales
  OptimizerStaging,     // fp32: what the update works on where its state is on the host; slots
                        // alternate
};
constexpr int kNumRegions = 18;

struct RegionPlan {
  std::int64_t stride_bytes = 0;  // of one slot
  int slots = 1;
  bool on_host = false;  // memory of the host, not of the device
  std::int64_t bytes() const { return stride_bytes * slots; }
};

/// Slots of Region::Boundary, for each leg of a V (a loop has only the first): a message that waits
/// for its receiver holds up none of the other leg.
struct BoundarySlots {
  std::array<int, 2> gradients{};
  std::array<int, 2> outputs{};
  int total() const { return gradients[0] + gradients[1] + outputs[0] + outputs[1]; }
};

/// Bytes per region of a role; the runtime allocates exactly this: an arena of the device's memory,
/// and one of the host's for what is offloaded.
struct MemoryPlan {
  std::vector<RegionPlan> regions;  // indexed by Region
  BoundarySlots boundary;
  /// What attention needs on a GPU besides (attention_workspace.hpp); not in the total.
  std::int64_t workspace_bytes = 0;
  std::int64_t total_bytes() const;  // of the device
  std::int64_t host_bytes() const;
};

/// The numbers in Region::Scalars, 8 bytes each, in this order.
enum class Scalar {
  LossSum,          // fp64: sum of the token losses of this step
  SquaredNorm,      // fp64: of the gradients that this rank owns
  BalanceLossSum,   // fp64: the routers' load balancing losses, in units of a token's loss
  ZLossSum,         // fp64: likewise their z-losses
  GradientScale,    // fp32: MeanScale times the loss scale of fp16
  MeanScale,        // fp32: 1 / tokens of the global batch that count in the loss
  ClipCoefficient,  // fp32
  GradientNorm,     // fp32
  LearningRate,     // fp32: of this step
  OptimizerStep,    // int64: 1 at the first update
};
constexpr std::int64_t kNumScalars = 10;
constexpr std::int64_t kScalarBytes = 8;

/// Every region starts on this boundary, so that kernels see aligned rows.
constexpr std::int64_t kAlignment = 64;

// ---------------------------------------------------------------- parameters

/// A contiguous run of a dimension that tp rank r holds: global offset = begin + (r / copies) *
/// size (each section of a fused weight is sharded on its own). Where tp exceeds the key/value
/// heads, `copies` adjacent ranks hold the same ones; each rank's gradient of them is then a
/// partial sum, for it sees only what its own query heads add.
struct ShardSection {
  std::int64_t begin = 0;  // of the section in the global tensor
  std::int64_t size = 0;   // rows (or columns) held by each tp rank
  int copies = 1;          // ranks that hold the same run
  bool operator==(const ShardSection&) const = default;
};

struct Parameter {
  std::string name;                        // "layers.7.self_attn.qkv_proj.weight": global
  std::vector<std::int64_t> global_shape;  // unpadded
  std::vector<std::int64_t> local_shape;
  int shard_dim = -1;                  // dimension that tp shards; -1 = replicated over tp
  std::vector<ShardSection> sections;  // of shard_dim, in local order
  models::Init init = models::Init::Normal;
  bool weight_decay = false;
  bool tp_partial = false;  // replicated over tp, but each rank's gradient is a partial sum
  bool expert = false;      // of (X, out, in): ep shards dimension 0, and shard_dim speaks of etp
  bool trained = true;      // false: moved by StepWork::BalanceExperts, or frozen
  bool frozen = false;      // by Plan::frozen: nothing moves it
  bool tied_copy = false;   // the last stage's copy of a tied embedding: the first stage's counts
  int bucket = 0;           // in Program::buckets
  std::int64_t offset = 0;  // elements, in the flat order of the parameters
  std::int64_t elements() const;
};

/// Rows [begin, end) of the flat parameter regions, in elements.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

/// A run of the flat parameters whose gradients are summed over the ranks that hold the same at
/// once. With ZeRO each rank of `shard_group` owns an equal part of it: block r of the run is rank
/// r's. Buckets follow one another and cover all parameters.
struct Bucket {
  FlatRange range;                  // with ZeRO a multiple of shards * kAlignment / 2 elements
  Group group = Group::DpCp;        // ranks that hold the same parameters
  int shards = 1;                   // ranks of shard_group; 1 = every rank owns all of it
  Group shard_group = Group::DpCp;  // the same as `group`, unless sharding is hybrid
  std::optional<Group> replicas;    // hybrid: ranks that own the same part
  std::optional<int> unit;          // streamed: see Program::units
  std::int64_t unit_begin = 0;      // elements, in what is gathered or reduced of its unit
  std::int64_t owned_begin = 0;     // of a rank's part in regions that hold such parts only
  std::int64_t owned_streamed_begin = 0;  // in those that hold parts of streamed buckets, all of
                                          // others
  int ready_after_layer = 0;              // of the backward pass: index into Program::layers
  bool late = false;                      // needs another sum first: reduced at the end of the step
  bool trained = true;                    // false: no gradient moves it, so it is never reduced
  bool frozen = false;  // there are weights of it, whole on every rank, and no other state
  bool expert() const { return group == Group::ExpertDp; }
  std::int64_t owned_elements() const { return range.size() / shards; }
};

/// ZeRO-2 and 3: layers that follow one another in a chunk and whose gradients are reduced (and
/// with stage 3, weights gathered) together, micro-batch by micro-batch.
struct Unit {
  int first_layer = 0;  // indexes into Program::layers
  int end_layer = 0;
  std::vector<int> buckets;
  std::int64_t elements = 0;
};

// ---------------------------------------------------------------- operations

/// The pipeline's messages have a lane per stream: between two neighbours, in one direction, of
/// activations or of gradients. So none waits behind one of another stream, which could only leave
/// when the first has arrived. `Return` are those of the chunks on the way back of a V.
enum class Lane {
  Compute,
  Tp,
  PpSendForward,
  PpRecvForward,
  PpSendBackward,
  PpRecvBackward,
  PpReturnSendForward,
  PpReturnRecvForward,
  PpReturnSendBackward,
  PpReturnRecvBackward,
  Dp,
  Host,
  Ep,
  Cp,
  FromHost,  // copies of offloaded state: one lane each way, for links carry both at once
  ToHost
};
constexpr int kNumLanes = 16;

/// Does a lane carry activations from stage to stage? (Others of the pipeline carry gradients.)
bool carries_activations(Lane lane);
/// Does a lane carry what layers exchange within a stage?
bool exchanges_within_stage(Lane lane);

/// What an operation is for; also the key of the breakdown.
enum class Phase { Forward, Recompute, InputGrad, WeightGrad, Reduce, Optimizer };

/// A value of a block, by index into Block::values.
using ValueId = int;

enum class Storage {
  Parameter,  // index = parameter of the layer instance
  Gradient,   // the same parameter's fp32 gradient
  BatchIds,   // the micro-batch's rows of the step's ids
  BatchTargets,
  BatchPositions,  // packed documents: see BatchSizes; of key ranges, index = step of a ring
  BatchKeyRanges,
  BatchOrder,
  Saved,       // offset in the layer's part of the micro-batch's slot
  Transient,   // offset in the transient region
  LayerInput,  // the layer instance's input activation: resolved to the next layer's saved input
  LayerOutput,
  LayerOutputGrad,  // gradient arriving from the next layer (or received from the next stage)
  LayerInputGrad,   // gradient handed to the previous layer (or sent to the previous stage)
  LossScalar,       // fp64 sum of the step's token losses (last stage)
  RouterLosses,     // the two fp64 sums of the step's router losses
  ExpertLoad,       // the layer's row of Region::ExpertLoad; index 1: of those that were taken
  QuantizedWeight,  // offset in the layer's part of Region::QuantizedWeights
};

/// How long a value in Region::Saved lives, by the tasks of its micro-batch and chunk.
enum class Keep {
  UntilInputGrad,    // from the forward task to the input gradient (or the full backward)
  UntilWeightGrad,   // from the forward task to the weight gradient
  BetweenGrads,      // from the input gradient to the weight gradient
  InForward,         // inside the forward task: a layer's input that no backward reads
  Arriving,          // before the forward task: the input that its first layer receives, whose
                     // later life is one of the others
  ArrivingGradient,  // before the input gradient: its last layer's, if it is then BetweenGrads
};
constexpr int kNumKeeps = 6;
using KeptBytes = std::array<std::int64_t, kNumKeeps>;  // or offsets, by Keep

struct Value {
  std::string name;
  DType dtype = DType::F32;
  std::vector<models::Dim> shape;  // local
  Storage storage = Storage::Transient;
  int index = 0;                     // parameter index for Parameter and Gradient
  std::int64_t offset_bytes = 0;     // Saved, Transient
  std::int64_t bytes = 0;            // of the planned sizes, aligned
  Keep keep = Keep::UntilInputGrad;  // Saved, LayerInput; LayerOutputGrad if BetweenGrads
  std::optional<ValueId> alias;      // shares the storage of another value (in-place operations)
};

/// What a Quantize writes besides the scale: in this order, what is asked for.
struct Float8Cast {
  bool gradient = false;  // E5M2, else E4M3
  bool rows = false;      // as it lies
  bool columns = false;   // transposed
  bool operator==(const Float8Cast&) const = default;
};

/// Runs on the compute lane. Operands by kind and phase are listed in docs/lowering.md#operands.
struct ComputeOp {
  models::OpKind kind = models::OpKind::Add;
  models::Split split = models::Split::None;
  models::OpAttributes attributes;  // local: heads and kv_heads of this shard
  bool tokens_sharded = false;      // sequence parallel: rows are this tp rank's part of the tokens
  bool reverse = false;             // RegroupRows, OrderChunks: back to the order before it
  std::vector<ShardSection>
      columns;  // of slices, packs and unpacks: how `over` cuts the last dimension
  Group over = Group::Tp;
  /// Of a Linear: its product ends in this function (forward), or in its derivative (input
  /// gradient). See fuse.cpp.
  std::optional<models::ActivationKind> fused_activation = std::nullopt;
  /// The last input is a residual: of a Linear, which adds it to its product; of a norm, which
  /// works on the sum with its first input and writes it as its last output. See
  /// fuse_residuals.cpp.
  bool adds_residual = false;
  /// Of a ring over the cp group: which step's keys an Attention reads, and so which rows a
  /// MergeAttention or an Accumulate adds to. See context.hpp.
  std::optional<int> ring_step;
  /// Sequences are packed documents: what the operation must know of them is its last input
  /// (positions of a Rope or PositionEmbedding, key ranges of an Attention, order of an
  /// OrderChunks); a MergeAttention works on all rows.
  bool documents = false;
  std::optional<Float8Cast> cast = std::nullopt;  // of a Quantize
};

/// Shift: every rank sends to the next one of the group and receives from the one before; the last
/// one's next is the first.
enum class Collective {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  AllToAllV,
  Broadcast,
  Shift
};
enum class ReduceOp { Sum, Prod, Min, Max, Avg };

/// On a communication lane. `elements` counts what one rank passes in: all of the buffer for
/// AllReduce and ReduceScatter, its own part for AllGather. AllToAllV exchanges whole rows; how
/// many is known when it starts: its second input holds the rows to and from every rank (2, ranks).
struct CollectiveOp {
  Collective collective = Collective::AllReduce;
  Group group = Group::Tp;
  ReduceOp reduce = ReduceOp::Sum;
  DType dtype = DType::F32;
  models::Dim elements;
  std::int64_t row_elements = 0;  // AllToAllV
  bool reverse = false;           // AllToAllV: the rows go back to where they came from
};

/// Point-to-point with the neighbouring stage.
struct PeerOp {
  bool send = false;
  int stage_offset = 1;  // peer stage = stage + offset
  DType dtype = DType::F32;
  models::Dim elements;
};

/// Work on flat parameter ranges at the end of the step.
enum class StepWork {
  LoadBatch,        // host: next batch into Region::Batch
  MaskLoss,         // keep the loss sum only on tp rank 0 of the last stage, before it is summed
  SquaredNorm,      // of the gradients that this rank owns, fp64
  ClipCoefficient,  // from the reduced squared norm
  OptimizerUpdate,  // range, decay or not
  AccumulateGradients,  // ZeRO-2 and 3: what was reduced of a micro-batch into Region::Gradients
  ClearGradients,       // ZeRO-2 and 3: of Region::UnreducedBuckets what a task does not write
  BalanceExperts,       // moves a router's correction bias (range) by the load of its layer
  CompressGradients,    // a bucket's gradients and what was lost of earlier ones, for the others
  SumCompressed,        // what all ranks sent of the part that this rank sums, in their order
  CompressSum,          // that part and what was lost of earlier sums, for the others
  DecompressGradients,  // what all ranks sent, into the bucket
  SettleErrors,         // fp16: errors of a step that is skipped become what they were before it
  FetchState,           // offloaded optimizer state of the range, from the host
  StoreState,           // the same back, updated
};

struct StepOp {
  StepWork work = StepWork::LoadBatch;
  FlatRange range;
  /// Present: of `range` only what the rank owns of this one of Program::buckets.
  std::optional<int> bucket = std::nullopt;
  bool weight_decay = false;  // OptimizerUpdate
  int tp_copies =
      1;  // SquaredNorm: adjacent tp (expert: etp) ranks with the same gradients; the first counts
  /// With experts, norm and loss are summed over all ranks: SquaredNorm and MaskLoss count on the
  /// first of the ranks that hold the same (dp and cp 0; for `expert` ranges, expert-dp 0).
  bool first_replica_only = false;
  bool expert = false;
  int load_row = 0;  // BalanceExperts: of Region::ExpertLoad
};

/// Collective on flat ranges of gradients, weights or scalars, in place: a ReduceScatter leaves the
/// sum in the part of the range that the rank owns, an AllGather starts from there.
struct FlatCollectiveOp {
  CollectiveOp collective;
  Region region = Region::Gradients;
  FlatRange range;  // elements of the region's dtype
  /// Present: `range` is that of this one of Program::buckets; with `owned` the operation works on
  /// the rank's part of it alone.
  std::optional<int> bucket = std::nullopt;
  bool owned = false;
};

/// What a task of some kind runs of a layer, as one operation: what the simulator plays where only
/// its end matters (lower_merged). The runtime never meets one.
struct LayerPassOp {
  TaskKind kind = TaskKind::Forward;
  // Indexes into Block::forward, or of a backward task ::backward, with what is listed one by one
  // before and after the pass.
  std::vector<int> lead, operations, tail;
};

struct Operation {
  std::string name;  // "qkv", "qkv.input_grad", "mlp_down.all_reduce"
  Phase phase = Phase::Forward;
  Lane lane = Lane::Compute;
  std::variant<ComputeOp, CollectiveOp, PeerOp, StepOp, FlatCollectiveOp, LayerPassOp> work;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  bool deferrable =
      false;  // of a backward pass: belongs to the weight-gradient task if it is split
  bool once_per_step = false;  // of a forward pass: only when it visits the layer first
};

/// A layer kind of this role, for one micro-batch: identical layers share it.
struct Block {
  std::string name;  // "embedding", "dense", "head"
  std::vector<Value> values;
  std::vector<Operation> forward;
  std::vector<Operation> backward;         // with what it recomputes
  std::vector<Operation> passes;           // merged programs: a LayerPassOp each
  std::int64_t saved_bytes = 0;            // kept by the forward pass, per layer and micro-batch
  KeptBytes kept_bytes{};                  // the same by Keep, with what the input gradient leaves
  std::int64_t transient_bytes = 0;        // that a pass over it needs at once
  std::int64_t quantized_bytes = 0;        // of a layer in Region::QuantizedWeights
  std::optional<ValueId> input;            // Storage::LayerInput
  std::optional<ValueId> output_gradient;  // Storage::LayerOutputGrad
};

/// A layer of the model placed in a chunk of this role.
struct LayerInstance {
  int block = 0;
  std::optional<int> layer;  // model layer; absent for embedding and head
  int chunk = 0;
  std::vector<int> parameters;        // block-local parameter index -> Program::parameters
  std::int64_t quantized_offset = 0;  // of its part in Region::QuantizedWeights
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
  int task = -1;  // index into tasks; -1 = step-level (load, reduce, optimizer)
  int microbatch = -1;
  int chunk = 0;
  int layer = -1;  // index into layers; -1 = task- or step-level
  int boundary_slot = 0;
  int transient_slot = 0;
  int weight_slot = 0;      // of Region::GatheredWeights
  int gradient_slot = 0;    // of Region::UnreducedBuckets, OptimizerStaging
  int compressed_slot = 0;  // of Region::CompressedGradients
  bool accumulate = false;  // weight gradients: add to what earlier micro-batches left
  std::uint64_t id = 0;     // stable over lowerings of the same plan: hash of (task, layer, name)
  std::vector<int> waits;   // indexes of earlier instances on other lanes
};

/// Ranks with equal stage and local shapes share one program.
struct Role {
  int stage = 0;            // coordinate in the pipeline
  bool first_stage = true;  // holds the embedding
  bool last_stage = true;   // holds the head; in a V that is the first rank, too
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
  std::vector<Task> tasks;
  std::vector<Operation> step_operations;  // load, pp transfers, reductions, optimizer
  std::vector<OperationInstance> instances;
  MemoryPlan memory;
};

const Operation& operation_of(const Program& program, const OperationInstance& instance);

/// Of a CollectiveOp or FlatCollectiveOp; null for any other.
const CollectiveOp* collective_of(const Operation& operation);
/// Whose communicators the program's collectives need.
std::set<Group> groups_used(const Program& program);

/// The chunk of this role that gets the output of `chunk` without a message, if one does.
std::optional<int> chunk_after(const Program& program, int chunk);
/// The one whose output it gets so.
std::optional<int> chunk_before(const Program& program, int chunk);

/// Local shape of a value, evaluated. @throws InvariantError if a size does not divide
std::vector<std::int64_t> local_shape(const Program& program, const Value& value);
/// With other values of the symbols than the planned ones.
std::vector<std::int64_t> local_shape(const models::SymbolValues& sizes, const Value& value);

/// Does it hold the rows that the router sends to the experts here?
bool has_routed_rows(const Value& value);

}  // namespace meshplan::program
