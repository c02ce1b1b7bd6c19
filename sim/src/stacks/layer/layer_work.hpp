// What one rank does for one layer and micro-batch: matrix products, attention, streams of bytes
// and collectives, derived from the unsharded graph of models/ by sharding over tp, sp, cp, ep and
// etp and by a profile's habits. Holds no speeds, so one walk serves any device and any constants.
//
// Letters: T tokens of a micro-batch on a cp rank, R routed tokens of a rank, D hidden, F ffn.
#pragma once

#include <optional>
#include <vector>

#include "models/graph.hpp"
#include "program/plan/mesh.hpp"
#include "program/program.hpp"
#include "sim/prices/linear_attention.hpp"
#include "sim/prices/measured_works.hpp"
#include "sim/stacks/execution_profile.hpp"
#include "sim/stacks/training_run.hpp"

namespace meshplan::sim {

enum class WorkKind {
  Product,      // `count` products (m, k) x (k, n)
  Flash,        // fused attention over `pairs` query-key pairs
  Stream,       // bytes through device memory
  Collective,   // bytes that one rank passes in
  Dispatch,     // ep: `bytes` of `m` tokens, each to `count` experts, one copy a rank and node
  Convolution,  // over the last few tokens of each channel
  Recurrence,   // linear attention or a state-space model
  Ring,         // cp: `count` neighbour exchanges of `bytes`, hidden by the attention before it
};

struct WorkItem {
  WorkKind kind = WorkKind::Stream;
  double count = 1;
  double m = 0, n = 0, k = 0;
  bool low_precision = false;  // runs in FP8 if the run does
  double bytes = 0;            // Product: traffic besides its operands, not hidden by it
  double copied = 0;           // Collective: bytes read and written around it in memory
  double pairs = 0;            // Flash: over all local heads
  double head_sizes = 0;       // Flash: of query and value together
  double blocks = 0;           // Flash: independent tiles, for wave quantization
  double exponentials = 1;     // Flash: of a pair
  std::optional<AttentionWork> causal = {};  // Flash: a rank's, where it has whole sequences
  bool backward = false;                     // Product, Flash, Convolution, Recurrence
  std::optional<ShortConvolutionWork> convolution = {};
  std::optional<LinearAttentionWork> recurrence = {};
  bool combines = false;  // Dispatch: the way back, in sums
  bool at_once = false;   // Ring: gathered beside the attention of its first step
  program::Collective collective = program::Collective::AllReduce;
  program::Group group = program::Group::Tp;
  bool routed = false;           // its size follows the busiest expert rank
  bool beside_product = false;   // a tp collective that can move under the product next to it
  bool beside_gradient = false;  // one of them under the other gradient's product, whole
  double kernels = 1;            // launches by the host
  bool awaited = false;          // the host waits for all before it, to know how many rows come
  bool static_router = false;    // of the router: what partial CUDA graphs of expert layers capture
  bool operator==(const WorkItem&) const = default;
};

/// Parameters of a rank.
struct ParameterCount {
  double dense = 0;
  double expert = 0;
  double all() const { return dense + expert; }
  void add(const ParameterCount& other, double times) {
    dense += times * other.dense;
    expert += times * other.expert;
  }
};

/// A weight matrix that is trained: `rows` outputs of `columns` inputs, over all ranks that divide
/// it.
struct TrainedMatrix {
  double rows = 0;
  double columns = 0;
  double count = 1;  // alike, on a rank
  bool expert = false;
  models::Split split = models::Split::None;
  int divided = 1;  // over so many ranks of tp, or of etp

  double elements_of_rank() const { return rows * columns / divided; }
};

/// What a layer of a model that is trained in parts leaves out.
struct FrozenLayer {
  std::vector<bool> parameters;  // are they frozen, in the order of the graph; empty: none is
  bool needs_input_gradient = true;
  bool operator==(const FrozenLayer&) const = default;
};

struct LayerWork {
  std::vector<WorkItem> forward;
  std::vector<WorkItem> recompute;
  std::vector<WorkItem> backward;
  ParameterCount parameters;
  ParameterCount trained;               // those of them that are
  std::vector<TrainedMatrix> matrices;  // of those, but embeddings and the head; for Muon alone
  double saved_bytes = 0;               // kept per micro-batch from forward to backward
  double input_bytes = 0;               // of the layer: all that full recompute keeps
  double transient_bytes = 0;           // largest working set beside what is saved
  double logits = 0;                    // of the head, elements
};

/// @param recomputed  is this layer among those that the run recomputes?
LayerWork layer_work(const models::LayerGraph& layer, const TrainingRun& run,
                     const ExecutionProfile& profile, bool recomputed,
                     const FrozenLayer& frozen = {});

}  // namespace meshplan::sim
