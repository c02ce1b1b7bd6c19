#pragma once

#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::program {

/// How a twin's layers lie on its virtual stages, and which of them recompute.
struct ShrunkLayers {
  int num_layers = 0;
  std::vector<int> layers_per_stage;  // empty where the plan's is
  Recompute recompute;
};

/// One or two layers a virtual stage, divided like the plan's: evenly or with a remainder; else
/// stage by stage, where one with more layers than another keeps more, and one without any has
/// none. Stages that recompute some of their layers still do.
/// @param stages  virtual stages of the twin; 1 = it has no pipeline
ShrunkLayers shrunk_layers(const Plan& plan, int stages);

}  // namespace meshplan::program
