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

void fill_normal(const program::Program& program, const Parameter& parameter,
                 const program::Coordinates& place, std::uint64_t seed, kernels::Backend& backend,
                 float* out) {
  const std::int64_t columns =
      parameter.global_shape.size() > 1 ? parameter.global_shape.back() : 1;
  for (const program::MatrixPiece& piece : program::matrix_pieces(parameter, place))
    backend.run(kernels::RandomNormal{.seed = seed,
                                      .tensor_key = content_hash(parameter.name),
                                      .rows = piece.rows,
                                      .columns = piece.columns,
                                      .row_offset = piece.global_row,
                                      .column_offset = piece.global_column,
                                      .global_columns = columns,
                                      .stddev = static_cast<float>(init_stddev(program, parameter)),
                                      .out = out + piece.local_offset,
                                      .out_stride = piece.local_stride});
}

}  // namespace

void initialize_parameters(const program::Program& program, const program::Coordinates& place,
                           std::uint64_t seed, kernels::Backend& backend, const Arena& arena) {
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
        fill_normal(program, parameter, place, seed, backend, out);
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
