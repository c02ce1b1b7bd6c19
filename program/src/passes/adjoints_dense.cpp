// Adjoints of what a dense layer, the embedding and the head consist of.
#include <algorithm>

#include "core/error.hpp"
#include "core/index.hpp"
#include "passes/adjoints.hpp"

namespace meshplan::program {
namespace {

using models::Split;

}  // namespace

void loss_adjoint(BackwardPass& pass, const Operation& op) {
  const ValueId logits = op.inputs[0];
  const ValueId targets = op.inputs[1];
  const std::vector<Operation>& forward = pass.layer().block.forward;
  // A prediction module's loss follows the head's: its own is the first from here on.
  const auto combine = std::find_if(
      forward.begin() + (&op - forward.data()), forward.end(), [](const Operation& other) {
        const auto* compute = std::get_if<ComputeOp>(&other.work);
        return compute != nullptr && compute->kind == ComputeKind::CrossEntropyCombine;
      });
  const ValueId lse = pass.need(combine->outputs[1]);
  Value gradient = pass.value(logits);
  gradient.name += ".grad";
  gradient.alias = pass.need(logits);  // in place: logits are never stored twice
  const Placement where = pass.layer().placement[at(logits)];
  const ValueId made = pass.layer().add_value(std::move(gradient), where);
  ComputeOp work = std::get<ComputeOp>(op.work);
  work.kind = ComputeKind::CrossEntropy;
  const std::string loss = op.name.substr(0, op.name.rfind('.'));
  pass.layer().emit(loss + ".input_grad", Phase::InputGrad, Lane::Compute, work,
                    {pass.need(logits), targets, lse}, {made});
  pass.set_gradient(logits, {made, where});
}

void add_adjoint(BackwardPass& pass, const Operation& op) {
  const Gradient dy = pass.output_gradient(op);
  pass.retire(op.outputs.front());
  for (const ValueId input : op.inputs) pass.contribute(input, dy);
}

void bias_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  pass.emit_weight_gradient(op, work, dy, {dy.buffer}, {op.inputs[1]});
  pass.retire(op.outputs.front());
  pass.contribute(op.inputs[0], dy);
}

void linear_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  const std::vector<ValueId> weights(op.inputs.begin() + 1, op.inputs.end());
  // First: an all-gather of x can run under the input gradient.
  const ValueId x_again = pass.need_for(op.inputs[1], x);
  if (work.attributes.detached)
    return pass.emit_weight_gradient(op, work, dy, {dy.buffer, x_again}, weights);
  const bool contracts_sharded =
      pass.context().tp > 1 && (work.split == Split::Column || work.split == Split::Vocab);
  const Placement where = contracts_sharded ? Placement::Partial : pass.layer().placement[at(x)];
  const ValueId dx = pass.fresh_gradient(x, where);
  pass.emit_input_gradient(op, work, {dy.buffer, op.inputs[1]}, {dx});
  pass.contribute(x, {dx, where});
  if (pass.forward().num_consumers(x) == 1)
    pass.finalize(x);  // its reduction runs under the weight gradient
  pass.emit_weight_gradient(op, work, dy, {dy.buffer, x_again}, weights);
}

void embedding_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const bool positions = work.kind == ComputeKind::PositionEmbedding;
  const ValueId source = op.inputs[0];
  std::vector<ValueId> inputs = {dy.buffer};
  if (!positions) inputs.push_back(source);
  if (work.documents && positions) inputs.push_back(op.inputs.back());
  pass.emit_weight_gradient(op, work, dy, std::move(inputs), {op.inputs[1]});
  pass.retire(op.outputs.front());
  if (positions) pass.contribute(source, dy);
}

void in_place_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  pass.retire(op.outputs.front());
  // That of a sum may be the other addend's, too, which a scale leaves as it is.
  const bool shared = pass.shared(op.outputs.front(), dy.buffer);
  require_invariant(!shared || work.kind == ComputeKind::Scale, op.name + ": gradient is shared");
  const ValueId dx =
      shared ? pass.fresh_gradient(op.inputs[0], dy.where) : pass.same_buffer(dy.buffer, dy.where);
  std::vector<ValueId> inputs = {dy.buffer};
  inputs.insert(inputs.end(), op.inputs.begin() + 1, op.inputs.end());  // positions
  pass.emit_input_gradient(op, work, std::move(inputs), {dx});
  pass.contribute(op.inputs[0], {dx, dy.where});
}

void norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  std::vector<ValueId> inputs = {dy.buffer, pass.need(x), op.inputs[1]};
  for (std::size_t i = 1; i < op.outputs.size(); ++i) inputs.push_back(pass.need(op.outputs[i]));
  const std::optional<ValueId> residual = pass.own_gradient(x, dy.where);
  if (residual) inputs.push_back(*residual);
  const ValueId dx =
      residual ? pass.same_buffer(*residual, dy.where) : pass.fresh_gradient(x, dy.where);
  std::vector<ValueId> outputs = {dx};
  for (std::size_t i = 1; i < op.inputs.size(); ++i)  // weight, and a layer norm's bias
    if (pass.is_trained(op.inputs[i]))
      outputs.push_back(pass.gradient_of_parameter(op.inputs[i], dy));
  pass.layer().emit(op.name + ".grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
                    std::move(outputs));
  if (residual)
    pass.set_gradient(x, {dx, dy.where});
  else
    pass.contribute(x, {dx, dy.where});
}

void head_norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  pass.retire(op.outputs.front());
  require_invariant(!pass.shared(op.outputs.front(), dy.buffer), op.name + ": gradient is shared");
  const std::vector<ValueId> inputs = {dy.buffer, pass.need(op.inputs[0]), op.inputs[1],
                                       op.inputs[2], pass.need(op.outputs[1])};
  const ValueId dx = pass.same_buffer(dy.buffer, dy.where);
  std::vector<ValueId> outputs = {dx};
  for (const ValueId weight : {op.inputs[1], op.inputs[2]})
    if (pass.is_trained(weight)) outputs.push_back(pass.gradient_of_parameter(weight, dy));
  pass.layer().emit(op.name + ".grad", Phase::InputGrad, Lane::Compute, work, inputs,
                    std::move(outputs));
  pass.contribute(op.inputs[0], {dx, dy.where});
}

void activation_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId x = op.inputs[0];
  const ValueId dx = pass.fresh_gradient(x, dy.where);
  std::vector<ValueId> inputs = {dy.buffer, pass.need(x)};
  for (std::size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(pass.need(op.inputs[i]));
  pass.emit_input_gradient(op, work, std::move(inputs), {dx});
  pass.contribute(x, {dx, dy.where});
}

void slice_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient first = pass.gradient(op.outputs[0]);
  const Gradient second = pass.gradient(op.outputs[1]);
  require_invariant(first.where == second.where, op.name + ": parts laid out differently");
  const ValueId dx = pass.fresh_gradient(op.inputs[0], first.where);
  pass.emit_input_gradient(op, work, {first.buffer, second.buffer}, {dx});
  pass.contribute(op.inputs[0], {dx, first.where});
}

void concat_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const std::vector<ValueId> parts = {pass.fresh_gradient(op.inputs[0], dy.where),
                                      pass.fresh_gradient(op.inputs[1], dy.where)};
  pass.emit_input_gradient(op, work, {dy.buffer}, parts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    pass.contribute(op.inputs[i], {parts[i], dy.where});
}

void gate_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId dx = pass.fresh_gradient(op.inputs[0], dy.where);
  const ValueId dgate = pass.fresh_gradient(op.inputs[1], dy.where);
  pass.emit_input_gradient(op, work, {dy.buffer, pass.need(op.inputs[0]), pass.need(op.inputs[1])},
                           {dx, dgate});
  pass.contribute(op.inputs[0], {dx, dy.where});
  pass.contribute(op.inputs[1], {dgate, dy.where});
}

void pool_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId dx = pass.fresh_gradient(op.inputs[0], dy.where);
  pass.emit_input_gradient(op, work, {dy.buffer}, {dx});
  pass.contribute(op.inputs[0], {dx, dy.where});
}

}  // namespace meshplan::program
