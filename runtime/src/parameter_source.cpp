#include "runtime/parameter_source.hpp"

#include <span>

#include "runtime/checkpoint_layout.hpp"
#include "runtime/initialize.hpp"

namespace meshplan::runtime {

void load_parameters(const program::Program& program, const program::Coordinates& place,
                     const program::ShardPlace& shard, ParameterSource& source, LoadedState which,
                     kernels::Backend& backend, const Arena& arena) {
  std::vector<float> staging;  // one parameter at a time: the arena may be another device's memory
  for (const StateRegion& state : state_regions(program)) {
    if (which == LoadedState::WeightsOnly && state.name != kWeights) continue;
    auto* region = reinterpret_cast<float*>(arena.region(state.region));
    const std::vector<program::HeldRun> runs = program::held_runs(program, state.region, shard);
    for (const program::Parameter& parameter : program.parameters)
      for (const program::HeldRun& run : runs) {
        const program::HeldRun held =
            program::clipped(run, {parameter.offset, parameter.offset + parameter.elements()});
        if (held.range.size() == 0) continue;
        staging.assign(static_cast<std::size_t>(held.range.size()), 0.0F);
        for (const HeldPiece& piece : held_pieces(program, place, held.range))
          source.read(state.name, parameter.name,
                      {.data = staging.data() + (piece.offset - held.range.begin),
                       .box = piece.box,
                       .strides = piece.strides});
        backend.copy_to_device(region + held.offset, staging.data(),
                               std::ssize(staging) * size_of(DType::F32));
        backend.synchronize();  // the staging memory is used again
      }
  }
  refresh_compute_weights(program, shard, backend, arena);
}

}  // namespace meshplan::runtime
