#include "core/error.hpp"
#include "program/compression.hpp"
#include "runtime/executor.hpp"

namespace meshplan::runtime {
namespace {

using program::CompressedLayout;
using program::Region;
using program::StepWork;

kernels::QuantizeInt8 quantize(const CompressedLayout& layout, const float* values, float* error,
                               std::byte* to) {
  return {.count = layout.elements,
          .block = layout.block,
          .gradient = values,
          .error = error,
          .quantized = reinterpret_cast<std::int8_t*>(to),
          .scales = reinterpret_cast<float*>(to + layout.second_begin)};
}

kernels::DequantizeInt8 dequantize(const CompressedLayout& layout, const std::byte* from,
                                   float* values, bool accumulate) {
  return {.count = layout.elements,
          .block = layout.block,
          .quantized = reinterpret_cast<const std::int8_t*>(from),
          .scales = reinterpret_cast<const float*>(from + layout.second_begin),
          .out = values,
          .accumulate = accumulate};
}

// One bucket's arrays on this rank.
struct Arrays {
  kernels::Backend& backend;
  CompressedLayout layout;
  int rank = 0;  // among those that sum
  float* gradients = nullptr;
  float* errors = nullptr;
  float* sum_errors = nullptr;
  std::byte* sent = nullptr;

  std::byte* record(int part) const { return sent + part * layout.record_bytes; }
  const std::byte* received(int part) const {
    return sent + layout.received_begin() + part * layout.record_bytes;
  }
  float* part_of(float* values, int part) const { return values + part * layout.elements; }
};

void compress_int8(const Arrays& a) {
  for (int part = 0; part < a.layout.parts; ++part)
    a.backend.run(quantize(a.layout, a.part_of(a.gradients, part), a.part_of(a.errors, part),
                           a.record(part)));
}

void sum_int8(const Arrays& a) {
  for (int from = 0; from < a.layout.parts; ++from)
    a.backend.run(dequantize(a.layout, a.received(from), a.part_of(a.gradients, a.rank), from > 0));
}

void compress_sum(const Arrays& a) {
  a.backend.run(quantize(a.layout, a.part_of(a.gradients, a.rank), a.sum_errors, a.record(a.rank)));
}

void decompress_int8(const Arrays& a) {
  for (int part = 0; part < a.layout.parts; ++part)
    a.backend.run(dequantize(a.layout, a.record(part), a.part_of(a.gradients, part), false));
}

void compress_top_k(const Arrays& a) {
  std::byte* to = a.record(a.rank);
  a.backend.run(
      kernels::TopKSelect{.count = a.layout.elements,
                          .block = a.layout.block,
                          .keep = a.layout.keep,
                          .gradient = a.gradients,
                          .error = a.errors,
                          .indices = reinterpret_cast<std::int32_t*>(to),
                          .values = reinterpret_cast<float*>(to + a.layout.second_begin)});
}

void decompress_top_k(const Arrays& a) {
  a.backend.zero(a.gradients, a.layout.compressed * size_of(DType::F32));
  for (int from = 0; from < a.layout.parts; ++from) {
    const std::byte* record = a.record(from);
    a.backend.run(kernels::TopKScatterAdd{
        .count = a.layout.elements,
        .entries = a.layout.blocks * a.layout.keep,
        .indices = reinterpret_cast<const std::int32_t*>(record),
        .values = reinterpret_cast<const float*>(record + a.layout.second_begin),
        .out = a.gradients});
  }
}

}  // namespace

std::function<void()> Executor::bind_compression(const program::OperationInstance& instance,
                                                 const program::StepOp& step) {
  const int index = step.bucket.value();
  const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(index)];
  const auto flat = [&](Region region, program::FlatRange range) {
    return reinterpret_cast<float*>(
        arena_.at(program_, program::flat_address(program_, region, range)));
  };
  const CompressedLayout layout = program::compressed_layout(program_.plan, bucket);
  const std::int64_t errors = program::errors_begin(program_, index);
  program::StepOp compressed = step;
  compressed.range = program::compressed_range(bucket, shard_place_);
  Arrays arrays{.backend = backend_,
                .layout = layout,
                .rank = program::part_of(bucket, shard_place_),
                .gradients = reinterpret_cast<float*>(flat_memory(Region::Gradients, compressed)),
                .errors = flat(Region::CompressionErrors, {errors, errors + layout.compressed}),
                .sent = arena_.at(program_, {.region = Region::CompressedGradients,
                                             .slot = instance.gradient_slot})};
  if (program::keeps_sum_errors(program_.plan, bucket)) {
    const std::int64_t begin = program::sum_errors_begin(program_, index);
    arrays.sum_errors = flat(Region::SumErrors, {begin, begin + layout.elements});
  }
  const bool int8 = program_.plan.compression.kind == program::CompressionKind::Int8;
  const auto bound = [&arrays](void (*work)(const Arrays&)) -> std::function<void()> {
    return [arrays, work] { work(arrays); };
  };
  switch (step.work) {
    case StepWork::CompressGradients:
      return bound(int8 ? compress_int8 : compress_top_k);
    case StepWork::SumCompressed:
      return bound(sum_int8);
    case StepWork::CompressSum:
      return bound(compress_sum);
    case StepWork::DecompressGradients:
      return bound(int8 ? decompress_int8 : decompress_top_k);
    default:
      throw InvariantError("not a step of compression");
  }
}

}  // namespace meshplan::runtime
