#include "core/error.hpp"
#include "execute/executor_body.hpp"
#include "program/compression/compression.hpp"

namespace meshplan::runtime {
namespace {

using program::BlockRun;
using program::CompressedLayout;
using program::FlatRange;
using program::Region;
using program::Scalar;
using program::StepOp;
using program::StepWork;

// One bucket's arrays on this rank. Ranges of runs count from the first gradient that the rank
// compresses.
struct Arrays {
  kernels::Backend& backend;
  CompressedLayout layout;
  std::vector<std::vector<BlockRun>> runs = {};  // of each record
  int rank = 0;                                  // among those that sum
  bool accumulate = false;                       // add to what earlier micro-batches left
  kernels::ErrorUnit unit = {};
  float* gradients = nullptr;  // that the rank compresses
  float* sums = nullptr;       // of the part that the rank sums
  float* errors = nullptr;
  float* sum_errors = nullptr;
  std::byte* sent = nullptr;

  std::byte* record(int part) const { return sent + part * layout.record_bytes; }
  const std::byte* received(int part) const {
    return sent + layout.received_begin() + part * layout.record_bytes;
  }
  const std::vector<BlockRun>& own_runs() const { return runs[static_cast<std::size_t>(rank)]; }
  /// The first gradient of the part that this rank sums.
  std::int64_t own_begin() const { return rank * layout.elements; }
};

/// @param to  the record that the run lies in, @param record_begin  its first gradient
void quantize(const Arrays& a, const BlockRun& run, std::int64_t record_begin, const float* values,
              float* error, std::byte* to) {
  auto* scales = reinterpret_cast<float*>(to + a.layout.second_begin);
  a.backend.run(kernels::QuantizeInt8{
      .count = run.range.size(),
      .block = a.layout.block,
      .gradient = values,
      .error = error,
      .quantized = reinterpret_cast<std::int8_t*>(to) + run.range.begin - record_begin,
      .scales = scales + run.first_block,
      .unit = a.unit});
}

void dequantize(const Arrays& a, const BlockRun& run, std::int64_t record_begin,
                const std::byte* from, float* values, bool accumulate) {
  const auto* scales = reinterpret_cast<const float*>(from + a.layout.second_begin);
  a.backend.run(kernels::DequantizeInt8{
      .count = run.range.size(),
      .block = a.layout.block,
      .quantized = reinterpret_cast<const std::int8_t*>(from) + run.range.begin - record_begin,
      .scales = scales + run.first_block,
      .out = values,
      .accumulate = accumulate});
}

void compress_int8(const Arrays& a) {
  for (int part = 0; part < a.layout.parts; ++part)
    for (const BlockRun& run : a.runs[static_cast<std::size_t>(part)])
      quantize(a, run, part * a.layout.elements, a.gradients + run.range.begin,
               a.errors + run.range.begin, a.record(part));
}

void sum_int8(const Arrays& a) {
  for (int from = 0; from < a.layout.parts; ++from)
    for (const BlockRun& run : a.own_runs())
      dequantize(a, run, a.own_begin(), a.received(from), a.sums + run.range.begin - a.own_begin(),
                 from > 0 || a.accumulate);
}

void compress_sum(const Arrays& a) {
  for (const BlockRun& run : a.own_runs()) {
    const std::int64_t offset = run.range.begin - a.own_begin();
    quantize(a, run, a.own_begin(), a.sums + offset, a.sum_errors + offset, a.record(a.rank));
  }
}

void decompress_int8(const Arrays& a) {
  for (int part = 0; part < a.layout.parts; ++part)
    for (const BlockRun& run : a.runs[static_cast<std::size_t>(part)])
      dequantize(a, run, part * a.layout.elements, a.record(part), a.gradients + run.range.begin,
                 false);
}

void select(const Arrays& a, const std::vector<BlockRun>& runs, std::byte* to) {
  for (const BlockRun& run : runs) {
    const std::int64_t first = run.first_block * a.layout.keep;
    a.backend.run(
        kernels::TopKSelect{.count = run.range.size(),
                            .block = a.layout.block,
                            .keep = a.layout.keep,
                            .gradient = a.gradients + run.range.begin,
                            .error = a.errors + run.range.begin,
                            .indices = reinterpret_cast<std::int32_t*>(to) + first,
                            .values = reinterpret_cast<float*>(to + a.layout.second_begin) + first,
                            .unit = a.unit});
  }
}

/// @param values  of the record's first gradient, @param record_begin  which one that is
void scatter(const Arrays& a, const std::vector<BlockRun>& runs, std::int64_t record_begin,
             const std::byte* from, float* values) {
  for (const BlockRun& run : runs) {
    const std::int64_t first = run.first_block * a.layout.keep;
    const std::int64_t blocks = (run.range.size() + a.layout.block - 1) / a.layout.block;
    a.backend.run(kernels::TopKScatterAdd{
        .count = run.range.size(),
        .entries = blocks * a.layout.keep,
        .indices = reinterpret_cast<const std::int32_t*>(from) + first,
        .values = reinterpret_cast<const float*>(from + a.layout.second_begin) + first,
        .out = values + run.range.begin - record_begin});
  }
}

void compress_top_k(const Arrays& a) {
  if (!a.layout.by_parts) return select(a, a.own_runs(), a.record(a.rank));
  for (int part = 0; part < a.layout.parts; ++part)
    select(a, a.runs[static_cast<std::size_t>(part)], a.record(part));
}

void sum_top_k(const Arrays& a) {
  if (!a.accumulate) a.backend.zero(a.sums, a.layout.elements * size_of(DType::F32));
  for (int from = 0; from < a.layout.parts; ++from)
    scatter(a, a.own_runs(), a.own_begin(), a.received(from), a.sums);
}

void decompress_top_k(const Arrays& a) {
  a.backend.zero(a.gradients, a.layout.compressed * size_of(DType::F32));
  for (int from = 0; from < a.layout.parts; ++from)
    scatter(a, a.runs[static_cast<std::size_t>(from)], 0, a.record(from), a.gradients);
}

/// Runs of every record, counted from the first gradient that the rank compresses.
std::vector<std::vector<BlockRun>> runs_of(const program::Program& program, int bucket,
                                           const CompressedLayout& layout, std::int64_t begin) {
  std::vector<std::vector<BlockRun>> runs;
  for (int part = 0; part < layout.parts; ++part) {
    const std::int64_t first = begin + (layout.by_parts ? part * layout.elements : 0);
    runs.push_back(program::block_runs(program, bucket, {first, first + layout.elements}));
    for (BlockRun& run : runs.back()) {
      run.range.begin -= begin;
      run.range.end -= begin;
    }
  }
  return runs;
}

}  // namespace

/// The gradients that a step works on: of a unit where they are not reduced yet, of a sum its part.
float* Executor::Body::compressed_gradients(const program::OperationInstance& instance, StepOp step,
                                            FlatRange range) const {
  const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*step.bucket)];
  const bool unreduced =
      step.work == StepWork::CompressGradients && program::compresses_units(program_.plan, bucket);
  step.range = range;
  if (!unreduced) return reinterpret_cast<float*>(flat_memory(Region::Gradients, step));
  const program::FlatCollectiveOp unit{
      .region = Region::UnreducedBuckets, .range = range, .bucket = step.bucket};
  return reinterpret_cast<float*>(
      arena_.at(program_, program::flat_places(program_, instance, unit, shard_place_).all));
}

