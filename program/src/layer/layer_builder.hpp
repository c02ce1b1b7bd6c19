// A sharded layer while it is made: which value holds each tensor of the layer's graph, how tensors
// and parameters are cut, and how a tensor gets to where an operation needs it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/index.hpp"
#include "layer/layout_moves.hpp"
#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// What a new value is besides its name and shape.
struct Made {
  Storage storage = Storage::Transient;
  std::optional<ValueId> alias;
  std::optional<ValueId> like;  // a value of the same width, whose columns are cut alike
  int ranks = 1;                // of the cp group whose tokens it holds
};

class LayerBuilder {
 public:
  /// Both must outlive it.
  LayerBuilder(const models::LayerGraph& graph, const ShardContext& context);

  ShardedLayer& layer() { return layer_; }
  /// The layer, when it is done.
  ShardedLayer take() { return std::move(layer_); }

  bool sharded() const { return context_.tp > 1; }
  const models::Tensor& tensor(models::TensorId id) const { return graph_.tensors[at(id)]; }
  Placement placement(ValueId id) const { return layer_.placement[at(id)]; }
  /// How the residual stream lies between the tensor-parallel regions.
  Placement stream_placement() const;

  /// The value that now holds a tensor. @throws InvariantError if none does yet
  ValueId value(models::TensorId tensor) const;
  void set_value(models::TensorId tensor, ValueId value);
  /// A new value for a tensor, with the local shape that `where` gives it.
  ValueId add(models::TensorId id, Placement where, Made made = {});
  /// The same for a tensor whose columns are cut by another rule than its own.
  ValueId add_with_columns(models::TensorId id, Placement where,
                           const std::vector<ShardSection>& columns);
  /// The value of a parameter, which operations that share it get alike.
  /// @param dim  that tp shards; absent = replicated
  /// @param cut  how, if another value decides it
  ValueId parameter(models::TensorId id, std::optional<int> dim = std::nullopt,
                    std::optional<std::vector<ShardSection>> cut = std::nullopt);
  std::vector<ShardSection> vocabulary_sections(std::int64_t vocab_size) const;

  /// The tensor as an operation needs it. Who needs it so as well, gets the same value.
  ValueId laid_out(models::TensorId tensor, Placement want);
  /// Has an operation before needed it so?
  bool is_laid_out(models::TensorId tensor, Placement want) const;
  /// For operations that need whole rows: all features of the tokens that are here.
  ValueId whole_rows(models::TensorId tensor);
  /// For operations that mix tokens: all tokens of the heads that are here.
  ValueId whole_heads(models::TensorId tensor);
  /// Sums a partial value; under SP every rank keeps its tokens of the sum.
  void reduce(models::TensorId tensor, const std::string& op_name);

  /// The work of an operation, with the heads of this rank where features are sharded.
  ComputeOp compute(const models::Op& op, bool tokens_sharded, bool features_sharded) const;
  /// Packed documents: where each row is in its own, whatever part of the rows is here.
  void add_positions(ComputeOp& work, std::vector<ValueId>& inputs);
  /// Adds which keys each query sees.
  void add_key_ranges(ComputeOp& work, std::vector<ValueId>& inputs);
  void emit(std::string name, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs);

 private:
  std::vector<models::Dim> local_dims(const models::Tensor& tensor, Placement where,
                                      const std::vector<ShardSection>& columns) const;
  DType dtype_of(models::TensorClass tensor_class) const;
  std::vector<ShardSection> columns_of(const models::Tensor& tensor) const;
  std::optional<std::vector<ShardSection>> sections_of(const models::Tensor& tensor,
                                                       std::size_t dim) const;
  void cut_parameter(Parameter& parameter, const models::Tensor& tensor, int dim,
                     std::optional<std::vector<ShardSection>> cut) const;
  MoveTarget target(std::string name) const;

  const models::LayerGraph& graph_;
  const ShardContext& context_;
  ShardedLayer layer_;
  std::vector<std::optional<ValueId>> current_;  // by graph tensor: the value that now holds it
  std::map<models::TensorId, ValueId> parameters_;
  std::map<std::pair<ValueId, Placement>, ValueId> moved_;
};

}  // namespace meshplan::program
