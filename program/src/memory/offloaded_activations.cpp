#include "program/memory/offloaded_activations.hpp"

#include "core/index.hpp"
#include "memory/layer_block.hpp"

namespace meshplan::program {
namespace {

constexpr auto kKept = static_cast<std::size_t>(Keep::UntilInputGrad);  // where backwards are whole

bool is_first_of_chunk(const Program& program, int layer) {
  return program.chunks[at(program.layers[at(layer)].chunk)].first_layer == layer;
}

/// Bytes of the layer's input that stay on the device, if backward reads it.
std::int64_t resident_input(const Program& program, int layer) {
  const Block& block = block_of(program, layer);
  if (!is_first_of_chunk(program, layer) || !block.input) return 0;
  const Value& input = block.values[at(*block.input)];
  return input.keep == Keep::UntilInputGrad ? input.bytes : 0;
}

}  // namespace

FlatRange staged_range(const Program& program, int layer) {
  return {resident_input(program, layer), block_of(program, layer).kept_bytes[kKept]};
}

KeptBytes resident_bytes(const Program& program, int layer) {
  KeptBytes bytes = block_of(program, layer).kept_bytes;
  if (program.layers[at(layer)].offloaded) bytes[kKept] = resident_input(program, layer);
  return bytes;
}

bool is_staged(const Program& program, int layer, const Value& value) {
  // Every address of what is kept asks: most plans are done here.
  if (!program.layers[at(layer)].offloaded || value.keep != Keep::UntilInputGrad) return false;
  return value.storage != Storage::LayerInput || resident_input(program, layer) == 0;
}

ActivationCopy activation_copy(const Program& program, const OperationInstance& instance,
                               const StepOp& step) {
  const std::size_t place =
      at(instance.layer.value()) * at(program.plan.num_microbatches()) + at(*instance.microbatch);
  return {.on_device = {.region = Region::StagedActivations,
                        .slot = instance.staged_slot,
                        .offset = step.range.begin,
                        .bytes = step.range.size()},
          .on_host = {.region = Region::OffloadedActivations,
                      .offset = program.host_places[place],
                      .bytes = step.range.size()}};
}

}  // namespace meshplan::program
