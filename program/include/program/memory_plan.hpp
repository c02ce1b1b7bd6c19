// The memory of a role: what lives in which region, and how much of each the plan asks for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace meshplan::program {

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
  CompressedGradients,   // bytes on their way, of one bucket; slots alternate
  QuantizedWeights,      // FP8: the layers' weights of this step, in both layouts, and their scales
  OptimizerStaging,      // fp32: what the update works on where its state is on the host; slots
                         // alternate
  ResidentWeights,       // with weights on the host: those that every rank holds whole
  OffloadedActivations,  // of the host: what offloaded layers keep from one task to a later one, at
                         // Program::host_places
  StagedActivations,  // the same while a task works on the layer, or a copy is on its way; layers
                      // take its slots in turn
};
constexpr int kNumRegions = 21;

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
  PredictionLossSum,  // fp64: the prediction modules' losses, in units of a token's loss
  LossSum,            // fp64: sum of the token losses of this step
  SquaredNorm,        // fp64: of the gradients that this rank owns
  BalanceLossSum,     // fp64: the routers' load balancing losses, in units of a token's loss
  ZLossSum,           // fp64: likewise their z-losses
  IndexerLossSum,     // fp64: likewise the losses of sparse attention's indexers
  GradientScale,      // fp32: MeanScale times the loss scale of fp16
  MeanScale,          // fp32: 1 / tokens of the global batch that count in the loss
  ClipCoefficient,    // fp32
  GradientNorm,       // fp32
  LearningRate,       // fp32: of this step
  OptimizerStep,      // int64: 1 at the first update
};
constexpr std::int64_t kNumScalars = 12;
constexpr std::int64_t kScalarBytes = 8;

/// Every region starts on this boundary, so that kernels see aligned rows.
constexpr std::int64_t kAlignment = 64;

}  // namespace meshplan::program
