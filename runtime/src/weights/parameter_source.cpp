#include "runtime/weights/parameter_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <span>

#include "core/error.hpp"
#include "core/index.hpp"
#include "execute/arena.hpp"
#include "program/compression/compression.hpp"
#include "weights/checkpoint_layout.hpp"
#include "weights/initialize.hpp"
#include "weights/loadable_values.hpp"

namespace meshplan::runtime {

namespace {

/// A weight is rounded to what the run computes in, wherever else it lies.
DType rounded_to(const program::Program& program, const StateRegion& state) {
  return state.name == kWeights ? program.plan.workload.precision : state.dtype;
}

/// @param parameters  that the values are of. @throws ConfigError
void require_finite(std::span<const float> values, DType dtype, const std::string& state,
                    const std::vector<std::string>& parameters, ParameterSource& source) {
  if (all_finite(values, dtype)) return;
  for (const std::string& parameter : parameters)
    if (const std::string where = source.not_finite(state, parameter, dtype); !where.empty())
      throw ConfigError(where);
  throw ConfigError(fmt::format("{} of {}: not all values are finite in {}", state,
                                fmt::join(parameters, ", "), name_of(dtype)));
}

// What compression lost, read for one run of the flat parameters.
class LostGradients {
 public:
  LostGradients(const program::Program& program, const program::Coordinates& place,
                program::FlatRange range, ParameterSource& source)
      : program_(program),
        range_(range),
        source_(source),
        pieces_(held_boxes(program, place, range)),
        sum_(static_cast<std::size_t>(range.size()), 0.0F) {}

  /// @returns whether the source has the state, of any parameter here
  bool add(const std::string& state) {
    std::vector<std::string> found;
    std::vector<float> read(sum_.size(), 0.0F);
    for (const PlacedBox& piece : pieces_) {
      const std::string& name = program_.parameters[at(piece.parameter)].name;
      if (!source_.has(state, name)) continue;
      found.push_back(name);
      source_.read(state, name,
                   {.data = read.data() + (piece.offset - range_.begin),
                    .box = piece.box,
                    .strides = piece.strides});
    }
    require_finite(read, DType::F32, state, found, source_);
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += read[i];
    return !found.empty();
  }

  /// Those of replicas first, first + step, ...
  void add_replicas(int first, int step) {
    for (int replica = first; add(compression_error_state(replica)); replica += step) continue;
  }

  /// Into every slot: what is loaded is settled.
  void copy_to(program::Region region, std::int64_t offset, kernels::Backend& backend,
               const Arena& arena) const {
    const auto& plan = program_.memory.regions[static_cast<std::size_t>(region)];
    for (int slot = 0; slot < plan.slots; ++slot)
      backend.copy_to_device(
          arena.region(region) + slot * plan.stride_bytes + offset * size_of(DType::F32),
          sum_.data(), std::ssize(sum_) * size_of(DType::F32));
    backend.synchronize();
  }

 private:
  const program::Program& program_;
  program::FlatRange range_;
  ParameterSource& source_;
  std::vector<PlacedBox> pieces_;
  std::vector<float> sum_;
};

void load_compression_errors(const program::Program& program, const program::Coordinates& place,
                             const program::ShardPlace& shard, ParameterSource& source,
                             kernels::Backend& backend, const Arena& arena) {
  for (int b = 0; b < static_cast<int>(program.buckets.size()); ++b) {
    const program::Bucket& bucket = program.buckets[at(b)];
    if (!program::is_compressed(program.plan, bucket)) continue;
    const int replica = program::part_of(bucket, shard);
    LostGradients lost(program, place, program::compressed_range(bucket, shard), source);
    lost.add_replicas(replica, program::compressed_layout(program, b).parts);
    if (replica == 0 && !program::keeps_sum_errors(program.plan, bucket)) lost.add(kSumErrorState);
    lost.copy_to(program::Region::CompressionErrors, program::errors_begin(program, b), backend,
                 arena);
  }
  for (const program::HeldRun& run : program::sum_error_runs(program, shard)) {
    LostGradients lost(program, place, run.range, source);
    lost.add(kSumErrorState);
    lost.copy_to(program::Region::SumErrors, run.offset, backend, arena);
  }
}

}  // namespace

void load_parameters(const program::Program& program, const program::Coordinates& place,
                     const program::ShardPlace& shard, ParameterSource& source, LoadedState which,
                     kernels::Backend& backend, const Arena& arena) {
  std::vector<float> staging;  // one parameter at a time: the arena may be another device's memory
  for (const StateRegion& state : state_regions(program)) {
    if (which == LoadedState::WeightsOnly && state.name != kWeights) continue;
    std::byte* region = arena.region(state.region);
    const std::vector<program::HeldRun> runs = held_runs(program, state, shard);
    for (const program::Parameter& parameter : program.parameters) {
      if (source.begins_anew(parameter.name)) continue;
      for (const program::HeldRun& run : runs) {
        const program::HeldRun held =
            program::clipped(run, {parameter.offset, parameter.offset + parameter.elements()});
        if (held.range.size() == 0) continue;
        staging.assign(static_cast<std::size_t>(held.range.size()), 0.0F);
        for (const PlacedBox& piece : held_boxes(program, place, held.range))
          source.read(state.name, parameter.name,
                      {.data = staging.data() + (piece.offset - held.range.begin),
                       .box = piece.box,
                       .strides = piece.strides});
        require_finite(staging, rounded_to(program, state), state.name, {parameter.name}, source);
        std::vector<std::byte> values(staging.size() *
                                      static_cast<std::size_t>(size_of(state.dtype)));
        convert_from_float(staging, state.dtype, values.data());
        backend.copy_to_device(region + held.offset * size_of(state.dtype), values.data(),
                               std::ssize(values));
        backend.synchronize();  // the staging memory is used again
      }
    }
  }
  if (which == LoadedState::All && program.plan.compression.kind != program::CompressionKind::None)
    load_compression_errors(program, place, shard, source, backend, arena);
  refresh_compute_weights(program, shard, backend, arena);
}

}  // namespace meshplan::runtime
