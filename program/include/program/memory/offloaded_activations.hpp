// Activations in host memory. What an offloaded layer keeps of a micro-batch is made in a slot of
// Region::StagedActivations, goes to its place in Region::OffloadedActivations while later layers
// run, and comes back to a slot before the layer's backward pass. docs/recompute.md
#pragma once

#include <cstdint>

#include "program/memory/address.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// One in use, one whose copy is on its way, one that the next layer's input is written to.
constexpr int kStagedLayers = 3;

/// Bytes [begin, end) of a layer's slot that go to the host and back. What a chunk's first layer
/// reads stays on the device, for it comes from elsewhere.
/// @param layer  of Program::layers, offloaded
FlatRange staged_range(const Program& program, int layer);

/// What a layer keeps of a micro-batch in Region::Saved: all of it, unless it is offloaded.
KeptBytes resident_bytes(const Program& program, int layer);

/// Does a kept value of the layer lie in its slot of Region::StagedActivations?
bool is_staged(const Program& program, int layer, const Value& value);

/// Both ends of the copy that an instance makes of its layer's activations.
struct ActivationCopy {
  Address on_device;
  Address on_host;
};
ActivationCopy activation_copy(const Program& program, const OperationInstance& instance,
                               const StepOp& step);

}  // namespace meshplan::program
