#include "program/address.hpp"

#include "core/error.hpp"
#include "sharded_layer.hpp"

namespace meshplan::program {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

const Value& input_of(const Program& program, int layer) {
  const Block& block = program.blocks[at(program.layers[at(layer)].block)];
  for (const Value& value : block.values)
    if (value.storage == Storage::LayerInput && !value.alias) return value;
  throw InvariantError("a layer without an input follows another layer");
}

/// Where layer `layer` reads its input: in its own part of the micro-batch's slot.
Address layer_input(const Program& program, int layer, int slot) {
  const Value& value = input_of(program, layer);
  return {.region = Region::Saved,
          .slot = slot,
          .offset = program.layers[at(layer)].saved_offset + value.offset_bytes,
          .bytes = aligned_bytes(value, program.sizes)};
}

Address boundary(const Program& program, int slot) {
  return {.region = Region::Boundary,
          .slot = slot,
          .bytes = program.memory.regions[static_cast<std::size_t>(Region::Boundary)].stride_bytes};
}

Address batch_address(const Program& program, int microbatch, bool targets) {
  const std::int64_t bytes = program.sizes.tokens * size_of(DType::I32);
  const std::int64_t all = bytes * program.plan.num_microbatches();
  return {
      .region = Region::Batch, .offset = (targets ? all : 0) + microbatch * bytes, .bytes = bytes};
}

Address parameter_address(const Program& program, const OperationInstance& instance, int index,
                          Region region) {
  const int global = program.layers[at(instance.layer)].parameters[at(index)];
  const Parameter& parameter = program.parameters[at(global)];
  return flat_address(program, region, {parameter.offset, parameter.offset + parameter.elements()});
}

/// `count` scalars from `first` on.
Address scalar_address(const Program& program, Scalar first, std::int64_t count = 1) {
  const auto begin = static_cast<std::int64_t>(first);
  return flat_address(program, Region::Scalars, {begin, begin + count});
}

void add_step_footprint(const Program& program, const StepOp& step, Footprint& result) {
  const auto scalar = [&](Scalar which, int count = 1) {
    return scalar_address(program, which, count);
  };
  switch (step.work) {
    case StepWork::LoadBatch:
      result.writes.push_back(
          {.region = Region::Batch,
           .bytes = program.memory.regions[static_cast<std::size_t>(Region::Batch)].stride_bytes});
      result.writes.push_back(scalar_address(program, Scalar::LossSum, kNumScalars));
      return;
    case StepWork::MaskLoss:
      result.writes.push_back(scalar(Scalar::LossSum));
      return;
    case StepWork::SquaredNorm:
      result.reads.push_back(flat_address(program, Region::Gradients, step.range));
      result.writes.push_back(scalar(Scalar::SquaredNorm));
      return;
    case StepWork::ClipCoefficient:
      result.reads.push_back(scalar(Scalar::SquaredNorm));
      result.writes.push_back(scalar(Scalar::ClipCoefficient, 2));
      return;
    case StepWork::OptimizerUpdate:
      result.reads.push_back(flat_address(program, Region::Gradients, step.range));
      result.reads.push_back(scalar(Scalar::ClipCoefficient));
      result.reads.push_back(scalar(Scalar::LearningRate, 2));
      for (const Region region :
           {Region::Weights, Region::MasterWeights, Region::Moment1, Region::Moment2})
        if (program.memory.regions[static_cast<std::size_t>(region)].stride_bytes > 0)
          result.writes.push_back(flat_address(program, region, step.range));
      return;
  }
}

}  // namespace

int gradient_slots(const Program& program) {
  return program.role.last_stage ? 1 : 2;
}

std::int64_t element_bytes(const Program& program, Region region) {
  switch (region) {
    case Region::Weights:
      return size_of(program.plan.workload.precision);
    case Region::Scalars:
      return kScalarBytes;
    case Region::MasterWeights:
    case Region::Gradients:
    case Region::Moment1:
    case Region::Moment2:
      return size_of(DType::F32);
    default:
      throw InvariantError("region has no elements of one size");
  }
}

Address flat_address(const Program& program, Region region, FlatRange range) {
  const std::int64_t size = element_bytes(program, region);
  return {.region = region, .offset = range.begin * size, .bytes = range.size() * size};
}

Address address_of(const Program& program, const OperationInstance& instance, ValueId id) {
  const LayerInstance& layer = program.layers[at(instance.layer)];
  const Block& block = program.blocks[at(layer.block)];
  while (block.values[at(id)].alias) id = *block.values[at(id)].alias;
  const Value& value = block.values[at(id)];
  const std::int64_t bytes = aligned_bytes(value, program.sizes);
  const int last_layer = static_cast<int>(program.layers.size()) - 1;
  switch (value.storage) {
    case Storage::Parameter:
      return parameter_address(program, instance, value.index, Region::Weights);
    case Storage::Gradient:
      return parameter_address(program, instance, value.index, Region::Gradients);
    case Storage::BatchIds:
      return batch_address(program, instance.microbatch, false);
    case Storage::BatchTargets:
      return batch_address(program, instance.microbatch, true);
    case Storage::Saved:
      return {Region::Saved, instance.saved_slot, layer.saved_offset + value.offset_bytes, bytes};
    case Storage::LayerInput:
      return layer_input(program, instance.layer, instance.saved_slot);
    case Storage::LayerOutput:
      if (instance.layer == last_layer) return boundary(program, instance.boundary_slot);
      return layer_input(program, instance.layer + 1, instance.saved_slot);
    case Storage::Transient:
      return {Region::Transient, 0, value.offset_bytes, bytes};
    // One stream of gradients runs through all layers of a backward task, updated in place.
    case Storage::LayerOutputGrad:
    case Storage::LayerInputGrad:
      return boundary(program, instance.boundary_slot);
    case Storage::LossScalar:
      return scalar_address(program, Scalar::LossSum);
  }
  throw InvariantError("value without storage");
}

Address peer_address(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  const auto& peer = std::get<PeerOp>(operation.work);
  if (operation.lane == Lane::PpForward && !peer.send)
    return layer_input(program, 0, instance.saved_slot);
  return boundary(program, instance.boundary_slot);
}

Footprint footprint(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  Footprint result;
  if (const auto* peer = std::get_if<PeerOp>(&operation.work)) {
    (peer->send ? result.reads : result.writes).push_back(peer_address(program, instance));
  } else if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work)) {
    result.writes.push_back(flat_address(program, flat->region, flat->range));
  } else if (const auto* step = std::get_if<StepOp>(&operation.work)) {
    add_step_footprint(program, *step, result);
  } else {
    for (const ValueId id : operation.inputs)
      result.reads.push_back(address_of(program, instance, id));
    for (const ValueId id : operation.outputs)
      result.writes.push_back(address_of(program, instance, id));
    const auto* compute = std::get_if<ComputeOp>(&operation.work);
    if (compute != nullptr && compute->kind == models::OpKind::CrossEntropy)
      result.reads.push_back(scalar_address(program, Scalar::GradientScale));
  }
  return result;
}

}  // namespace meshplan::program
