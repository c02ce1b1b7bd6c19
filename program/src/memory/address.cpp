#include "program/memory/address.hpp"

#include "core/error.hpp"
#include "core/index.hpp"
#include "memory/compression_places.hpp"
#include "memory/layer_block.hpp"
#include "program/compression/compression.hpp"
#include "program/context/document_context.hpp"
#include "program/memory/offload.hpp"
#include "program/memory/offloaded_activations.hpp"

namespace meshplan::program {
namespace {

/// As what the layer finds the value: received from another stage, it has arrived before what else
/// the layer keeps.
Keep found_as(const Program& program, int layer, const Value& value) {
  const Chunk& chunk = program.chunks[at(program.layers[at(layer)].chunk)];
  const auto elsewhere = [&](const std::optional<int>& stage) {
    return stage && *stage != program.role.stage;
  };
  if (value.keep == Keep::InForward) return value.keep;
  if (value.storage == Storage::LayerInput && layer == chunk.first_layer &&
      elsewhere(chunk.previous_stage))
    return Keep::Arriving;
  if (value.storage == Storage::LayerOutputGrad && layer + 1 == chunk.end_layer &&
      elsewhere(chunk.next_stage))
    return Keep::ArrivingGradient;
  return value.keep;
}

/// A value that outlives its task: of a micro-batch, in what the layer keeps.
/// @param slot  of Region::StagedActivations, where an offloaded layer's values are at work
Address kept(const Program& program, int layer, int microbatch, int slot, const Value& value) {
  if (is_staged(program, layer, value))
    return {Region::StagedActivations, slot, value.offset_bytes, value.bytes};
  const KeptBytes& places =
      program.kept_places[at(layer) * at(program.plan.num_microbatches()) + at(microbatch)];
  const auto keep = static_cast<std::size_t>(found_as(program, layer, value));
  return {
      .region = Region::Saved, .offset = places[keep] + value.offset_bytes, .bytes = value.bytes};
}

/// Where layer `layer` reads its input. @param slot  the layer's, if it is offloaded
Address layer_input(const Program& program, int layer, int microbatch, int slot) {
  const Block& block = block_of(program, layer);
  require_invariant(block.input.has_value(), "a layer without an input follows another layer");
  return kept(program, layer, microbatch, slot, block.values[at(*block.input)]);
}

Address boundary(const Program& program, int slot) {
  return {.region = Region::Boundary,
          .slot = slot,
          .bytes = program.memory.regions[static_cast<std::size_t>(Region::Boundary)].stride_bytes};
}

/// Where layer `layer` reads the gradient of its output: in the stream of its task, or where it is
/// kept for a later weight gradient.
Address output_gradient(const Program& program, const OperationInstance& instance, int layer) {
  const Block& block = block_of(program, layer);
  if (!block.output_gradient || block.values[at(*block.output_gradient)].keep != Keep::BetweenGrads)
    return boundary(program, instance.boundary_slot);
  return kept(program, layer, *instance.microbatch, instance.staged_slot,
              block.values[at(*block.output_gradient)]);
}

Address layer_output(const Program& program, const OperationInstance& instance) {
  const int chunk = layer_of(program, instance).chunk;
  const int next_slot = (instance.staged_slot + 1) % kStagedLayers;
  if (*instance.layer + 1 < program.chunks[at(chunk)].end_layer)
    return layer_input(program, *instance.layer + 1, *instance.microbatch, next_slot);
  if (const auto next = chunk_after(program, chunk))
    return layer_input(program, program.chunks[at(*next)].first_layer, *instance.microbatch,
                       next_slot);
  return boundary(program, instance.boundary_slot);
}

Address input_gradient(const Program& program, const OperationInstance& instance) {
  const int chunk = layer_of(program, instance).chunk;
  if (*instance.layer > program.chunks[at(chunk)].first_layer)
    return output_gradient(program, instance, *instance.layer - 1);
  if (const auto previous = chunk_before(program, chunk))
    return output_gradient(program, instance, program.chunks[at(*previous)].end_layer - 1);
  return boundary(program, instance.boundary_slot);
}

/// One array after the other, each of all micro-batches.
Address batch_address(const Program& program, int microbatch, const Value& value) {
  const BatchSizes sizes = batch_sizes(program.plan);
  const std::pair<Storage, std::int64_t> arrays[] = {{Storage::BatchIds, sizes.ids},
                                                     {Storage::BatchTargets, sizes.ids},
                                                     {Storage::BatchPositions, sizes.positions},
                                                     {Storage::BatchKeyRanges, sizes.key_ranges},
                                                     {Storage::BatchOrder, sizes.order}};
  std::int64_t begin = 0;
  for (const auto& [storage, elements] : arrays) {
    if (storage == value.storage) {
      const std::int64_t own = models::evaluate(element_count(value.shape), program.sizes);
      begin += microbatch * elements + value.index * own;
      return {.region = Region::Batch,
              .offset = begin * size_of(DType::I32),
              .bytes = own * size_of(DType::I32)};
    }
    begin += elements * program.plan.num_microbatches();
  }
  throw InvariantError(value.name + " is no part of a batch");
}

/// A run inside a bucket that ranks stream: in the slot of its unit.
Address streamed_address(const Program& program, Region region, int slot, const Bucket& bucket,
                         FlatRange range) {
  const std::int64_t begin = bucket.unit_begin + range.begin - bucket.range.begin;
  Address address = flat_address(program, region, {begin, begin + range.size()});
  address.slot = slot;
  return address;
}

Address parameter_address(const Program& program, const OperationInstance& instance, int index,
                          Region region) {
  const int global = layer_of(program, instance).parameters[at(index)];
  const Parameter& parameter = program.parameters[at(global)];
  const Bucket& bucket = program.buckets[at(parameter.bucket)];
  const FlatRange range{parameter.offset, parameter.offset + parameter.elements()};
  if (!holds_owned_part(program.plan, region, bucket)) {
    if (region == Region::Weights && program.plan.offload_parameters)
      return resident_address(program, bucket, range);
    const std::int64_t begin =
        bucket_begin(program.plan, region, bucket) + range.begin - bucket.range.begin;
    return flat_address(program, region, {begin, begin + range.size()});
  }
  if (region == Region::Weights)
    return streamed_address(program, Region::GatheredWeights, instance.weight_slot, bucket, range);
  return streamed_address(program, Region::UnreducedBuckets, instance.gradient_slot, bucket, range);
}

Address expert_load_address(const Program& program, int row) {
  const std::int64_t experts = program.plan.model.moe->num_experts;
  return flat_address(program, Region::ExpertLoad, {row * experts, (row + 1) * experts});
}

/// What work on a flat range touches at most, whichever rank does it.
Address step_address(const Program& program, Region region, const StepOp& step) {
  if (!step.bucket) return flat_address(program, region, step.range);
  const Bucket& bucket = program.buckets[at(*step.bucket)];
  const std::int64_t begin = bucket_begin(program.plan, region, bucket);
  if (holds_owned_part(program.plan, region, bucket))
    return flat_address(program, region, {begin, begin + bucket.owned_elements()});
  const std::int64_t skipped = step.range.begin - bucket.range.begin;
  return flat_address(program, region, {begin + skipped, begin + skipped + step.range.size()});
}

/// Weights and optimizer state of an update's range, or what was fetched of it.
void add_updated_state(const Program& program, const OperationInstance& instance,
                       const StepOp& step, Footprint& result) {
  const bool offloaded = program.plan.offload_optimizer;
  const bool moments = step.work == StepWork::OptimizerUpdate;
  for (const Region region :
       {Region::Weights, Region::MasterWeights, Region::Moment1, Region::Moment2}) {
    const RegionPlan& plan = program.memory.regions[static_cast<std::size_t>(region)];
    const bool moment = region == Region::Moment1 || region == Region::Moment2;
    if (plan.stride_bytes == 0 || plan.on_host || (moment && !moments)) continue;
    result.writes.push_back(step_address(program, region, step));
  }
  if (offloaded) result.writes.push_back(staging_slot(program, instance));
}

void add_step_footprint(const Program& program, const OperationInstance& instance,
                        const StepOp& step, Footprint& result) {
  const auto scalar = [&](Scalar which, int count = 1) {
    return scalar_address(program, which, count);
  };
  switch (step.work) {
    case StepWork::LoadBatch:
      result.writes.push_back(
          {.region = Region::Batch,
           .bytes = program.memory.regions[static_cast<std::size_t>(Region::Batch)].stride_bytes});
      result.writes.push_back(scalar_address(program, Scalar::PredictionLossSum, kNumScalars));
      if (const std::int64_t load = expert_load_elements(program.plan))
        result.writes.push_back(flat_address(program, Region::ExpertLoad, {0, load}));
      return;
    case StepWork::MaskLoss:
      result.writes.push_back(flat_address(program, Region::Scalars, loss_scalars(program.plan)));
      return;
    case StepWork::SquaredNorm:
      result.reads.push_back(step_address(program, Region::Gradients, step));
      result.writes.push_back(scalar(Scalar::SquaredNorm));
      return;
    case StepWork::ClipCoefficient:
      result.reads.push_back(scalar(Scalar::SquaredNorm));
      result.reads.push_back(scalar(Scalar::GradientScale, 2));
      result.writes.push_back(scalar(Scalar::ClipCoefficient, 2));
      return;
    case StepWork::OptimizerUpdate:
      result.reads.push_back(step_address(program, Region::Gradients, step));
      result.reads.push_back(scalar(Scalar::ClipCoefficient));
      result.reads.push_back(scalar(Scalar::LearningRate, 2));
      add_updated_state(program, instance, step, result);
      return;
    case StepWork::FetchState:
    case StepWork::StoreState: {
      const bool fetch = step.work == StepWork::FetchState;
      for (const Region region : offloaded_regions(program.plan))
        (fetch ? result.reads : result.writes).push_back(step_address(program, region, step));
      (fetch ? result.writes : result.reads).push_back(staging_slot(program, instance));
      return;
    }
    case StepWork::FetchWeights: {
      const Bucket& bucket = program.buckets[at(*step.bucket)];
      result.reads.push_back(step_address(program, Region::Weights, step));
      result.writes.push_back(bucket.unit
                                  ? streamed_address(program, Region::GatheredWeights,
                                                     instance.weight_slot, bucket, step.range)
                                  : resident_address(program, bucket, step.range));
      return;
    }
    case StepWork::StoreActivations:
    case StepWork::FetchActivations: {
      const ActivationCopy copy = activation_copy(program, instance, step);
      const bool fetch = step.work == StepWork::FetchActivations;
      result.reads.push_back(fetch ? copy.on_host : copy.on_device);
      result.writes.push_back(fetch ? copy.on_device : copy.on_host);
      return;
    }
    case StepWork::AccumulateGradients:
      result.reads.push_back(streamed_address(program, Region::UnreducedBuckets,
                                              instance.gradient_slot,
                                              program.buckets[at(*step.bucket)], step.range));
      result.writes.push_back(step_address(program, Region::Gradients, step));
      return;
    case StepWork::ClearGradients:
      result.writes.push_back(streamed_address(program, Region::UnreducedBuckets,
                                               instance.gradient_slot,
                                               program.buckets[at(*step.bucket)], step.range));
      return;
    case StepWork::BalanceExperts:
      result.reads.push_back(expert_load_address(program, step.load_row));
      result.reads.push_back(scalar(Scalar::ClipCoefficient));
      add_updated_state(program, instance, step, result);
      return;
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      return add_compression_footprint(program, instance, step, result);
  }
}

/// Work in place; a gather of streamed weights reads what the rank holds of them.
void add_flat_footprint(const Program& program, const OperationInstance& instance,
                        const FlatCollectiveOp& flat, Footprint& result) {
  const FlatPlaces places = flat_places(program, instance, flat, {});
  if (flat.collective.collective == Collective::AllToAll) {
    result.reads.push_back(places.all);
    result.writes.push_back(places.part);
    return;
  }
  const bool gathers_units = flat.region == Region::GatheredWeights;
  if (gathers_units) result.reads.push_back(places.part);
  // A part lies elsewhere on every rank, unless that is all that the region holds of the bucket.
  const bool alike =
      flat.owned && holds_owned_part(program.plan, flat.region, program.buckets[at(*flat.bucket)]);
  result.writes.push_back(alike ? places.part : places.all);
}

}  // namespace

FlatPlaces flat_places(const Program& program, const OperationInstance& instance,
                       const FlatCollectiveOp& flat, const ShardPlace& place) {
  if (!flat.bucket) {
    const Address all = flat_address(program, flat.region, flat.range);
    return {all, all};
  }
  if (flat.region == Region::CompressedGradients)
    return compressed_places(program, instance, flat, place);
  const Bucket& bucket = program.buckets[at(*flat.bucket)];
  const FlatRange owned = owned_range(bucket, place);
  const auto streamed = [&](FlatRange range) {
    const bool weights = flat.region == Region::GatheredWeights;
    return streamed_address(program, flat.region,
                            weights ? instance.weight_slot : instance.gradient_slot, bucket, range);
  };
  const auto held = [&](Region region, FlatRange range) {
    const std::int64_t begin = element_offset(program.plan, region, bucket, range.begin, place);
    return flat_address(program, region, {begin, begin + range.size()});
  };
  switch (flat.region) {
    case Region::GatheredWeights:  // what comes from the host comes to where it is gathered
      return {streamed(flat.range),
              program.plan.offload_parameters ? streamed(owned) : held(Region::Weights, owned)};
    case Region::ResidentWeights:
      return {resident_address(program, bucket, flat.range),
              resident_address(program, bucket, owned)};
    case Region::UnreducedBuckets:
      return {streamed(flat.range), streamed(owned)};
    default: {
      const Address part = held(flat.region, owned);
      const bool only_part = holds_owned_part(program.plan, flat.region, bucket);
      return {only_part ? part : held(flat.region, flat.range), part};
    }
  }
}

std::int64_t element_bytes(const Program& program, Region region) {
  switch (region) {
    case Region::Weights:
    case Region::GatheredWeights:
    case Region::ResidentWeights:
      return size_of(program.plan.workload.precision);
    case Region::Scalars:
      return kScalarBytes;
    case Region::MasterWeights:
    case Region::Gradients:
    case Region::Moment1:
    case Region::Moment2:
    case Region::UnreducedBuckets:
    case Region::ExpertLoad:
    case Region::CompressionErrors:
    case Region::SumErrors:
    case Region::OptimizerStaging:
      return size_of(DType::F32);
    case Region::CompressedGradients:
      return 1;
    default:
      throw InvariantError("region has no elements of one size");
  }
}

Address flat_address(const Program& program, Region region, FlatRange range) {
  const std::int64_t size = element_bytes(program, region);
  return {.region = region, .offset = range.begin * size, .bytes = range.size() * size};
}

FlatRange loss_scalars(const Plan& plan) {
  const auto begin = static_cast<std::int64_t>(plan.model.mtp_layers > 0 ? Scalar::PredictionLossSum
                                                                         : Scalar::LossSum);
  return {begin, static_cast<std::int64_t>(Scalar::LossSum) + 1};
}

Address scalar_address(const Program& program, Scalar first, std::int64_t count) {
  const auto begin = static_cast<std::int64_t>(first);
  return flat_address(program, Region::Scalars, {begin, begin + count});
}

Address address_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const Block& block = block_of(program, *instance.layer);
  while (block.values[at(id)].alias) id = *block.values[at(id)].alias;
  const Value& value = block.values[at(id)];
  switch (value.storage) {
    case Storage::Parameter:
      return parameter_address(program, instance, value.index, Region::Weights);
    case Storage::Gradient:
      return parameter_address(program, instance, value.index, Region::Gradients);
    case Storage::BatchIds:
    case Storage::BatchTargets:
    case Storage::BatchPositions:
    case Storage::BatchKeyRanges:
    case Storage::BatchOrder:
      return batch_address(program, *instance.microbatch, value);
    case Storage::Saved:
      return kept(program, *instance.layer, *instance.microbatch, instance.staged_slot, value);
    case Storage::LayerInput:
      return layer_input(program, *instance.layer, *instance.microbatch, instance.staged_slot);
    case Storage::LayerOutput:
      return layer_output(program, instance);
    case Storage::Transient:
      return {Region::Transient, instance.transient_slot, value.offset_bytes, value.bytes};
    // One stream of gradients runs through all layers of a backward task, updated in place, unless
    // weight gradients are put off.
    case Storage::LayerOutputGrad:
      return output_gradient(program, instance, *instance.layer);
    case Storage::LayerInputGrad:
      return input_gradient(program, instance);
    case Storage::LossScalar:
      return scalar_address(program, value.index > 0 ? Scalar::PredictionLossSum : Scalar::LossSum);
    case Storage::RouterLosses:
      return scalar_address(program, Scalar::BalanceLossSum, 2);
    case Storage::IndexerLoss:
      return scalar_address(program, Scalar::IndexerLossSum);
    case Storage::QuantizedWeight:
      return {.region = Region::QuantizedWeights,
              .offset = layer_of(program, instance).quantized_offset + value.offset_bytes,
              .bytes = value.bytes};
    case Storage::ExpertLoad:
      return expert_load_address(
          program,
          value.index * expert_load_rows(program.plan) +
              expert_load_row(
                  program.plan,
                  layer_of(program, instance).layer.value_or(program.plan.model.num_layers)));
  }
  throw InvariantError("value without storage");
}

