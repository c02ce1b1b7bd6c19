// Rotations of query and key heads that follow a norm of these heads are part of it, in both
// directions: one pass over them less.
#include "passes/fuse_rotations.hpp"

namespace meshplan::program {
namespace {

ComputeOp* work_of(Operation& operation, ComputeKind kind) {
  auto* work = std::get_if<ComputeOp>(&operation.work);
  return work != nullptr && work->kind == kind ? work : nullptr;
}

/// What the rotation knows besides the heads, and the positions of packed documents.
void take_rotation(Operation& norm, const Operation& rope) {
  const auto& from = std::get<ComputeOp>(rope.work);
  auto& to = std::get<ComputeOp>(norm.work);
  to.attributes.rope_base = from.attributes.rope_base;
  to.attributes.rope_size = from.attributes.rope_size;
  to.attributes.rope_scaling = from.attributes.rope_scaling;
  to.documents = from.documents;
  norm.inputs.insert(norm.inputs.end(), rope.inputs.begin() + 1, rope.inputs.end());
}

/// The norm's result is rotated where it lies, or the gradient that the norm reads and changes.
bool fuse(Operation& first, Operation& second) {
  if (first.phase != second.phase || first.outputs.empty() ||
      second.inputs.front() != first.outputs.front())
    return false;
  if (work_of(first, ComputeKind::HeadRmsNorm) != nullptr &&
      work_of(second, ComputeKind::Rope) != nullptr) {
    take_rotation(first, second);
    first.outputs.front() = second.outputs.front();
    second = std::move(first);
    return true;
  }
  if (work_of(first, ComputeKind::Rope) != nullptr &&
      work_of(second, ComputeKind::HeadRmsNorm) != nullptr) {
    take_rotation(second, first);
    second.inputs.front() = first.inputs.front();
    return true;
  }
  return false;
}

}  // namespace

void fuse_rotations(ShardedLayer& layer) {
  for (auto* operations : {&layer.block.forward, &layer.block.backward})
    for (std::size_t i = 0; i + 1 < operations->size(); ++i)
      if (fuse((*operations)[i], (*operations)[i + 1]))
        operations->erase(operations->begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace meshplan::program
