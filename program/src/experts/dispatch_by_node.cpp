// Lowering of an exchange by node, as DeepEP does it: a token travels once to each node that has
// experts of it, to the rank of the same place there, which forwards it to the ranks of the
// experts. On the way back the node's rows are weighed and summed before one row travels.
#include <algorithm>

#include "experts/shard_experts.hpp"

namespace meshplan::program {

using models::Dim;
using models::Op;
using models::Symbol;

namespace {

constexpr Dim kForwarded{.symbol = Symbol::ForwardedTokens};

}  // namespace

/// Tells the ranks that forward a node's tokens which experts these want, and with which weights.
void ExpertSharder::route_forwarded(const Op& op, ValueId choices, ValueId node_choices,
                                    const Dim& top_k) {
  const ValueId probabilities = all_gather(op.name + ".probabilities", router_probabilities_);
  const ValueId weights = add("sent_probabilities", DType::F32, {kForwarded, top_k});
  const ValueId experts = add("sent_choices", DType::I32, {kForwarded, top_k});
  ComputeOp work{.kind = ComputeKind::NodeRouting, .attributes = op.attributes};
  work.attributes.num_experts = context_.num_experts;
  work.over = Group::EpAcross;
  emit(op.name + ".node_routing", Lane::Compute, work,
       {choices, probabilities, node_choices, nodes_.choice_of_row}, {weights, experts});
  forwarded_choices_ = all_to_all(nodes_, op.name + ".node_choices", experts, kForwarded, false);
  forwarded_probabilities_ =
      all_to_all(nodes_, op.name + ".node_probabilities", weights, kForwarded, false);
}

ValueId ExpertSharder::to_nodes(const Op& op, ValueId tokens, ValueId choices) {
  const int nodes = context_.ep_nodes;
  std::vector<Dim> shape = layer_.block.values[at(choices)].shape;
  const Dim top_k = shape.back();
  shape.back().count = std::min<std::int64_t>(top_k.count, nodes);
  const ValueId node_choices = add("nodes_of_choices", DType::I32, shape);
  ComputeOp work{.kind = ComputeKind::NodeChoices, .attributes = op.attributes};
  work.attributes.num_experts = context_.num_experts;
  work.over = Group::EpAcross;
  emit(op.name + ".nodes", Lane::Compute, work, {choices}, {node_choices});
  plan(op, node_choices,
       {.group = Group::EpAcross, .ranks = nodes, .experts = nodes, .prefix = "node_"});
  nodes_ = exchange_;
  route_forwarded(op, choices, node_choices, top_k);
  const ValueId sent = add_rows("sent_to_nodes", kForwarded, tokens);
  work.kind = ComputeKind::Dispatch;
  work.attributes.top_k = static_cast<int>(shape.back().count);
  work.attributes.num_experts = nodes;
  emit(op.name + ".to_nodes", Lane::Compute, work, {tokens, nodes_.choice_of_row}, {sent});
  // Planned before the tokens come, as the choices are there and the host waits for the counts.
  plan(op, forwarded_choices_,
       {.group = Group::EpWithin,
        .ranks = context_.ep / nodes,
        .experts = context_.num_experts / nodes});
  const ValueId forwarded =
      all_to_all(nodes_, op.name + ".node_all_to_all", sent, kForwarded, false);
  return to_experts(op, forwarded, {.symbol = Symbol::RoutedTokens});
}

/// The experts' rows back to the ranks that forwarded their tokens, weighed. @returns their sums
ValueId ExpertSharder::sum_in_node(const Op& op, ValueId rows) {
  const Dim width = layer_.block.values[at(rows)].shape.back();
  const ValueId sorted = regroup(op.name + ".regroup", rows, true);
  const ValueId back = all_to_all(exchange_, op.name + ".all_to_all", sorted,
                                  {.symbol = Symbol::RoutedTokens}, true);
  const ValueId sums = add(op.name + ".of_node", context_.compute, {kForwarded, width});
  ComputeOp work{.kind = ComputeKind::Combine, .attributes = op.attributes};
  work.attributes.top_k =
      static_cast<int>(layer_.block.values[at(forwarded_choices_)].shape.back().count);
  work.over = Group::EpWithin;
  emit(op.name + ".in_node", Lane::Compute, work,
       {back, forwarded_probabilities_, exchange_.row_of_choice}, {sums});
  return sums;
}

ValueId ExpertSharder::sum_nodes(const Op& op, ValueId sums) {
  const std::vector<Dim> shape = layer_.block.values[at(nodes_.row_of_choice)].shape;
  const Dim width = layer_.block.values[at(sums)].shape.back();
  const ValueId back = all_to_all(nodes_, op.name + ".node_all_to_all", sums, kForwarded, true);
  const ValueId y = add(op.name, context_.compute, {shape.front(), width});
  ComputeOp work{.kind = ComputeKind::SumNodes, .attributes = op.attributes};
  work.attributes.top_k = static_cast<int>(shape.back().count);
  work.over = Group::EpAcross;
  emit(op.name, Lane::Compute, work, {back, nodes_.row_of_choice}, {y});
  return y;
}

}  // namespace meshplan::program
