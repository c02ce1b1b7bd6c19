#include "memory/stage_memory.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compression/compress_reductions.hpp"
#include "core/index.hpp"
#include "memory/attention_workspace.hpp"
#include "program/compression/compression.hpp"
#include "program/context/document_context.hpp"
#include "program/memory/activations.hpp"
#include "program/memory/address.hpp"
#include "program/memory/offload.hpp"
#include "program/memory/offloaded_activations.hpp"
#include "program/zero/zero.hpp"
#include "zero/unit_stream.hpp"

namespace meshplan::program {
namespace {

std::optional<Keep> keep_of_input(const Block& block) {
  const auto input = std::ranges::find_if(block.values, [](const Value& value) {
    return value.storage == Storage::LayerInput && !value.alias;
  });
  return input == block.values.end() ? std::nullopt : std::optional(input->keep);
}

/// By chunk, of a micro-batch, on the device.
std::vector<ChunkKeeps> keeps_of(const Program& program) {
  std::vector<ChunkKeeps> keeps(program.chunks.size());
  for (int i = 0; i < static_cast<int>(program.layers.size()); ++i) {
    const LayerInstance& layer = program.layers[at(i)];
    keeps[at(layer.chunk)].add(resident_bytes(program, i),
                               keep_of_input(program.blocks[at(layer.block)]));
  }
  return keeps;
}

/// The same of what is offloaded.
std::vector<ChunkKeeps> host_keeps_of(const Program& program) {
  std::vector<ChunkKeeps> keeps(program.chunks.size());
  for (int i = 0; i < static_cast<int>(program.layers.size()); ++i) {
    KeptBytes bytes{};
    if (program.layers[at(i)].offloaded)
      bytes[static_cast<std::size_t>(Keep::UntilInputGrad)] = staged_range(program, i).size();
    keeps[at(program.layers[at(i)].chunk)].add(bytes);
  }
  return keeps;
}

/// Of the layer that has most of them.
std::int64_t largest_staged(const Program& program) {
  std::int64_t most = 0;
  for (int i = 0; i < static_cast<int>(program.layers.size()); ++i)
    if (program.layers[at(i)].offloaded) most = std::max(most, staged_range(program, i).end);
  return most;
}

std::int64_t largest_transient(const Program& program) {
  std::int64_t most = 0;
  for (const Block& block : program.blocks) most = std::max(most, block.transient_bytes);
  return most;
}

std::int64_t quantized_bytes(const Program& program) {
  std::int64_t bytes = 0;
  for (const LayerInstance& layer : program.layers)
    bytes += program.blocks[at(layer.block)].quantized_bytes;
  return bytes;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Bytes that a stage hands to the next.
std::int64_t stream_bytes(const Plan& plan, const models::SymbolValues& sizes) {
  const std::int64_t parts = plan.parallel.sp ? plan.parallel.tp : 1;
  return aligned(sizes.tokens / parts * plan.model.hidden_size * size_of(plan.workload.precision));
}

}  // namespace

models::SymbolValues sizes_of(const Plan& plan) {
  return {.tokens = plan.tokens_per_microbatch(),
          .sequences = plan.micro_batch_size,
          .routed_tokens = routed_rows_bound(plan),
          .forwarded_tokens = forwarded_tokens_bound(plan)};
}

void set_sizes(Program& program) {
  program.sizes = sizes_of(program.plan);
  program.document_pairs = expected_pairs(program.plan);
}

void plan_memory(Program& program, const Schedule& schedule, Pass pass) {
  const Plan& plan = program.plan;
  const DType compute = plan.workload.precision;
  auto& regions = program.memory.regions;
  regions.assign(kNumRegions, {});
  const auto set = [&](Region region, std::int64_t stride, int slots = 1) {
    regions[at(static_cast<int>(region))] = {.stride_bytes = aligned(stride), .slots = slots};
  };
  const auto set_flat = [&](Region region) {
    set(region, flat_elements(program, region) * element_bytes(program, region));
  };
  const bool training = pass == Pass::Training;
  set_flat(Region::Weights);
  if (training) {
    if (compute != DType::F32) set_flat(Region::MasterWeights);
    set_flat(Region::Gradients);
    set_flat(Region::Moment1);
    if (plan.workload.optimizer.kind != OptimizerKind::Sgd) set_flat(Region::Moment2);
  }
  if (training && plan.offload_optimizer) {
    for (const Region region : offloaded_regions(plan))
      regions[static_cast<std::size_t>(region)].on_host = true;
    set(Region::OptimizerStaging, staging_bytes(program), kStagingSlots);
  }
  if (plan.offload_parameters) {
    regions[static_cast<std::size_t>(Region::Weights)].on_host = true;
    set(Region::ResidentWeights, resident_elements(program) * size_of(compute));
  }
  if (plan.zero_stage == 3)
    set(Region::GatheredWeights, largest_of_units(program, &Unit::elements) * size_of(compute),
        kUnitSlots);
  if (plan.zero_stage >= 2 && training)
    set(Region::UnreducedBuckets,
        largest_of_units(program, &Unit::trained_elements) * size_of(DType::F32), kUnitSlots);
  if (plan.compression.kind != CompressionKind::None && training) {
    const auto num_buckets = static_cast<int>(program.buckets.size());
    const int slots = keeps_settled_errors(plan) ? 2 : 1;
    set(Region::CompressionErrors, errors_begin(program, num_buckets) * size_of(DType::F32), slots);
    set(Region::SumErrors, sum_errors_begin(program, num_buckets) * size_of(DType::F32), slots);
    regions[static_cast<std::size_t>(Region::CompressedGradients)] = compressed_region(program);
  }
  set(Region::Batch, batch_sizes(plan).total() * plan.num_microbatches() * size_of(DType::I32));
  std::vector<bool> has_backward;
  for (const Chunk& chunk : program.chunks) has_backward.push_back(chunk.has_backward);
  const auto placed = [&](const std::vector<ChunkKeeps>& keeps) {
    return plan_activations(schedule, program.role.stage, plan.num_microbatches(), keeps, training,
                            has_backward);
  };
  ActivationPlan activations = placed(keeps_of(program));
  program.kept_places = std::move(activations.places);
  program.memory.boundary = activations.boundary;
  set(Region::Saved, activations.bytes);
  if (const std::int64_t staged = largest_staged(program); staged > 0) {
    const ActivationPlan on_host = placed(host_keeps_of(program));
    program.host_places.clear();
    for (const KeptBytes& places : on_host.places)
      program.host_places.push_back(places[static_cast<std::size_t>(Keep::UntilInputGrad)]);
    set(Region::OffloadedActivations, on_host.bytes);
    regions[static_cast<std::size_t>(Region::OffloadedActivations)].on_host = true;
    set(Region::StagedActivations, staged, kStagedLayers);
  }
  set(Region::Transient, largest_transient(program), activations.transient_slots);
  set(Region::Boundary, stream_bytes(plan, program.sizes),
      std::max(1, activations.boundary.total()));
  set(Region::Scalars, kNumScalars * kScalarBytes);
  set(Region::QuantizedWeights, quantized_bytes(program));
  program.memory.workspace_bytes = attention_workspace_bytes(program);
  set(Region::ExpertLoad, expert_load_elements(plan) * size_of(DType::F32));
}

}  // namespace meshplan::program
