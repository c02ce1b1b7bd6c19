#include "program/memory/saved_state.hpp"

#include <algorithm>

#include "program/compression/compression.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {

std::vector<StateRegion> state_regions(const Program& program) {
  const auto used = [&](Region region) {
    return program.memory.regions[static_cast<std::size_t>(region)].bytes() > 0;
  };
  const DType compute = program.plan.workload.precision;
  std::vector<StateRegion> states;
  if (compute == DType::F32) {
    states.push_back({kWeights, Region::Weights});
  } else {
    if (used(Region::MasterWeights)) states.push_back({kWeights, Region::MasterWeights});
    if (std::ranges::find(program.buckets, true, &Bucket::frozen) != program.buckets.end())
      states.push_back(
          {.name = kWeights, .region = Region::Weights, .dtype = compute, .frozen_only = true});
  }
  if (used(Region::Moment1)) states.push_back({"moment1", Region::Moment1});
  if (used(Region::Moment2)) states.push_back({"moment2", Region::Moment2});
  return states;
}

std::int64_t saved_state_bytes(const Program& program) {
  std::int64_t elements = 0;  // of all states
  std::int64_t frozen = 0;    // of weights only
  for (const Bucket& bucket : program.buckets) {
    const int replicas = group_size(bucket.group, program.plan);
    (bucket.frozen ? frozen : elements) += (bucket.range.size() + replicas - 1) / replicas;
  }
  const std::vector<StateRegion> states = state_regions(program);
  const auto partial = std::ranges::count(states, true, &StateRegion::frozen_only);
  const auto num_buckets = static_cast<int>(program.buckets.size());
  const std::int64_t total = elements * (std::ssize(states) - partial) + frozen +
                             errors_begin(program, num_buckets) +
                             sum_errors_begin(program, num_buckets);
  return total * size_of(DType::F32);
}

}  // namespace meshplan::program
