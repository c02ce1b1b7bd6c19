#include "program/compression.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "compress_reductions.hpp"
#include "core/error.hpp"
#include "core/index.hpp"
#include "program/shard_layout.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

// 16 bytes of a scale's 1,020 bytes of numbers: 1.6 % more than the numbers alone.
constexpr int kInt8Block = 256;
constexpr int kTopKBlock = 1024;

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

bool compresses_units(const Plan& plan, const Bucket& bucket) {
  return plan.zero_stage >= 2 && bucket.unit && scatters(bucket) && is_compressed(plan, bucket);
}

bool keeps_settled_errors(const Plan& plan) {
  return plan.workload.precision == DType::F16;
}

namespace {

/// Elements that each rank compresses.
std::int64_t compressed_elements(const Bucket& bucket) {
  return bucket.replicas ? bucket.owned_elements() : bucket.range.size();
}

/// Where blocks are counted anew.
std::vector<std::int64_t> block_cuts(const Program& program, int bucket) {
  const ParallelConfig& parallel = program.plan.parallel;
  const bool copied_heads = group_size(Group::KvCopies, program.plan) > 1;
  if (!copied_heads && parallel.etp == 1) return {};
  const std::int64_t alignment = parameter_alignment(program.plan);
  std::set<std::int64_t> cuts;
  for (const Parameter& parameter : program.parameters) {
    // Heads that several tp ranks hold, and biases of experts that all etp ranks do.
    const bool copied =
        parameter.expert ? parameter.shard_dim < 0 : copied_heads && parameter.shard_dim >= 0;
    if (parameter.bucket != bucket || !copied) continue;
    const std::vector<HeldRange> ranges =
        held_ranges(parameter, parameter.expert ? parallel.etp : parallel.tp);
    if (std::ranges::all_of(ranges, [](const HeldRange& range) { return range.copies == 1; }))
      continue;
    for (const HeldRange& range : ranges) cuts.insert(parameter.offset + range.range.begin);
    cuts.insert(parameter.offset + (parameter.elements() + alignment - 1) / alignment * alignment);
  }
  return {cuts.begin(), cuts.end()};
}

std::vector<BlockRun> block_runs(const std::vector<std::int64_t>& cuts, FlatRange record,
                                 int block) {
  std::vector<BlockRun> runs;
  std::int64_t begin = record.begin, first_block = 0;
  const auto end_at = [&](std::int64_t end) {
    if (end <= begin) return;
    runs.push_back({.range = {begin, end}, .first_block = first_block});
    first_block += (end - begin + block - 1) / block;
    begin = end;
  };
  for (const std::int64_t cut : cuts) end_at(std::min(cut, record.end));
  end_at(record.end);
  return runs;
}

/// Of the record of a bucket that has most of them: a bucket is records in a row.
std::int64_t most_blocks(const Program& program, int index, std::int64_t elements, int block) {
  const FlatRange all = program.buckets[at(index)].range;
  const std::vector<std::int64_t> cuts = block_cuts(program, index);
  if (cuts.empty()) return (elements + block - 1) / block;
  std::int64_t most = 0;
  for (std::int64_t begin = all.begin; begin < all.end; begin += elements) {
    const BlockRun last = block_runs(cuts, {begin, begin + elements}, block).back();
    most = std::max(most, last.first_block + (last.range.size() + block - 1) / block);
  }
  return most;
}

}  // namespace

std::vector<BlockRun> block_runs(const Program& program, int bucket, FlatRange record) {
  const bool int8 = program.plan.compression.kind == CompressionKind::Int8;
  return block_runs(block_cuts(program, bucket), record, int8 ? kInt8Block : kTopKBlock);
}

CompressedLayout compressed_layout(const Program& program, int index) {
  const Plan& plan = program.plan;
  const Bucket& bucket = program.buckets[at(index)];
  const bool int8 = plan.compression.kind == CompressionKind::Int8;
  const Group group = summed_over(bucket);
  CompressedLayout layout{.group = group,
                          .scatters = scatters(bucket),
                          .by_parts = int8 || scatters(bucket),
                          .block = int8 ? kInt8Block : kTopKBlock,
                          .parts = group_size(group, plan)};
  layout.compressed = compressed_elements(bucket);
  layout.elements = layout.by_parts ? layout.compressed / layout.parts : layout.compressed;
  layout.blocks = most_blocks(program, index, layout.elements, layout.block);
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
      begin += compressed_elements(program.buckets[at(b)]);
  return begin;
}

