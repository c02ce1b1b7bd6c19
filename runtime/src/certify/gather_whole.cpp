#include "certify/gather_whole.hpp"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "certify/shard_elements.hpp"
#include "core/index.hpp"
#include "program/certificate/twin.hpp"
#include "program/compression/compression.hpp"
#include "program/shard_layout.hpp"

namespace meshplan::runtime {
namespace {

using program::NamedTensors;
using program::Parameter;
using program::Region;

/// Adds this rank's shard to the global tensor; of what several ranks hold, the first one's.
template <class T>
void add_shard(T* whole, const Parameter& parameter, const program::Coordinates& place,
               const float* local) {
  for (const program::MatrixPiece& piece : program::matrix_pieces(parameter, place))
    if (piece.copy == 0)
      for_each_element(parameter, piece,
                       [&](std::int64_t to, std::int64_t from) { whole[to] += T{local[from]}; });
}

/// All parameters of the model, from the one-rank program: the same on every rank.
std::vector<Parameter> all_parameters(const program::Plan& plan) {
  return program::lower(program::one_rank_plan(plan), 0).parameters;
}

/// An fp32 region, in host memory.
std::vector<float> read_region(Trainer& trainer, Region region) {
  const std::int64_t bytes =
      trainer.program().memory.regions[static_cast<std::size_t>(region)].bytes();
  std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
  trainer.device().backend().copy_to_host(values.data(), trainer.arena().region(region), bytes);
  return values;
}

/// Sums what the ranks give of each parameter, all in one message: a twin's are small.
/// @param flat  in the order of the flat parameters
/// @tparam T  of the sum; float where only one rank gives an element
template <class T>
NamedTensors sum_over_ranks(Trainer& trainer, const std::vector<float>& flat, Communicator& world,
                            const std::function<bool(const Parameter&)>& wanted) {
  const program::Program& program = trainer.program();
  std::vector<Parameter> parameters = all_parameters(program.plan);
  std::erase_if(parameters, [&](const Parameter& parameter) { return !wanted(parameter); });
  std::vector<T> all;
  for (const Parameter& parameter : parameters) {
    const std::size_t before = all.size();
    all.resize(before + static_cast<std::size_t>(global_elements(parameter)));
    const auto own = std::ranges::find(program.parameters, parameter.name, &Parameter::name);
    if (own != program.parameters.end() && !own->tied_copy)
      add_shard(all.data() + before, *own, trainer.groups().coordinates(),
                flat.data() + own->offset);
  }
  constexpr DType kType = std::is_same_v<T, float> ? DType::F32 : DType::F64;
  const MutableBuffer buffer{all.data(), std::ssize(all), kType};
  world.all_reduce(buffer, buffer, ReduceOp::Sum).wait();
  NamedTensors result;
  auto begin = all.begin();
  for (const Parameter& parameter : parameters) {
    const auto end = begin + global_elements(parameter);
    result[parameter.name] = {.shape = parameter.global_shape, .values = {begin, end}};
    begin = end;
  }
  return result;
}

/// Is this rank the first of those that own the same part of a bucket?
bool is_first_owner(Trainer& trainer, const program::Bucket& bucket) {
  const program::Coordinates place = trainer.groups().coordinates();
  if (bucket.shards > 1) return !bucket.replicas || trainer.groups().leads(*bucket.replicas);
  return (bucket.expert() ? place.edp : place.dp + place.cp) == 0;
}

void copy_run(const std::vector<float>& region, const program::HeldRun& run,
              std::vector<float>& flat) {
  std::copy_n(region.begin() + run.offset, run.range.size(), flat.begin() + run.range.begin);
}

void add_run(const std::vector<float>& region, const program::HeldRun& run,
             std::vector<float>& flat) {
  for (std::int64_t i = 0; i < run.range.size(); ++i)
    flat[static_cast<std::size_t>(run.range.begin + i)] +=
        region[static_cast<std::size_t>(run.offset + i)];
}

}  // namespace

NamedTensors gather_whole(Trainer& trainer, Region region, Communicator& world) {
  const program::Program& program = trainer.program();
  const std::vector<float> values = read_region(trainer, region);
  std::vector<float> flat(static_cast<std::size_t>(program.parameter_elements), 0.0F);
  const auto runs = program::owned_runs(program, region, trainer.shard_place());
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (is_first_owner(trainer, program.buckets[i])) copy_run(values, runs[i], flat);
  const bool holds_frozen = region == Region::Weights;
  return sum_over_ranks<float>(trainer, flat, world, [holds_frozen](const Parameter& parameter) {
    return holds_frozen || !parameter.frozen;
  });
}

NamedTensors gather_lost(Trainer& trainer, Communicator& world) {
  const program::Program& program = trainer.program();
  const program::ShardPlace place = trainer.shard_place();
  std::vector<float> flat(static_cast<std::size_t>(program.parameter_elements), 0.0F);
  const std::vector<float> errors = read_region(trainer, Region::CompressionErrors);
  for (const int replica : program::error_replicas(program, place))
    for (const program::HeldRun& run : program::error_runs(program, place, replica))
      add_run(errors, run, flat);
  const std::vector<float> sums = read_region(trainer, Region::SumErrors);
  for (const program::HeldRun& run : program::sum_error_runs(program, place))
    add_run(sums, run, flat);
  return sum_over_ranks<double>(trainer, flat, world,
                                [](const Parameter& parameter) { return !parameter.frozen; });
}

}  // namespace meshplan::runtime