Address peer_address(const Program& program, const OperationInstance& instance) {
  const bool sends = std::get<PeerOp>(operation_of(program, instance).work).send;
  if (sends) return boundary(program, instance.boundary_slot);
  const Chunk& chunk = program.chunks[at(instance.chunk)];
  if (carries_activations(operation_of(program, instance).lane))
    return layer_input(program, chunk.first_layer, *instance.microbatch, instance.staged_slot);
  return output_gradient(program, instance, chunk.end_layer - 1);
}

namespace {

/// Does the operation begin a gradient, in units of the whole batch's mean?
bool scales_gradients(const Operation& operation, const ComputeOp& work) {
  return work.kind == ComputeKind::CrossEntropy ||
         ((work.kind == ComputeKind::Router || work.kind == ComputeKind::IndexerLoss) &&
          operation.phase == Phase::InputGrad);
}

}  // namespace

Footprint footprint(const Program& program, const OperationInstance& instance) {
  Footprint result;
  footprint(program, instance, result);
  return result;
}

void footprint(const Program& program, const OperationInstance& instance, Footprint& result) {
  const Operation& operation = operation_of(program, instance);
  result.reads.clear();
  result.writes.clear();
  if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
    (peer->send ? result.reads : result.writes).push_back(peer_address(program, instance));
  } else if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) {
    add_flat_footprint(program, instance, *flat, result);
  } else if (const auto* step = std::get_if<StepOp>(&operation.work)) {
    add_step_footprint(program, instance, *step, result);
  } else {
    for (const ValueId id : operation.inputs)
      result.reads.push_back(address_of(program, instance, id));
    for (const ValueId id : operation.outputs)
      result.writes.push_back(address_of(program, instance, id));
    const auto* compute = std::get_if<ComputeOp>(&operation.work);
    if (compute != nullptr && scales_gradients(operation, *compute))
      result.reads.push_back(scalar_address(program, Scalar::GradientScale));
  }
}

}  // namespace meshplan::program
