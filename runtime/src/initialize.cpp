#include "runtime/initialize.hpp"

#include <cmath>

#include "core/hash.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::runtime {
namespace {

using program::Parameter;
using program::Region;

/// Standard deviation of the initial values. Radford et al. 2019, section 2.3: outputs of residual
/// branches are scaled by 1/sqrt(2 layers).
double init_stddev(const program::Program& program, const Parameter& parameter) {
  const double stddev = program.plan.model.init_std;
  return parameter.init == models::Init::ScaledNormal
             ? stddev / std::sqrt(2.0 * program.plan.model.num_layers)
             : stddev;
}

void fill_normal(const program::Program& program, const Parameter& parameter, int tp_rank,
                 std::uint64_t seed, kernels::Backend& backend, float* out) {
  const bool matrix = parameter.local_shape.size() > 1;
  const std::int64_t rows = parameter.local_shape[0];
  const std::int64_t columns = matrix ? parameter.local_shape[1] : 1;
  for (const program::ShardPiece& piece : program::shard_pieces(parameter, tp_rank)) {
    const bool by_column = parameter.shard_dim == 1;
    backend.run(kernels::RandomNormal{
        .seed = seed,
        .tensor_key = content_hash(parameter.name),
        .rows = by_column ? rows : piece.size,
        .columns = by_column ? piece.size : columns,
        .row_offset = by_column ? 0 : piece.global_begin,
        .column_offset = by_column ? piece.global_begin : 0,
        .global_columns = matrix ? parameter.global_shape[1] : 1,
        .stddev = static_cast<float>(init_stddev(program, parameter)),
        .out = out + (by_column ? piece.local_begin : piece.local_begin * columns),
        .out_stride = columns});
  }
}

}  // namespace

void initialize_parameters(const program::Program& program, int tp_rank, std::uint64_t seed,
                           kernels::Backend& backend, const Arena& arena) {
  for (const Region region : {Region::Weights, Region::MasterWeights, Region::Gradients,
                              Region::Moment1, Region::Moment2})
    backend.zero(arena.region(region),
                 program.memory.regions[static_cast<std::size_t>(region)].bytes());
  const bool fp32 = program.plan.workload.precision == DType::F32;
  const Region master = fp32 ? Region::Weights : Region::MasterWeights;
  auto* values = reinterpret_cast<float*>(arena.region(master));
  for (const Parameter& parameter : program.parameters) {
    float* out = values + parameter.offset;
    switch (parameter.init) {
      case models::Init::Zeros:
        break;
      case models::Init::Ones:
        backend.run(kernels::Fill{
            .count = parameter.elements(), .dtype = DType::F32, .x = out, .value = 1.0F});
        break;
      case models::Init::Normal:
      case models::Init::ScaledNormal:
        fill_normal(program, parameter, tp_rank, seed, backend, out);
        break;
    }
  }
  refresh_compute_weights(program, backend, arena);
}

void refresh_compute_weights(const program::Program& program, kernels::Backend& backend,
                             const Arena& arena) {
  if (program.plan.workload.precision != DType::F32)
    backend.run(kernels::Convert{.count = program.parameter_elements,
                                 .from_dtype = DType::F32,
                                 .from = arena.region(Region::MasterWeights),
                                 .to_dtype = program.plan.workload.precision,
                                 .to = arena.region(Region::Weights)});
  backend.synchronize();
}

}  // namespace meshplan::runtime
