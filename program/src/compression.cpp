#include "program/compression.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "compress_reductions.hpp"
#include "core/error.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

// 16 bytes of a scale's 1,020 bytes of numbers: 1.6 % more than the numbers alone.
constexpr int kInt8Block = 256;
constexpr int kTopKBlock = 1024;

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::int64_t parameter_alignment(const Plan& plan) {
  switch (plan.compression.kind) {
    case CompressionKind::None:
      return kAlignmentElements;
    case CompressionKind::Int8:
      return kInt8Block;
    case CompressionKind::TopK:
      return kTopKBlock;
  }
  throw InvariantError("compression without an alignment");
}

namespace {

/// With hybrid sharding the fast links sum first, whole: what is left to sum is over the others.
Group summed_over(const Bucket& bucket) {
  return bucket.replicas.value_or(bucket.group);
}

bool scatters(const Bucket& bucket) {
  return bucket.shards > 1 && !bucket.replicas;
}

}  // namespace

bool is_compressed(const Plan& plan, const Bucket& bucket) {
  return plan.compression.kind != CompressionKind::None && bucket.trained &&
         group_size(summed_over(bucket), plan) > 1;
}

int bucket_parts(const Plan& plan, const Bucket& bucket) {
  const bool summed_in_parts = is_compressed(plan, bucket) && !scatters(bucket) &&
                               plan.compression.kind == CompressionKind::Int8;
  return bucket.shards * (summed_in_parts ? group_size(summed_over(bucket), plan) : 1);
}

CompressedLayout compressed_layout(const Plan& plan, const Bucket& bucket) {
  const bool int8 = plan.compression.kind == CompressionKind::Int8;
  const Group group = summed_over(bucket);
  CompressedLayout layout{.group = group,
                          .scatters = scatters(bucket),
                          .by_parts = int8,
                          .block = int8 ? kInt8Block : kTopKBlock,
                          .parts = group_size(group, plan)};
  layout.compressed = bucket.replicas ? bucket.owned_elements() : bucket.range.size();
  layout.elements = layout.by_parts ? layout.compressed / layout.parts : layout.compressed;
  layout.blocks = (layout.elements + layout.block - 1) / layout.block;
  if (int8) {
    layout.second_begin = aligned(layout.elements);
    layout.record_bytes = layout.second_begin + aligned(layout.blocks * size_of(DType::F32));
    return layout;
  }
  layout.keep = std::clamp(static_cast<int>(std::ceil(plan.compression.ratio * layout.block)), 1,
                           layout.block);
  layout.second_begin = aligned(layout.blocks * layout.keep * size_of(DType::I32));
  layout.record_bytes =
      layout.second_begin + aligned(layout.blocks * layout.keep * size_of(DType::F32));
  return layout;
}

int part_of(const Bucket& bucket, const ShardPlace& place) {
  if (bucket.replicas) return bucket.expert() ? place.expert_replica : place.dense_replica;
  return bucket.expert() ? place.expert : place.dense;
}

FlatRange compressed_range(const Bucket& bucket, const ShardPlace& place) {
  return bucket.replicas ? owned_range(bucket, place) : bucket.range;
}

bool keeps_sum_errors(const Plan& plan, const Bucket& bucket) {
  return plan.compression.kind == CompressionKind::Int8 && is_compressed(plan, bucket) &&
         !scatters(bucket);
}

std::int64_t errors_begin(const Program& program, int bucket) {
  std::int64_t begin = 0;
  for (int b = 0; b < bucket; ++b)
    if (is_compressed(program.plan, program.buckets[at(b)]))
      begin += compressed_layout(program.plan, program.buckets[at(b)]).compressed;
  return begin;
}

std::int64_t sum_errors_begin(const Program& program, int bucket) {
  std::int64_t begin = 0;
  for (int b = 0; b < bucket; ++b)
    if (keeps_sum_errors(program.plan, program.buckets[at(b)]))
      begin += compressed_layout(program.plan, program.buckets[at(b)]).elements;
  return begin;
}

std::vector<HeldRun> error_runs(const Program& program, const ShardPlace& place, int replica) {
  std::vector<HeldRun> runs;
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
    const Bucket& bucket = program.buckets[at(b)];
    if (is_compressed(program.plan, bucket) && part_of(bucket, place) == replica)
      runs.push_back(
          {.range = compressed_range(bucket, place), .offset = errors_begin(program, b)});
  }
  return runs;
}

