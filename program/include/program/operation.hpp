// One operation of a program: what it does, on which lane, and what it reads and writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.hpp"
#include "models/graph.hpp"
#include "program/compute_kind.hpp"
#include "program/memory_plan.hpp"
#include "program/parameter.hpp"
#include "program/plan/mesh.hpp"
#include "program/schedule/schedule.hpp"
#include "program/value.hpp"

namespace meshplan::program {

/// The pipeline's messages have a lane per stream: between two neighbours, in one direction, of
/// activations or of gradients. So none waits behind one of another stream, which could only leave
/// when the first has arrived. `Return` are those of the chunks on the way back of a V. Experts'
/// exchanges inside a node have a lane, too, since they need other links than those between nodes.
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
  FromHost,  // copies of what is offloaded: one lane each way, for links carry both at once
  ToHost,
  EpWithin
};
constexpr int kNumLanes = 17;

/// Does a lane carry activations from stage to stage? (Others of the pipeline carry gradients.)
bool carries_activations(Lane lane);
/// Does a lane carry what layers exchange within a stage?
bool exchanges_within_stage(Lane lane);
/// What goes to experts and comes back?
bool exchanges_with_experts(Lane lane);

/// What an operation is for; also the key of the breakdown.
enum class Phase { Forward, Recompute, InputGrad, WeightGrad, Reduce, Optimizer };

/// A part of the forward pass, or the same once more.
constexpr bool is_forward(Phase phase) {
  return phase == Phase::Forward || phase == Phase::Recompute;
}

/// What a Quantize writes besides the scale: in this order, what is asked for.
struct Float8Cast {
  bool gradient = false;  // E5M2, else E4M3
  bool rows = false;      // as it lies
  bool columns = false;   // transposed
  bool largest = false;   // the second input is the tensor's largest number
  bool operator==(const Float8Cast&) const = default;
};

/// Runs on the compute lane. Operands by kind and phase are listed in docs/lowering.md#operands.
struct ComputeOp {
  ComputeKind kind = ComputeKind::Add;
  models::Split split = models::Split::None;
  models::OpAttributes attributes;  // local: heads and kv_heads of this shard
  bool tokens_sharded = false;      // sequence parallel: rows are this tp rank's part of the tokens
  bool reverse = false;             // RegroupRows, OrderChunks: back to the order before it
  std::vector<ShardSection>
      columns;  // of slices, packs and unpacks: how `over` cuts the last dimension
  /// Ranks that `columns` are cut over; of what plans, sizes, dispatches and combines routed rows,
  /// those that exchange them.
  Group over = Group::Tp;
  /// A Linear's product ends in this function (forward), or in its derivative (input gradient). See
  /// passes/fuse_activations.cpp.
  std::optional<models::ActivationKind> fused_activation = std::nullopt;
  /// The last input is a residual: a Linear adds it to its product; a norm works on the sum with
  /// its first input and writes it as its last output. See passes/fuse_residuals.cpp.
  bool adds_residual = false;
  /// In a ring over the cp group: which step's keys an Attention reads, and so which rows a
  /// MergeAttention or an Accumulate adds to. See context.hpp.
  std::optional<int> ring_step;
  /// Sequences are packed documents: what the operation must know of them is its last input
  /// (positions of a Rope or PositionEmbedding, key ranges of an Attention, order of an
  /// OrderChunks); a MergeAttention works on all rows.
  bool documents = false;
  std::optional<Float8Cast> cast = std::nullopt;  // of a Quantize
  /// A norm or an activation: the last output is the largest magnitude of the first one, for its
  /// Quantize. See passes/keep_largest.cpp.
  bool keeps_largest = false;
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
  FetchWeights,         // offloaded ones that the rank owns of the bucket, from the host
  StoreActivations,     // offloaded ones of a layer and micro-batch, to the host
  FetchActivations,     // the same back
};

struct StepOp {
  StepWork work = StepWork::LoadBatch;
  FlatRange range;  // of activations that are copied: bytes of the layer's slot
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
  bool once_per_step = false;      // of a forward pass: only when it visits the layer first
  models::ModuleSet modules = {};  // of the layer's, that it is of
};

/// The collective of a CollectiveOp or FlatCollectiveOp; null for any other operation.
const CollectiveOp* collective_of(const Operation& operation);

}  // namespace meshplan::program
