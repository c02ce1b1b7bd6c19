#include "experts/adjoints_experts.hpp"

namespace meshplan::program {
void router_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  const ValueId dlogits = pass.fresh_gradient(op.outputs[2], dy.where);
  pass.value(dlogits).dtype = pass.context().compute;
  const ValueId dx = pass.fresh_gradient(x, dy.where);
  std::vector<ValueId> inputs = {dy.buffer, pass.need(op.outputs[1]), pass.need(op.outputs[2]),
                                 op.inputs[1]};
  // What the losses of the router read besides its scores.
  for (const Operation& other : pass.layer().block.forward) {
    const auto* losses = std::get_if<ComputeOp>(&other.work);
    if (losses == nullptr || losses->kind != ComputeKind::RouterLosses) continue;
    for (std::size_t i = 1; i < other.inputs.size(); ++i)
      inputs.push_back(pass.need(other.inputs[i]));
  }
  pass.emit_input_gradient(op, work, std::move(inputs), {dlogits, dx});
  pass.contribute(x, {dx, dy.where});
  std::vector<ValueId> weights = {op.inputs[1]};
  if (work.attributes.router.bias) weights.push_back(op.inputs[2]);
  pass.emit_weight_gradient(op, work, dy, {dlogits, pass.need_for(op.inputs[1], x)}, weights);
}

void dispatch_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  const ValueId row_of_choice = pass.forward().producer(op.inputs[1])->outputs.front();
  const ValueId dx = pass.fresh_gradient(x, dy.where);
  pass.emit_input_gradient(op, work, {dy.buffer, pass.need(row_of_choice)}, {dx});
  pass.contribute(x, {dx, dy.where});
}

void grouped_linear_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  const ValueId x_again = pass.need_for(op.inputs[1], x);
  const ValueId offsets = pass.need(op.inputs[2]);
  const ValueId dx = pass.fresh_gradient(x, dy.where);
  pass.emit_input_gradient(op, work, {dy.buffer, op.inputs[1], offsets}, {dx});
  pass.contribute(x, {dx, dy.where});
  std::vector<ValueId> weights = {op.inputs[1]};
  if (op.inputs.size() > 3) weights.push_back(op.inputs[3]);
  pass.emit_weight_gradient(op, work, dy, {dy.buffer, x_again, offsets}, weights);
}

void combine_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId rows = op.inputs[0];
  const ValueId probabilities = op.inputs[1];
  const ValueId drows = pass.fresh_gradient(rows, dy.where);
  const ValueId dprobabilities = pass.fresh_gradient(probabilities, dy.where);
  pass.emit_input_gradient(
      op, work, {dy.buffer, pass.need(rows), pass.need(probabilities), pass.need(op.inputs[2])},
      {drows, dprobabilities});
  pass.contribute(rows, {drows, dy.where});
  pass.contribute(probabilities, {dprobabilities, dy.where});
}

/// The probabilities' gradients come back with their rows; the choices have none.
void node_routing_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId probabilities = op.inputs[1];
  const ValueId row_of_choice = pass.forward().producer(op.inputs[3])->outputs.front();
  const ValueId dx = pass.fresh_gradient(probabilities, dy.where);
  pass.emit_input_gradient(
      op, work,
      {dy.buffer, pass.need(op.inputs[0]), pass.need(op.inputs[2]), pass.need(row_of_choice)},
      {dx});
  pass.contribute(probabilities, {dx, dy.where});
}

/// Every row of a token has the token's gradient, as if it were sent to the nodes.
void sum_nodes_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId rows = op.inputs[0];
  const ValueId choice_of_row = pass.forward().producer(op.inputs[1])->outputs[1];
  const ValueId drows = pass.fresh_gradient(rows, dy.where);
  pass.emit_input_gradient(op, work, {dy.buffer, pass.need(choice_of_row)}, {drows});
  pass.contribute(rows, {drows, dy.where});
}

void regroup_adjoint(BackwardPass& pass, const Operation& op, ComputeOp work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId dx = pass.fresh_gradient(op.inputs[0], dy.where);
  work.reverse = !work.reverse;
  pass.emit_input_gradient(op, work, {dy.buffer, pass.need(op.inputs[1])}, {dx});
  pass.contribute(op.inputs[0], {dx, dy.where});
}

}  // namespace meshplan::program
