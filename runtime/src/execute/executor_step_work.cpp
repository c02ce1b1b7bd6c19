// Executor: work on flat ranges at the end of a step, bound to what this rank owns of them.
#include <algorithm>

#include "execute/executor_body.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offload.hpp"
#include "program/memory/offloaded_activations.hpp"

namespace meshplan::runtime {

using program::OperationInstance;
using program::Region;
using program::Scalar;
using program::StepOp;
using program::StepWork;

namespace {

/// Which one is this among the tp (for experts etp) ranks that hold the same gradients?
int copy_of(const program::Coordinates& place, const StepOp& step) {
  return (step.expert ? place.etp : place.tp) % step.tp_copies;
}

bool works_on_range(StepWork work) {
  return work == StepWork::SquaredNorm || work == StepWork::OptimizerUpdate;
}

/// A range of the gradients of a unit that are not reduced yet.
program::Address unreduced(const program::Program& program, const OperationInstance& instance,
                           const StepOp& step) {
  return program::flat_places(
             program, instance,
             {.region = Region::UnreducedBuckets, .range = step.range, .bucket = step.bucket}, {})
      .all;
}

}  // namespace

/// Is this the rank whose share of a sum over all ranks counts, among those that hold the same?
bool Executor::Body::counts_here(const StepOp& step) const {
  if (!step.first_replica_only) return true;
  if (step.bucket) {
    const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*step.bucket)];
    if (bucket.shards > 1) return !bucket.replicas || groups_.leads(*bucket.replicas);
  }
  const program::Coordinates& place = groups_.coordinates();
  return step.expert ? place.edp == 0 : place.dp == 0 && place.cp == 0;
}

/// The work on what this rank owns of the range.
StepOp Executor::Body::owned_part(StepOp step) const {
  if (!step.bucket) return step;
  const program::FlatRange owned =
      program::owned_range(program_.buckets[static_cast<std::size_t>(*step.bucket)], shard_place_);
  step.range.begin = std::max(step.range.begin, owned.begin);
  step.range.end = std::max(step.range.begin, std::min(step.range.end, owned.end));
  return step;
}

/// Where `range` of a region that is flat over parameters lies, if this rank holds it.
std::byte* Executor::Body::flat_memory(Region region, const StepOp& step) const {
  if (program_.memory.regions[static_cast<std::size_t>(region)].stride_bytes == 0) return nullptr;
  program::FlatRange range = step.range;
  if (step.bucket) {
    const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*step.bucket)];
    const std::int64_t begin =
        program::element_offset(program_.plan, region, bucket, range.begin, shard_place_);
    range = {begin, begin + range.size()};
  }
  return arena_.at(program_, program::flat_address(program_, region, range));
}

/// Adds what was reduced of a micro-batch to what the rank owns of earlier ones.
std::function<void()> Executor::Body::bind_accumulation(const OperationInstance& instance,
                                                        const StepOp& step) {
  const program::FlatPlaces places = program::flat_places(
      program_, instance,
      {.region = Region::UnreducedBuckets, .range = step.range, .bucket = step.bucket},
      shard_place_);
  auto* sum = flat_memory(Region::Gradients, owned_part(step));
  const std::byte* value = arena_.at(program_, places.part);
  if (!instance.accumulate)
    return [this, sum, value, bytes = places.part.bytes] { backend_.copy(sum, value, bytes); };
  const kernels::Operation add = kernels::Accumulate{
      .count = places.part.bytes / size_of(DType::F32), .sum = sum, .value = value};
  return [this, add] { backend_.run(add); };
}

/// What is offloaded of an update's range and the rank owns, to or from the device.
std::function<void()> Executor::Body::bind_state_copy(const OperationInstance& instance,
                                                      const StepOp& step) {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::int64_t bytes;
  };
  if (step.range.size() == 0) return [] {};
  const bool fetch = step.work == StepWork::FetchState;
  std::vector<Copy> copies;
  for (const Region region : program::offloaded_regions(program_.plan)) {
    std::byte* host = flat_memory(region, step);
    std::byte* slot = arena_.at(program_, program::staged_address(program_, instance, region));
    const std::int64_t bytes = step.range.size() * program::element_bytes(program_, region);
    copies.push_back(fetch ? Copy{slot, host, bytes} : Copy{host, slot, bytes});
  }
  return [this, copies, lane = program::operation_of(program_, instance).lane] {
    for (const Copy& copy : copies) device_.copy(copy.to, copy.from, copy.bytes, lane);
  };
}