std::int64_t sum_errors_begin(const Program& program, int bucket) {
  std::int64_t begin = 0;
  for (int b = 0; b < bucket; ++b)
    if (const Bucket& other = program.buckets[at(b)]; keeps_sum_errors(program.plan, other))
      begin += compressed_elements(other) / group_size(summed_over(other), program.plan);
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
    const std::int64_t size = compressed_layout(program, b).elements;
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
          .slot = instance.compressed_slot,
          .offset = offset,
          .bytes = bytes};
}

/// What work on a bucket's gradients touches at most, whichever rank does it.
Address gradients_of(const Program& program, const OperationInstance& instance, int bucket,
                     Region region) {
  const FlatCollectiveOp all{
      .region = region, .range = program.buckets[at(bucket)].range, .bucket = bucket};
  return flat_places(program, instance, all, {}).all;
}

/// What was lost of gradients, and in fp16 the units in which it is kept.
void add_errors(const Program& program, Region region, std::int64_t begin, std::int64_t elements,
                Footprint& result) {
  result.writes.push_back(flat_address(program, region, {begin, begin + elements}));
  if (keeps_settled_errors(program.plan))
    result.reads.push_back(scalar_address(program, Scalar::GradientScale, 2));
}

void add_settling(const Program& program, Footprint& result) {
  result.reads.push_back(scalar_address(program, Scalar::ClipCoefficient));
  for (const Region region : {Region::CompressionErrors, Region::SumErrors}) {
    const RegionPlan& plan = program.memory.regions[static_cast<std::size_t>(region)];
    for (int slot = 0; slot < plan.slots && plan.stride_bytes > 0; ++slot)
      result.writes.push_back({.region = region, .slot = slot, .bytes = plan.stride_bytes});
  }
}

}  // namespace

FlatPlaces compressed_places(const Program& program, const OperationInstance& instance,
                             const FlatCollectiveOp& flat, const ShardPlace& place) {
  const int index = flat.bucket.value();
  const CompressedLayout layout = compressed_layout(program, index);
  const Address sent = compressed_address(instance, 0, layout.sent_bytes());
  if (flat.collective.collective == Collective::AllToAll)
    return {.all = sent,
            .part = compressed_address(instance, layout.received_begin(), layout.sent_bytes())};
  const int number = part_of(program.buckets[at(index)], place);
  return {.all = sent,
          .part = compressed_address(instance, number * layout.record_bytes, layout.record_bytes)};
}

void add_compression_footprint(const Program& program, const OperationInstance& instance,
                               const StepOp& step, Footprint& result) {
  if (step.work == StepWork::SettleErrors) return add_settling(program, result);
  const int index = step.bucket.value();
  const Bucket& bucket = program.buckets[at(index)];
  const CompressedLayout layout = compressed_layout(program, index);
  const Address gradients = gradients_of(program, instance, index, Region::Gradients);
  const Address sent = compressed_address(instance, 0, layout.sent_bytes());
  switch (step.work) {
    case StepWork::CompressGradients:
      result.reads.push_back(compresses_units(program.plan, bucket)
                                 ? gradients_of(program, instance, index, Region::UnreducedBuckets)
                                 : gradients);
      add_errors(program, Region::CompressionErrors, errors_begin(program, index),
                 layout.compressed, result);
      result.writes.push_back(sent);
      return;
    case StepWork::SumCompressed:
      result.reads.push_back(
          compressed_address(instance, layout.received_begin(), layout.sent_bytes()));
      result.writes.push_back(gradients);
      return;
    case StepWork::CompressSum:
      result.reads.push_back(gradients);
      add_errors(program, Region::SumErrors, sum_errors_begin(program, index), layout.elements,
                 result);
      result.writes.push_back(sent);
      return;
    default:
      result.reads.push_back(sent);
      result.writes.push_back(gradients);
  }
}

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