std::vector<int> error_replicas(const Program& program, const ShardPlace& place) {
  std::set<int> replicas;
  for (const Bucket& bucket : program.buckets)
    if (is_compressed(program.plan, bucket)) replicas.insert(part_of(bucket, place));
  return {replicas.begin(), replicas.end()};
}

std::vector<HeldRun> sum_error_runs(const Program& program, const ShardPlace& place) {
  std::vector<HeldRun> runs;
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
    const Bucket& bucket = program.buckets[at(b)];
    if (!keeps_sum_errors(program.plan, bucket)) continue;
    const std::int64_t size = compressed_layout(program.plan, bucket).elements;
    const std::int64_t begin =
        compressed_range(bucket, place).begin + part_of(bucket, place) * size;
    runs.push_back({.range = {begin, begin + size}, .offset = sum_errors_begin(program, b)});
  }
  return runs;
}

namespace {

/// Of a slot in Region::CompressedGradients.
Address compressed_address(const OperationInstance& instance, std::int64_t offset,
                           std::int64_t bytes) {
  return {.region = Region::CompressedGradients,
          .slot = instance.gradient_slot,
          .offset = offset,
          .bytes = bytes};
}

}  // namespace

FlatPlaces compressed_places(const Program& program, const OperationInstance& instance,
                             const FlatCollectiveOp& flat, const ShardPlace& place) {
  const Bucket& bucket = program.buckets[at(flat.bucket.value())];
  const CompressedLayout layout = compressed_layout(program.plan, bucket);
  const Address sent = compressed_address(instance, 0, layout.sent_bytes());
  if (flat.collective.collective == Collective::AllToAll)
    return {.all = sent,
            .part = compressed_address(instance, layout.received_begin(), layout.sent_bytes())};
  return {.all = sent,
          .part = compressed_address(instance, part_of(bucket, place) * layout.record_bytes,
                                     layout.record_bytes)};
}

void add_compression_footprint(const Program& program, const OperationInstance& instance,
                               const StepOp& step, Footprint& result) {
  const CompressedLayout layout =
      compressed_layout(program.plan, program.buckets[at(step.bucket.value())]);
  const Address gradients = flat_address(program, Region::Gradients, step.range);
  const Address sent = compressed_address(instance, 0, layout.sent_bytes());
  switch (step.work) {
    case StepWork::CompressGradients: {
      const std::int64_t begin = errors_begin(program, *step.bucket);
      result.reads.push_back(gradients);
      result.writes.push_back(
          flat_address(program, Region::CompressionErrors, {begin, begin + layout.compressed}));
      result.writes.push_back(sent);
      return;
    }
    case StepWork::SumCompressed:
      result.reads.push_back(
          compressed_address(instance, layout.received_begin(), layout.sent_bytes()));
      result.writes.push_back(gradients);
      return;
    case StepWork::CompressSum: {
      const std::int64_t begin = sum_errors_begin(program, *step.bucket);
      result.reads.push_back(gradients);
      result.writes.push_back(
          flat_address(program, Region::SumErrors, {begin, begin + layout.elements}));
      result.writes.push_back(sent);
      return;
    }
    default:
      result.reads.push_back(sent);
      result.writes.push_back(gradients);
  }
}

OperationCost compression_cost(const Program& program, const StepOp& step) {
  const CompressedLayout layout =
      compressed_layout(program.plan, program.buckets[at(step.bucket.value())]);
  const bool int8 = program.plan.compression.kind == CompressionKind::Int8;
  const std::int64_t entries = layout.parts * layout.blocks * layout.keep;
  const auto of = [](std::int64_t elements, std::int64_t flops, std::int64_t bytes) {
    return OperationCost{.flops = static_cast<double>(flops * elements), .bytes = bytes * elements};
  };
  // Traffic as in kernels/gradient_compression.hpp.
  switch (step.work) {
    case StepWork::CompressGradients:
      if (int8) return of(layout.compressed, 4, 13);
      return {.flops = static_cast<double>(2 * layout.compressed),
              .bytes = 12 * layout.compressed + 8 * layout.blocks * layout.keep};
    case StepWork::SumCompressed:
      return of(layout.elements, 2 * layout.parts, 9 * layout.parts - 4);
    case StepWork::CompressSum:
      return of(layout.elements, 4, 13);
    default:
      if (int8) return of(layout.compressed, 1, 5);
      return {.flops = static_cast<double>(entries), .bytes = 4 * layout.compressed + 16 * entries};
  }
}

std::string compression_signature(const Program& program, const StepOp& step) {
  const CompressedLayout layout =
      compressed_layout(program.plan, program.buckets[at(step.bucket.value())]);
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
