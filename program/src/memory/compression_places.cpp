#include "memory/compression_places.hpp"

#include "core/index.hpp"
#include "program/compression/compression.hpp"

namespace meshplan::program {

namespace {

/// A part of a slot in Region::CompressedGradients.
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

}  // namespace meshplan::program
