// Lowering of a mixture of experts: what Sharder (shard.cpp) does for the operations on routed
// rows.
#pragma once

#include "layer/sharded_layer.hpp"

namespace meshplan::program {

/// Emits a layer's expert operations over the expert grid (etp, ep). Its collectives are explicit
/// and named by their group, so placements speak of the tp group alone: routed rows have that of
/// the tokens they were made from.
class ExpertSharder {
 public:
  /// All references must outlive it.
  ExpertSharder(const models::LayerGraph& graph, const ShardContext& context, ShardedLayer& layer)
      : graph_(graph), context_(context), layer_(layer) {}

  /// Does the operation work on routed rows?
  bool owns(const models::Op& op) const;

  /// Emits the router with what its losses and capacity need: the load of each sequence is gathered
  /// over the tp ranks, which hold parts of the same sequences.
  /// @param inputs  x, parameters    @param outputs  probabilities, choices, scores
  /// @returns the choices that have room
  ValueId route(const models::Op& op, const ComputeOp& work, std::vector<ValueId> inputs,
                std::vector<ValueId> outputs);

  /// Gathers the tokens over etp, plans who goes where, and sends the rows to the ranks of their
  /// experts. @returns rows sorted by local expert (RoutedTokens, D)
  ValueId dispatch(const models::Op& op, ValueId x, ValueId choices);

  /// Activation or gated activation of routed rows.
  ValueId activation(const models::Op& op, ValueId rows);

  ValueId grouped_linear(const models::Op& op, ValueId rows);

  /// The rows back to their tokens, weighed; summed over etp. @returns (T, D), laid out like the
  /// tokens were
  ValueId combine(const models::Op& op, ValueId rows, ValueId probabilities);

 private:
  /// Ranks that exchange rows, and how many experts (or nodes) these are sorted by.
  struct Level {
    Group group = Group::Ep;
    int ranks = 1;
    int experts = 0;
    std::string prefix = {};  // of the names of its values
  };
  /// Values that the exchange of this layer shares between its operations.
  struct Exchange {
    Level level = {};
    ValueId row_of_choice = 0;
    ValueId choice_of_row = 0;
    ValueId offsets = 0;   // (L + 1): where the rows of each local expert begin
    ValueId received = 0;  // (ranks, L)
    ValueId rows = 0;      // (2, ranks)
    Placement tokens = Placement::Replicated;
  };

  ValueId add(std::string name, DType dtype, std::vector<models::Dim> shape);
  /// Rows like those of another value.
  ValueId add_rows(std::string name, const models::Dim& rows, ValueId like);
  ValueId pack(const models::Op& op, ValueId tokens);
  ValueId unpack(const models::Op& op, ValueId rows);
  void emit(std::string name, Lane lane, decltype(Operation::work) work,
            std::vector<ValueId> inputs, std::vector<ValueId> outputs);
  ValueId sequence_load(const models::Op& op, const ComputeOp& work, ValueId choices);
  ValueId gather_load(const std::string& name, ValueId own, Lane lane, Group group, int ranks);
  void count_step_load(const models::Op& op, ComputeOp work, ValueId choices, bool taken);
  ValueId all_gather(const std::string& name, ValueId from);
  ValueId reduce_scatter(const std::string& name, ValueId from);
  void plan(const models::Op& op, ValueId choices, const Level& level);
  void exchange_counts(const models::Op& op, ValueId counts);
  ValueId all_to_all(const Exchange& exchange, const std::string& name, ValueId from,
                     const models::Dim& rows, bool reverse);
  /// From planned rows of tokens to rows sorted by local expert.
  ValueId to_experts(const models::Op& op, ValueId tokens, const models::Dim& copies);
  /// The same over nodes: dispatch_by_node.cpp.
  ValueId to_nodes(const models::Op& op, ValueId tokens, ValueId choices);
  void route_forwarded(const models::Op& op, ValueId choices, ValueId node_choices,
                       const models::Dim& top_k);
  ValueId sum_in_node(const models::Op& op, ValueId rows);
  ValueId sum_nodes(const models::Op& op, ValueId sums);
  ValueId regroup(const std::string& name, ValueId from, bool reverse);
  ValueId expert_parameter(models::TensorId id, std::optional<int> sharded_dim);
  /// A dimension of the experts' inner width, divided over etp where the tensor is.
  models::Dim inner(const models::Tensor& tensor) const;

  const models::LayerGraph& graph_;
  const ShardContext& context_;
  ShardedLayer& layer_;
  Exchange exchange_;
  Exchange nodes_;  // between nodes, where tokens travel once to each
  ValueId router_probabilities_ = 0;
  ValueId forwarded_probabilities_ = 0;  // of the tokens that this rank forwards
  ValueId forwarded_choices_ = 0;
};

}  // namespace meshplan::program
