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

/// A maximum in two kernels, unless it is known, and the codes.
int cast_launches(const program::Float8Cast& cast) {
  return cast.largest ? 1 : 3;
}

bool is_library(ComputeKind kind) {
  return kind == ComputeKind::Linear || kind == ComputeKind::ScaledLinear ||
         kind == ComputeKind::Attention;
}

std::int64_t weight_gradients(const Program& program, const OperationInstance& instance,
                              const Operation& operation) {
  return std::ranges::count_if(operation.outputs, [&](ValueId id) {
    return value_of(program, instance, id).storage == program::Storage::Gradient;
  });
}

/// The scores' gradient of cuDNN's deterministic attention, and partial sums of weight gradients:
/// written and read.
std::int64_t scratch_bytes(const Program& program, const OperationInstance& instance,
                           AttentionKernels attention) {
  namespace cuda = kernels::cuda;
  const Operation& operation = program::operation_of(program, instance);
  const auto& work = std::get<ComputeOp>(operation.work);
  const auto shape =
      program::local_shape(program, value_of(program, instance, operation.inputs.front()));
  const auto sums = [&](const cuda::RowRanges& ranges, std::int64_t columns) {
    return 2 * ranges.num_blocks * columns * size_of(DType::F32);
  };
  switch (work.kind) {
    case ComputeKind::Attention:
      if (attention == AttentionKernels::Own) return 0;
      return static_cast<std::int64_t>(2 * program::score_gradient_bytes(program, instance));
    case ComputeKind::RmsNorm:
    case ComputeKind::LayerNorm:
      if (is_forward(operation)) return 0;
      return sums(cuda::norm_ranges(shape[0], shape[1]),
                  weight_gradients(program, instance, operation) * shape[1]);
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

/// Has attention made a tensor, or its gradient, which may have been rotated since?
bool made_by_attention(const Program& program, const OperationInstance& instance, ValueId id) {
  const program::OperationRef& ref = instance.operation;
  const program::Block& block = program.blocks[static_cast<std::size_t>(*ref.block)];
  const auto& operations = ref.backward ? block.backward : block.forward;
  for (int i = ref.index - 1; i >= 0; --i) {
    const Operation& before = operations[static_cast<std::size_t>(i)];
    const bool writes = std::ranges::any_of(before.outputs, [&](ValueId output) {
      return program::root_of(block, output) == program::root_of(block, id);
    });
    const auto* work = std::get_if<ComputeOp>(&before.work);
    if (writes && (work == nullptr || work->kind != ComputeKind::Rope))
      return work != nullptr && work->kind == ComputeKind::Attention;
  }
  return false;
}

/// A tensor is read once to be quantized, for the kernel that makes it can know its largest number;
/// attention is a library's.
std::int64_t least_of_cast(const Program& program, const OperationInstance& instance,
                           const Operation& operation) {
  const ValueId tensor = operation.inputs.front();
  const int reads = made_by_attention(program, instance, tensor) ? 2 : 1;
  std::int64_t bytes = reads * bytes_of(program, instance, tensor);
  for (const ValueId output : operation.outputs) bytes += bytes_of(program, instance, output);
  return bytes;
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
                 ? operands - bytes_of(program, instance, operation.inputs.front())
                 : operands;
    case ComputeKind::Quantize:
      return least_of_cast(program, instance, operation);
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
    case ComputeKind::Quantize:
      return cast_launches(*work.cast);
    case ComputeKind::ScaledLinear:
      return 1;
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
                                           scratch_bytes(program, instance, attention),
                                  .least_bytes = least_bytes(program, instance)});
  }
  if (traffic.operations.empty()) throw ConfigError("the plan has no second micro-batch");
  return traffic;
}

}  // namespace meshplan::bench
