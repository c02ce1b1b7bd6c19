// A kind of layer as lists of operations, which identical layers of a role share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/operation.hpp"
#include "program/value.hpp"

namespace meshplan::program {

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

/// The value that owns the storage of `id`.
ValueId root_of(const Block& block, ValueId id);

/// Is the buffer of `id` kept, or read by anything of the block besides `reader`?
bool is_read_elsewhere(const Block& block, ValueId id, const Operation& reader);

}  // namespace meshplan::program
