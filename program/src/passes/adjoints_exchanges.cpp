// Adjoints of exchanges between ranks other than those of tensor parallelism, which are moves
// (layout_moves.hpp), and of the copies beside them.
#include "core/index.hpp"
#include "passes/adjoints.hpp"

namespace meshplan::program {
void exchange_adjoint(BackwardPass& pass, const Operation& op) {
  const ValueId x = op.inputs.front();
  if (!pass.has_gradient(op.outputs.front())) return;  // counts and choices have none
  const Gradient dy = pass.output_gradient(op);
  auto work = std::get<CollectiveOp>(op.work);
  if (work.collective == Collective::AllGather)
    work.collective = Collective::ReduceScatter;
  else if (work.collective == Collective::ReduceScatter)
    work.collective = Collective::AllGather;
  work.reverse = !work.reverse;
  work.elements = element_count(pass.value(dy.buffer).shape);
  if (work.collective == Collective::AllToAllV) {  // rows that were packed have plain gradients
    work.dtype = pass.value(dy.buffer).dtype;
    work.row_elements = pass.value(dy.buffer).shape.back().count;
  }
  const Placement where = work.group == Group::Cp ? dy.where : pass.layer().placement[at(x)];
  const ValueId dx = pass.fresh_gradient(x, where);
  std::vector<ValueId> inputs = {dy.buffer};
  for (std::size_t i = 1; i < op.inputs.size(); ++i) inputs.push_back(pass.need(op.inputs[i]));
  pass.layer().emit(op.name + ".input_grad", Phase::InputGrad, op.lane, work, std::move(inputs),
                    {dx});
  for (const ValueId output : op.outputs) pass.retire(output);
  pass.contribute(x, {dx, where});
}

void exchange_copy_adjoint(BackwardPass& pass, const Operation& op, ComputeOp work) {
  const Gradient dy = pass.output_gradient(op);
  const ValueId dx = pass.fresh_gradient(op.inputs[0], dy.where);
  work.reverse = work.kind == ComputeKind::OrderChunks && !work.reverse;
  if (work.kind == ComputeKind::PackColumns)
    work.kind = ComputeKind::UnpackColumns;
  else if (work.kind == ComputeKind::UnpackColumns)
    work.kind = ComputeKind::PackColumns;
  std::vector<ValueId> inputs = {dy.buffer};
  inputs.insert(inputs.end(), op.inputs.begin() + 1, op.inputs.end());  // order of documents
  pass.emit_input_gradient(op, work, std::move(inputs), {dx});
  pass.contribute(op.inputs[0], {dx, dy.where});
}

}  // namespace meshplan::program
