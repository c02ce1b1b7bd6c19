// Sums of the residual stream that are part of an operation beside them. What a linear makes and
// nobody else reads is added to the stream where the product ends (cuBLASLt reads the addend, see
// docs/cuda.md): the sum's passes over memory are gone but one. Where the product is not the whole
// value yet, a partial sum of tensor parallelism, the norm that reads the sum makes it.
#include "passes/fuse_residuals.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

const ComputeOp* work_of(const Operation& operation) {
  return is_forward(operation.phase) ? std::get_if<ComputeOp>(&operation.work) : nullptr;
}

bool is_add(const Operation& operation) {
  const ComputeOp* work = work_of(operation);
  return work != nullptr && work->kind == ComputeKind::Add;
}

class ResidualFuser {
 public:
  explicit ResidualFuser(ShardedLayer& layer) : layer_(layer) {}

  void run() {
    for (auto* operations : {&layer_.block.forward, &layer_.block.backward})
      for (std::size_t i = 0; i < operations->size(); ++i) {
        if (!is_add((*operations)[i])) continue;
        const bool fused = i > 0 && into_product((*operations)[i - 1], (*operations)[i]);
        if (fused ||
            (i + 1 < operations->size() && into_norm((*operations)[i], (*operations)[i + 1])))
          operations->erase(operations->begin() + static_cast<std::ptrdiff_t>(i--));
      }
  }

 private:
  bool into_product(Operation& linear, const Operation& add) const {
    const ComputeOp* work = work_of(linear);
    if (work == nullptr || work->kind != ComputeKind::Linear || linear.phase != add.phase ||
        work->fused_activation || work->adds_residual)
      return false;
    const ValueId product = linear.outputs.front();
    if (std::ranges::count(add.inputs, product) != 1 ||
        is_read_elsewhere(layer_.block, product, add))
      return false;
    std::get<ComputeOp>(linear.work).adds_residual = true;
    linear.inputs.push_back(add.inputs[add.inputs[0] == product ? 1 : 0]);
    linear.outputs = add.outputs;
    return true;
  }

  static bool into_norm(const Operation& add, Operation& norm) {
    const ComputeOp* work = work_of(norm);
    if (work == nullptr ||
        (work->kind != ComputeKind::RmsNorm && work->kind != ComputeKind::LayerNorm) ||
        norm.phase != add.phase || norm.inputs.front() != add.outputs.front())
      return false;
    std::get<ComputeOp>(norm.work).adds_residual = true;
    norm.inputs.front() = add.inputs[0];
    norm.inputs.push_back(add.inputs[1]);
    norm.outputs.push_back(add.outputs.front());
    return true;
  }

  ShardedLayer& layer_;
};

}  // namespace

void fuse_residuals(ShardedLayer& layer) {
  ResidualFuser(layer).run();
}

}  // namespace meshplan::program
