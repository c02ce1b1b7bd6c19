// Adjoints of what linear attention and Mamba consist of: each is one operation, which also makes
// the gradients of its own weights.
#include "passes/adjoints.hpp"

namespace meshplan::program {
namespace {

/// One backward operation for the gradients of the first `values` inputs and of the weights behind
/// them. @param kept  of the outputs, what backward reads
void mixer_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work,
                   std::size_t values, std::size_t weights, const std::vector<ValueId>& kept) {
  const Gradient dy = pass.output_gradient(op);
  std::vector<ValueId> inputs = {dy.buffer};
  std::vector<ValueId> outputs;
  for (std::size_t i = 0; i < values; ++i) {
    inputs.push_back(pass.need(op.inputs[i]));
    outputs.push_back(pass.fresh_gradient(op.inputs[i], dy.where));
  }
  for (std::size_t i = values; i < values + weights; ++i) {
    inputs.push_back(op.inputs[i]);
    if (pass.is_trained(op.inputs[i]))
      outputs.push_back(pass.gradient_of_parameter(op.inputs[i], dy));
  }
  for (const ValueId id : kept) inputs.push_back(pass.need(id));
  if (work.documents) inputs.push_back(op.inputs.back());
  pass.layer().emit(op.name + ".grad", Phase::InputGrad, Lane::Compute, work, std::move(inputs),
                    outputs);
  for (std::size_t i = 0; i < values; ++i) pass.contribute(op.inputs[i], {outputs[i], dy.where});
}

}  // namespace

void convolution_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const std::size_t weights = op.inputs.size() - (work.documents ? 2 : 1);
  mixer_adjoint(pass, op, work, 1, weights, {});
}

void gated_norm_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  mixer_adjoint(pass, op, work, 2, 1, {op.outputs[1]});
}

void recurrence_adjoint(BackwardPass& pass, const Operation& op, const ComputeOp& work) {
  const std::size_t weights = op.inputs.size() - (work.documents ? 3 : 2);
  mixer_adjoint(pass, op, work, 2, weights, {op.outputs[1]});
}

}  // namespace meshplan::program
