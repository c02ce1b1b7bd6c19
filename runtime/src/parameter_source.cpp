#include "runtime/parameter_source.hpp"

#include <span>

#include "runtime/checkpoint_layout.hpp"
#include "runtime/initialize.hpp"

namespace meshplan::runtime {

void load_parameters(const program::Program& program, int tp_rank, ParameterSource& source,
                     LoadedState which, kernels::Backend& backend, const Arena& arena) {
  std::vector<float> staging;  // one parameter at a time: the arena may be another device's memory
  for (const StateRegion& state : state_regions(program)) {
    if (which == LoadedState::WeightsOnly && state.name != kWeights) continue;
    auto* region = reinterpret_cast<float*>(arena.region(state.region));
    for (const program::Parameter& parameter : program.parameters) {
      staging.assign(static_cast<std::size_t>(parameter.elements()), 0.0F);
      const program::FlatRange range{parameter.offset, parameter.offset + parameter.elements()};
      for (const HeldPiece& piece : held_pieces(program, tp_rank, range))
        source.read(state.name, parameter.name,
                    {.data = staging.data() + (piece.offset - parameter.offset),
                     .box = piece.box,
                     .strides = piece.strides});
      backend.copy_to_device(region + parameter.offset, staging.data(),
                             std::ssize(staging) * size_of(DType::F32));
      backend.synchronize();  // the staging memory is used again
    }
  }
  refresh_compute_weights(program, backend, arena);
}

}  // namespace meshplan::runtime
