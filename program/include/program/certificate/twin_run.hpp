// What a run of a twin leaves: numbers that no layout may change.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/certificate/exact_check.hpp"

namespace meshplan::program {

struct TwinStep {
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double balance_loss = 0;   // of routers
  double z_loss = 0;
  double prediction_loss = 0;      // of prediction modules
  double indexer_loss = 0;         // of sparse attention
  std::vector<float> expert_load;  // tokens that chose each expert: (MoE layers, experts)
};

/// A parameter's values in its unsharded form, row-major.
struct WholeTensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
using NamedTensors = std::map<std::string, WholeTensor>;

struct TwinRun {
  std::vector<TwinStep> steps;
  /// Of the first step, before clipping. Where gradients are compressed: the mean over all steps,
  /// in which no weight moves, with what is still to be fed back.
  NamedTensors gradients;
  NamedTensors start;             // fp32 weights before the first step
  NamedTensors end;               // and after the last; empty where none may move
  std::vector<ExactCheck> exact;  // of messages and copies; empty on one rank
};

}  // namespace meshplan::program
