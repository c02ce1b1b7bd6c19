#include "cost/compression_cost.hpp"

#include <fmt/format.h>

#include "program/compression/compression.hpp"

namespace meshplan::program {

namespace {

/// Elements of which something was lost.
std::int64_t kept_errors(const Program& program) {
  const auto num_buckets = static_cast<int>(program.buckets.size());
  return errors_begin(program, num_buckets) + sum_errors_begin(program, num_buckets);
}

OperationCost int8_cost(const CompressedLayout& layout, StepWork work) {
  const auto of = [](std::int64_t elements, std::int64_t flops, std::int64_t bytes) {
    return OperationCost{.flops = static_cast<double>(flops * elements), .bytes = bytes * elements};
  };
  switch (work) {
    case StepWork::CompressGradients:
      return of(layout.compressed, 4, 13);
    case StepWork::SumCompressed:
      return of(layout.elements, 2 * layout.parts, 9 * layout.parts - 4);
    case StepWork::CompressSum:
      return of(layout.elements, 4, 13);
    default:
      return of(layout.compressed, 1, 5);
  }
}

OperationCost top_k_cost(const CompressedLayout& layout, StepWork work) {
  const std::int64_t of_record = layout.blocks * layout.keep;
  const std::int64_t entries = layout.parts * of_record;
  if (work == StepWork::CompressGradients)
    return {.flops = static_cast<double>(2 * layout.compressed),
            .bytes = 12 * layout.compressed + 8 * (layout.by_parts ? entries : of_record)};
  return {.flops = static_cast<double>(entries), .bytes = 4 * layout.elements + 16 * entries};
}

}  // namespace

/// Traffic as in kernels/training/gradient_compression.hpp.
OperationCost compression_cost(const Program& program, const StepOp& step) {
  if (step.work == StepWork::SettleErrors) return {.bytes = 8 * kept_errors(program)};
  const CompressedLayout layout = compressed_layout(program, step.bucket.value());
  const bool int8 = program.plan.compression.kind == CompressionKind::Int8;
  return int8 ? int8_cost(layout, step.work) : top_k_cost(layout, step.work);
}

std::string compression_signature(const Program& program, const StepOp& step) {
  if (step.work == StepWork::SettleErrors)
    return fmt::format("settle_errors {}", kept_errors(program));
  const CompressedLayout layout = compressed_layout(program, step.bucket.value());
  const bool int8 = program.plan.compression.kind == CompressionKind::Int8;
  const std::string name = int8 ? "int8" : fmt::format("top{}of{}", layout.keep, layout.block);
  switch (step.work) {
    case StepWork::CompressGradients:
      return fmt::format("compress_{} {}", name, layout.compressed);
    case StepWork::SumCompressed:
      return fmt::format("sum_{}_of_{} {}", name, layout.parts, layout.elements);
    case StepWork::CompressSum:
      return fmt::format("compress_{} {}", name, layout.elements);
    default:
      return fmt::format("decompress_{}_of_{} {}", name, layout.parts, layout.compressed);
  }
}

}  // namespace meshplan::program
