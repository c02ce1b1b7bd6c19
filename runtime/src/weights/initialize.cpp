#include "weights/initialize.hpp"

#include <algorithm>
#include <cmath>

#include "core/hash.hpp"
#include "core/index.hpp"
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

void fill(const program::Program& program, const Parameter& parameter,
          const program::Coordinates& place, std::uint64_t seed, kernels::Backend& backend,
          float* out) {
  switch (parameter.init) {
    case models::Init::Zeros:
      return;
    case models::Init::Ones:
      backend.run(kernels::Fill{
          .count = parameter.elements(), .dtype = DType::F32, .x = out, .value = 1.0F});
      return;
    case models::Init::Normal:
    case models::Init::ScaledNormal:
      fill_normal(program, parameter, place, seed, backend, out);
      return;
  }
}

/// A whole parameter, of which a rank keeps its part.
class Staging {
 public:
  explicit Staging(kernels::Backend& backend) : backend_(backend) {}
  ~Staging() {
    if (memory_ != nullptr) backend_.free(memory_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Zeroed.
  float* take(std::int64_t elements) {
    const std::int64_t bytes = elements * size_of(DType::F32);
    if (bytes > bytes_) {
      if (memory_ != nullptr) backend_.free(memory_);
      memory_ = backend_.allocate(bytes);
      bytes_ = bytes;
    } else {
      backend_.zero(memory_, bytes);
    }
    return static_cast<float*>(memory_);
  }

 private:
  kernels::Backend& backend_;
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

namespace {

void clear(const program::RegionPlan& plan, std::byte* memory, kernels::Backend& backend) {
  if (plan.on_host)
    std::fill_n(memory, plan.bytes(), std::byte{0});
  else
    backend.zero(memory, plan.bytes());
}

/// Frozen weights have no fp32 copy: in another dtype what the rank owns of them is converted
/// parameter by parameter.
void fill_frozen(const program::Program& program, const program::Coordinates& place,
                 const program::ShardPlace& shard, std::uint64_t seed, kernels::Backend& backend,
                 const Arena& arena) {
  const DType compute = program.plan.workload.precision;
  const std::vector<program::HeldRun> runs = program::owned_runs(program, Region::Weights, shard);
  Staging staging(backend);
  for (const Parameter& parameter : program.parameters) {
    if (!parameter.frozen) continue;
    const program::HeldRun owned = program::clipped(
        runs[at(parameter.bucket)], {parameter.offset, parameter.offset + parameter.elements()});
    if (owned.range.size() == 0) continue;
    float* whole = staging.take(parameter.elements());
    fill(program, parameter, place, seed, backend, whole);
    backend.run(
        kernels::Convert{.count = owned.range.size(),
                         .from_dtype = DType::F32,
                         .from = whole + (owned.range.begin - parameter.offset),
                         .to_dtype = compute,
                         .to = arena.region(Region::Weights) + owned.offset * size_of(compute)});
    backend.synchronize();  // the staging memory is used again
  }
}

}  // namespace

void initialize_parameters(const program::Program& program, const program::Coordinates& place,
                           const program::ShardPlace& shard, std::uint64_t seed,
                           kernels::Backend& backend, const Arena& arena) {
  for (const Region region :
       {Region::Weights, Region::MasterWeights, Region::Gradients, Region::Moment1, Region::Moment2,
        Region::CompressionErrors, Region::SumErrors})
    clear(program.memory.regions[static_cast<std::size_t>(region)], arena.region(region), backend);
  const bool fp32 = program.plan.workload.precision == DType::F32;
  const Region master = fp32 ? Region::Weights : Region::MasterWeights;
  auto* values = reinterpret_cast<float*>(arena.region(master));
  const std::vector<program::HeldRun> runs = program::held_runs(program, master, shard);
  Staging staging(backend);
  for (const Parameter& parameter : program.parameters) {
    const program::FlatRange all{parameter.offset, parameter.offset + parameter.elements()};
    for (const program::HeldRun& run : runs) {
      const program::HeldRun held = program::clipped(run, all);
      if (held.range.size() == 0) continue;
      if (held.range == all) {
        fill(program, parameter, place, seed, backend, values + held.offset);
        break;
      }
      float* whole = staging.take(parameter.elements());
      fill(program, parameter, place, seed, backend, whole);
      backend.copy(values + held.offset, whole + (held.range.begin - all.begin),
                   held.range.size() * size_of(DType::F32));
    }
  }
  if (!fp32) fill_frozen(program, place, shard, seed, backend, arena);
  refresh_compute_weights(program, shard, backend, arena);
}

void refresh_compute_weights(const program::Program& program, const program::ShardPlace& shard,
                             kernels::Backend& backend, const Arena& arena) {
  const DType compute = program.plan.workload.precision;
  if (compute != DType::F32) {
    const auto masters = program::owned_runs(program, Region::MasterWeights, shard);
    const auto weights = program::owned_runs(program, Region::Weights, shard);
    for (std::size_t i = 0; i < masters.size(); ++i)
      backend.run(kernels::Convert{
          .count = masters[i].range.size(),
          .from_dtype = DType::F32,
          .from = arena.region(Region::MasterWeights) + masters[i].offset * size_of(DType::F32),
          .to_dtype = compute,
          .to = arena.region(Region::Weights) + weights[i].offset * size_of(compute)});
  }
  backend.synchronize();
}

}  // namespace meshplan::runtime
