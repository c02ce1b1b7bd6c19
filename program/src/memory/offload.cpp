#include "program/memory/offload.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "program/compression/compression.hpp"
#include "program/zero/zero.hpp"
#include "step_operations.hpp"

namespace meshplan::program {
namespace {

std::int64_t aligned(std::int64_t elements, std::int64_t alignment) {
  return (elements + alignment - 1) / alignment * alignment;
}

/// Elements of a piece where every rank updates everything.
std::int64_t whole_piece(const Plan& plan) {
  return aligned(plan.bucket_bytes / size_of(DType::F32), parameter_alignment(plan));
}

void append_copy(Program& program, const Operation& update, std::size_t piece, bool fetch) {
  StepOp copy = std::get<StepOp>(update.work);
  copy.work = fetch ? StepWork::FetchState : StepWork::StoreState;
  append_step_operation(program, {.name = update.name + (fetch ? ".fetch" : ".store"),
                                  .phase = Phase::Optimizer,
                                  .lane = fetch ? Lane::FromHost : Lane::ToHost,
                                  .work = copy});
  program.instances.back().gradient_slot = static_cast<int>(piece) % kStagingSlots;
}

}  // namespace

std::vector<Region> offloaded_regions(const Plan& plan) {
  std::vector<Region> regions;
  if (plan.offload_parameters) regions.push_back(Region::Weights);
  if (plan.workload.precision != DType::F32) regions.push_back(Region::MasterWeights);
  regions.push_back(Region::Moment1);
  if (plan.workload.optimizer.kind != OptimizerKind::Sgd) regions.push_back(Region::Moment2);
  return regions;
}

std::int64_t offloaded_bytes_per_element(const Plan& plan) {
  std::int64_t bytes = 0;
  for (const Region region : offloaded_regions(plan))
    bytes += region == Region::Weights ? size_of(plan.workload.precision) : size_of(DType::F32);
  return bytes;
}

std::int64_t staging_elements(const Program& program) {
  const std::int64_t alignment = parameter_alignment(program.plan);
  std::int64_t largest = 0;
  if (program.plan.zero_stage > 0) {
    for (const Bucket& bucket : program.buckets)
      if (!bucket.frozen) largest = std::max(largest, bucket.owned_elements());
  } else {
    largest = std::min(whole_piece(program.plan), flat_elements(program, Region::Moment1));
    for (const Parameter& parameter : program.parameters)  // correction biases are never cut
      if (!parameter.trained && !parameter.frozen)
        largest = std::max(largest, parameter.elements());
  }
  return aligned(largest, alignment);
}

std::int64_t staging_bytes(const Program& program) {
  return offloaded_bytes_per_element(program.plan) * staging_elements(program);
}

Address staging_slot(const Program& program, const OperationInstance& instance) {
  return {.region = Region::OptimizerStaging,
          .slot = instance.gradient_slot,
          .bytes = staging_bytes(program)};
}

Address staged_address(const Program& program, const OperationInstance& instance, Region region) {
  const std::int64_t elements = staging_elements(program);
  std::int64_t begin = 0;
  for (const Region other : offloaded_regions(program.plan)) {
    if (other == region) break;
    begin += elements * element_bytes(program, other);
  }
  return {.region = Region::OptimizerStaging,
          .slot = instance.gradient_slot,
          .offset = begin,
          .bytes = elements * element_bytes(program, region)};
}

namespace {

/// Elements [begin, end) of Region::Weights that are held whole: between what is streamed and
/// trained and what is streamed and frozen.
FlatRange whole_weights(const Program& program) {
  FlatRange whole{0, 0};
  for (const Bucket& bucket : program.buckets) {
    if (bucket.unit) continue;
    const std::int64_t begin = bucket_begin(program.plan, Region::Weights, bucket);
    if (whole.size() == 0) whole.begin = begin;
    whole.end = begin + bucket.range.size();
  }
  return whole;
}

}  // namespace

Address resident_address(const Program& program, const Bucket& bucket, FlatRange range) {
  const std::int64_t begin = bucket_begin(program.plan, Region::Weights, bucket) -
                             whole_weights(program).begin + range.begin - bucket.range.begin;
  return flat_address(program, Region::ResidentWeights, {begin, begin + range.size()});
}

std::int64_t resident_elements(const Program& program) {
  return whole_weights(program).size();
}

std::vector<FlatRange> pieces_of(const Program& program, FlatRange run) {
  if (program.plan.zero_stage > 0) return {run};
  std::vector<FlatRange> pieces;
  const std::int64_t most = staging_elements(program);
  for (std::int64_t begin = run.begin; begin < run.end; begin += most)
    pieces.push_back({begin, std::min(run.end, begin + most)});
  return pieces;
}

void append_first_fetches(Program& program, const std::vector<Operation>& updates) {
  for (std::size_t piece = 0; piece < updates.size() && piece < kStagingSlots; ++piece)
    append_copy(program, updates[piece], piece, true);
}

void append_offloaded_updates(Program& program, std::vector<Operation> updates) {
  for (std::size_t piece = 0; piece < updates.size(); ++piece) {
    append_step_operation(program, updates[piece]);
    program.instances.back().gradient_slot = static_cast<int>(piece) % kStagingSlots;
    append_copy(program, updates[piece], piece, false);
    const std::size_t next = piece + kStagingSlots;
    if (next < updates.size()) append_copy(program, updates[next], next, true);
  }
}

}  // namespace meshplan::program
