#include "program/memory/saved_state.hpp"

#include <algorithm>

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

}  // namespace meshplan::program
