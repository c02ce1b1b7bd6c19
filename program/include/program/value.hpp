// The tensors that the operations of a block read and write, and where each of them lives.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "models/graph.hpp"

namespace meshplan::program {

/// A value of a block, by index into Block::values.
using ValueId = int;

enum class Storage {
  Parameter,  // index = parameter of the layer instance
  Gradient,   // the same parameter's fp32 gradient
  BatchIds,   // the micro-batch's rows of the step's ids; index k: those k tokens further on
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
  LossScalar,       // fp64 sum of the step's token losses (last stage); index 1: of those of the
                    // prediction modules
  RouterLosses,     // the two fp64 sums of the step's router losses
  IndexerLoss,      // the fp64 sum of the step's indexer losses
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
  std::int64_t float8_size = 0;      // more: rows of so many FP8 numbers, packed in words
  std::optional<ValueId> alias;      // shares the storage of another value (in-place operations)
};

/// Does a value live in Region::Saved?
bool is_kept(const Value& value);

/// Does it hold the rows that the router sends to the experts here?
bool has_routed_rows(const Value& value);

/// Local shape of a value, evaluated. @throws InvariantError if a size does not divide
std::vector<std::int64_t> local_shape(const models::SymbolValues& sizes, const Value& value);

/// Elements of a value, as an expression; at most one dimension has a symbol.
models::Dim element_count(const std::vector<models::Dim>& shape);

}  // namespace meshplan::program
