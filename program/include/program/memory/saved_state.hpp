// What training keeps of every parameter, and so what a checkpoint holds.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "program/program.hpp"

namespace meshplan::program {

/// A kind of state that training keeps, of every parameter or of those that are not frozen.
struct StateRegion {
  std::string name;  // "weights", "moment1", "moment2"
  Region region = Region::Weights;
  int replica = 0;           // of what compression lost: see runtime's compression_error_state
  DType dtype = DType::F32;  // there; a checkpoint holds fp32
  bool frozen_only = false;  // of a region that holds others, too
};

constexpr const char* kWeights = "weights";

/// The states of a program: its fp32 weights (those of frozen parameters in the compute dtype, as
/// they have no other), then the optimizer's moments.
std::vector<StateRegion> state_regions(const Program& program);

}  // namespace meshplan::program