/// fp16: what a skipped step has changed of the errors becomes what it was.
std::function<void()> Executor::Body::bind_settling() {
  std::vector<kernels::Operation> calls;
  for (const Region region : {Region::CompressionErrors, Region::SumErrors}) {
    const auto slot = [&](int number) {
      return reinterpret_cast<float*>(arena_.at(program_, {.region = region, .slot = number}));
    };
    const auto& plan = program_.memory.regions[static_cast<std::size_t>(region)];
    if (plan.stride_bytes > 0)
      calls.push_back(
          kernels::SettleErrors{.count = plan.stride_bytes / size_of(DType::F32),
                                .error = slot(0),
                                .settled = slot(1),
                                .gradient_scale = arena_.scalar<float>(Scalar::ClipCoefficient)});
  }
  return [this, calls] {
    for (const kernels::Operation& call : calls) backend_.run(call);
  };
}

std::function<void()> Executor::Body::bind_compression(const program::OperationInstance& instance,
                                                       const StepOp& step) {
  if (step.work == StepWork::SettleErrors) return bind_settling();
  const int index = step.bucket.value();
  const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(index)];
  const CompressedLayout layout = program::compressed_layout(program_, index);
  const FlatRange compressed = program::compressed_range(bucket, shard_place_);
  Arrays arrays{.backend = backend_,
                .layout = layout,
                .runs = runs_of(program_, index, layout, compressed.begin),
                .rank = program::part_of(bucket, shard_place_),
                .accumulate = instance.accumulate,
                .sent = arena_.at(program_, {.region = Region::CompressedGradients,
                                             .slot = instance.compressed_slot})};
  const auto errors = [&](Region region, std::int64_t begin, std::int64_t size) {
    return reinterpret_cast<float*>(
        arena_.at(program_, program::flat_address(program_, region, {begin, begin + size})));
  };
  const bool sums = step.work == StepWork::SumCompressed || step.work == StepWork::CompressSum;
  if (sums) {
    const std::int64_t begin = compressed.begin + arrays.own_begin();
    arrays.sums = compressed_gradients(instance, step, {begin, begin + layout.elements});
  } else {
    arrays.gradients = compressed_gradients(instance, step, compressed);
  }
  arrays.errors =
      errors(Region::CompressionErrors, program::errors_begin(program_, index), layout.compressed);
  if (program::keeps_sum_errors(program_.plan, bucket))
    arrays.sum_errors =
        errors(Region::SumErrors, program::sum_errors_begin(program_, index), layout.elements);
  if (program::keeps_settled_errors(program_.plan))
    arrays.unit = {.applied = arena_.scalar<float>(Scalar::GradientScale),
                   .wanted = arena_.scalar<float>(Scalar::MeanScale)};
  const bool int8 = program_.plan.compression.kind == program::CompressionKind::Int8;
  const auto bound = [&arrays](void (*work)(const Arrays&)) -> std::function<void()> {
    return [arrays, work] { work(arrays); };
  };
  switch (step.work) {
    case StepWork::CompressGradients:
      return bound(int8 ? compress_int8 : compress_top_k);
    case StepWork::SumCompressed:
      return bound(int8 ? sum_int8 : sum_top_k);
    case StepWork::CompressSum:
      return bound(compress_sum);
    case StepWork::DecompressGradients:
      return bound(int8 ? decompress_int8 : decompress_top_k);
    default:
      throw InvariantError("not a step of compression");
  }
}

}  // namespace meshplan::runtime