/// Weights of a bucket that the rank owns, to where they are gathered.
std::function<void()> Executor::Body::bind_weight_fetch(const OperationInstance& instance,
                                                        const StepOp& owned) {
  const program::Bucket& bucket = program_.buckets[static_cast<std::size_t>(*owned.bucket)];
  const program::FlatPlaces places = program::flat_places(
      program_, instance,
      {.region = bucket.unit ? Region::GatheredWeights : Region::ResidentWeights,
       .range = bucket.range,
       .bucket = owned.bucket},
      shard_place_);
  return [this, to = arena_.at(program_, places.part), from = flat_memory(Region::Weights, owned),
          bytes = places.part.bytes, lane = program::operation_of(program_, instance).lane] {
    device_.copy(to, from, bytes, lane);
  };
}

/// What an offloaded layer keeps of a micro-batch, to or from the device.
std::function<void()> Executor::Body::bind_activation_copy(const OperationInstance& instance,
                                                           const StepOp& step) {
  const program::ActivationCopy copy = program::activation_copy(program_, instance, step);
  std::byte* device = arena_.at(program_, copy.on_device);
  std::byte* host = arena_.at(program_, copy.on_host);
  const bool fetch = step.work == StepWork::FetchActivations;
  return [this, to = fetch ? device : host, from = fetch ? host : device, bytes = step.range.size(),
          lane = program::operation_of(program_, instance).lane] {
    device_.copy(to, from, bytes, lane);
  };
}

std::function<void()> Executor::Body::bind_step_work(const OperationInstance& instance,
                                                     const StepOp& whole) {
  const StepOp step = owned_part(whole);
  if (works_on_range(step.work) && step.range.size() == 0) return [] {};
  const auto flat = [&](Region region) {
    return reinterpret_cast<float*>(flat_memory(region, step));
  };
  const bool fp32 = program_.plan.workload.precision == DType::F32;
  const auto state = [&](Region region) {
    const bool staged = program_.memory.regions[static_cast<std::size_t>(region)].on_host;
    if (!staged) return flat(region);
    return reinterpret_cast<float*>(
        arena_.at(program_, program::staged_address(program_, instance, region)));
  };
  switch (step.work) {
    case StepWork::LoadBatch:
      return [this] { load(*batch_); };
    case StepWork::MaskLoss: {
      const bool owner =
          program_.role.last_stage && groups_.coordinates().tp == 0 && counts_here(step);
      if (owner) return [] {};
      const program::Address losses =
          program::flat_address(program_, Region::Scalars, program::loss_scalars(program_.plan));
      return [this, sums = arena_.at(program_, losses), bytes = losses.bytes] {
        backend_.zero(sums, bytes);
      };
    }
    case StepWork::SquaredNorm:
      if (!counts_here(step) || copy_of(groups_.coordinates(), step) != 0) return [] {};
      break;
    case StepWork::AccumulateGradients:
      return bind_accumulation(instance, whole);
    case StepWork::ClearGradients: {
      const program::Address cleared = unreduced(program_, instance, whole);
      return [this, gap = arena_.at(program_, cleared), bytes = cleared.bytes] {
        backend_.zero(gap, bytes);
      };
    }
    case StepWork::FetchState:
    case StepWork::StoreState:
      return bind_state_copy(instance, step);
    case StepWork::FetchWeights:
      return bind_weight_fetch(instance, step);
    case StepWork::StoreActivations:
    case StepWork::FetchActivations:
      return bind_activation_copy(instance, step);
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      return bind_compression(instance, whole);
    case StepWork::ClipCoefficient:
    case StepWork::OptimizerUpdate:
    case StepWork::BalanceExperts:
      break;
  }
  const FlatMemory memory{.master = state(fp32 ? Region::Weights : Region::MasterWeights),
                          .weights = fp32 ? nullptr : state(Region::Weights),
                          .gradients = flat(Region::Gradients),
                          .moment1 = state(Region::Moment1),
                          .moment2 = state(Region::Moment2),
                          .squared_norm = arena_.scalar<double>(Scalar::SquaredNorm),
                          .clip_coefficient = arena_.scalar<float>(Scalar::ClipCoefficient),
                          .gradient_norm = arena_.scalar<float>(Scalar::GradientNorm),
                          .mean_scale = arena_.scalar<float>(Scalar::MeanScale),
                          .expert_load = expert_load(step.load_row),
                          .learning_rate = arena_.scalar<float>(Scalar::LearningRate),
                          .optimizer_step = arena_.scalar<std::int64_t>(Scalar::OptimizerStep)};
  return binder_->bind_step(step, memory);
}

}  // namespace meshplan::runtime
