#include "layer_traffic.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/error.hpp"
#include "device/row_ranges.hpp"
#include "program/cost/cost.hpp"

namespace meshplan::bench {
namespace {

using program::ComputeKind;
using program::ComputeOp;
using program::Operation;
using program::OperationInstance;
using program::Phase;
using program::Program;
using program::ValueId;

bool is_forward(const Operation& operation) {
  return operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
}

const program::Value& value_of(const Program& program, const OperationInstance& instance,
                               ValueId id) {
  const auto& layer = program::layer_of(program, instance);
  return program.blocks[static_cast<std::size_t>(layer.block)].values[static_cast<std::size_t>(id)];
}

std::int64_t bytes_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const program::Value& value = value_of(program, instance, id);
  std::int64_t elements = 1;
  for (const std::int64_t size : program::local_shape(program, value)) elements *= size;
  return elements * size_of(value.dtype);
}

/// cuBLASLt has the bias gradient as an epilogue, which overwrites: what is to be added takes
/// another kernel. For fp32 operands it has none: a kernel sums over rows, another over the rest.
int weight_gradient_launches(const Program& program, const OperationInstance& instance,
                             const Operation& operation) {
  if (operation.outputs.size() == 1) return 1;
  if (program.plan.workload.precision == DType::F32) return 3;
  return instance.accumulate ? 2 : 1;
}

/// Our own backward is three: sums of do o, dq, and dk with dv.
int attention_launches(const Operation& operation, AttentionKernels attention) {
  return attention == AttentionKernels::Cudnn || is_forward(operation) ? 1 : 3;
}

bool is_library(ComputeKind kind) {
  return kind == ComputeKind::Linear || kind == ComputeKind::Attention;
}

/// Partial sums of weight gradients: written and read.
std::int64_t scratch_bytes(const Program& program, const OperationInstance& instance) {
  namespace cuda = kernels::cuda;
  const Operation& operation = program::operation_of(program, instance);
  const auto& work = std::get<ComputeOp>(operation.work);
  const auto shape =
      program::local_shape(program, value_of(program, instance, operation.inputs.front()));
  const auto sums = [&](const cuda::RowRanges& ranges, std::int64_t columns) {
    return 2 * ranges.num_blocks * columns * size_of(DType::F32);
  };
  switch (work.kind) {
    case ComputeKind::RmsNorm:
    case ComputeKind::LayerNorm:
      if (is_forward(operation)) return 0;
      return sums(cuda::norm_ranges(shape[0], shape[1]),
                  static_cast<std::int64_t>(operation.outputs.size() - 1) * shape[1]);
    case ComputeKind::HeadRmsNorm: {
      if (is_forward(operation)) return 0;
      const std::int64_t heads = work.attributes.heads + work.attributes.kv_heads;
      return sums(cuda::head_norm_ranges(shape[0], heads),
                  std::int64_t{2} * work.attributes.head_size);
    }
    default:
      return 0;
  }
}

/// The operation's part of what any implementation with library products and flash attention moves.
std::int64_t least_bytes(const Program& program, const OperationInstance& instance) {
  const Operation& operation = program::operation_of(program, instance);
  const std::int64_t operands = program::operation_cost(program, instance).bytes;
  switch (std::get<ComputeOp>(operation.work).kind) {
    case ComputeKind::Rope:  // attention could rotate what it reads, and its gradients before it
                             // writes
    case ComputeKind::Scale:
    case ComputeKind::BiasAdd:
      return 0;
    case ComputeKind::Add:  // the product before it could read the other addend
    case ComputeKind::Accumulate:
      return bytes_of(program, instance, operation.inputs.back());
    case ComputeKind::RmsNorm:  // and write the sum instead of its product
    case ComputeKind::LayerNorm:
      return std::get<ComputeOp>(operation.work).adds_residual
                 ? operands - bytes_of(program, instance, operation.outputs.back())
                 : operands;
    default:
      return operands;
  }
}

std::int64_t total(const std::vector<OperationTraffic>& operations, bool with_library,
                   std::int64_t OperationTraffic::*bytes) {
  std::int64_t sum = 0;
  for (const OperationTraffic& operation : operations)
    if (with_library || !operation.library) sum += operation.*bytes;
  return sum;
}

double ratio_of(const std::vector<OperationTraffic>& operations, bool with_library) {
  return static_cast<double>(total(operations, with_library, &OperationTraffic::bytes)) /
         static_cast<double>(total(operations, with_library, &OperationTraffic::least_bytes));
}

}  // namespace

int LayerTraffic::launches() const {
  int sum = 0;
  for (const OperationTraffic& operation : operations) sum += operation.launches;
  return sum;
}

double LayerTraffic::ratio_of_passes() const {
  return ratio_of(operations, false);
}

double LayerTraffic::ratio() const {
  return ratio_of(operations, true);
}

int kernel_launches(const Program& program, const OperationInstance& instance,
                    AttentionKernels attention) {
  const Operation& operation = program::operation_of(program, instance);
  const auto& work = std::get<ComputeOp>(operation.work);
  switch (work.kind) {
    case ComputeKind::Linear:
      return operation.phase == Phase::WeightGrad
                 ? weight_gradient_launches(program, instance, operation)
                 : 1;
    case ComputeKind::Attention:
      return attention_launches(operation, attention);
    case ComputeKind::BiasAdd:  // backward: partial sums, and their sum
      return is_forward(operation) ? 1 : 2;
    case ComputeKind::RmsNorm:  // its weights' gradients included
    case ComputeKind::LayerNorm:
    case ComputeKind::HeadRmsNorm:
    case ComputeKind::Rope:
    case ComputeKind::Activation:
    case ComputeKind::GatedActivation:
    case ComputeKind::SigmoidGate:
    case ComputeKind::Add:
    case ComputeKind::Accumulate:
    case ComputeKind::Scale:
      return 1;
    default:
      throw ConfigError(
          fmt::format("how many kernels '{}' launches is not known here", operation.name));
  }
}

LayerTraffic layer_traffic(const Program& program, AttentionKernels attention) {
  const auto first = std::ranges::find_if(
      program.layers, [](const program::LayerInstance& layer) { return layer.layer.has_value(); });
  if (first == program.layers.end()) throw ConfigError("the stage holds no layer");
  const auto layer = static_cast<int>(first - program.layers.begin());
  LayerTraffic traffic{.tokens = program.sizes.tokens};
  for (const OperationInstance& instance : program.instances) {
    const Operation& operation = program::operation_of(program, instance);
    const auto* work = std::get_if<ComputeOp>(&operation.work);
    if (work == nullptr || instance.layer != layer || instance.microbatch != 1) continue;
    traffic.operations.push_back({.name = operation.name,
                                  .library = is_library(work->kind),
                                  .launches = kernel_launches(program, instance, attention),
                                  .bytes = program::operation_cost(program, instance).bytes +
                                           scratch_bytes(program, instance),
                                  .least_bytes = least_bytes(program, instance)});
  }
  if (traffic.operations.empty()) throw ConfigError("the plan has no second micro-batch");
  return traffic;
}

}  // namespace meshplan::bench
