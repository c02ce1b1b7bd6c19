// Between the passes of lowering: a layer after sharding, before and after differentiation.
#pragma once

#include <string>
#include <vector>

#include "core/index.hpp"
#include "program/block.hpp"
#include "program/plan/plan.hpp"

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
  bool documents = false;        // packed into the sequences
  int ep_nodes = 1;              // more: a token travels once to each node of an ep group
  std::int64_t seq_len = 0;      // of a sequence, on all ranks together
  bool float8_dispatch = false;  // tokens travel to experts in FP8
};

/// A parameter of the layer, without its place in the model.
struct LayerParameter {
  Parameter parameter;  // name without the layer's prefix
  ValueId weight = 0;
  ValueId gradient = 0;
  bool frozen() const { return parameter.frozen; }
};

struct ShardedLayer {
  Block block;
  std::vector<Placement> placement;                // of block.values
  std::vector<std::vector<ShardSection>> columns;  // the same: how tp cuts the last dimension
  std::vector<LayerParameter> parameters;
  std::optional<ValueId> input;
  std::optional<ValueId> output;
  std::vector<ValueId> logits;       // of the head and of each prediction module
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
  bool tokens_sharded(ValueId id) const { return placement[at(id)] == Placement::TokensSharded; }
};

}  // namespace meshplan::program
