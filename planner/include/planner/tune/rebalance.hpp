// Layers of a pipeline divided again by what its stages were measured to take.
#pragma once

#include <optional>
#include <vector>

#include "program/plan/plan.hpp"
#include "program/trace/trace.hpp"

namespace meshplan::planner {

/// Seconds of a step that one rank of a stage computes, and exchanges along tp, by what for.
struct StageTime {
  double layer_s = 0;  // of one layer, all micro-batches; mean over the stage's
  double fixed_s = 0;  // of what belongs to no layer: embedding, head, loss
  int layers = 0;
  double seconds() const { return fixed_s + layers * layer_s; }
};

/// The mean over the ranks and traced steps of each stage, without the optimizer. A stage without
/// layers takes the mean of the others for one. Empty if a stage has no span.
/// @param trace  measured, with spans of all ranks
std::vector<StageTime> stage_times(const program::Trace& trace);

/// The plan with its layers divided so that the slowest stage takes least, by the measured times:
/// one layer after the other goes to the stage that is fastest with it, each chunk keeps one.
/// @returns nothing if no other division makes the slowest stage faster, or there are no stages
std::optional<program::Plan> rebalanced(const program::Plan& plan,
                                        const std::vector<StageTime>& times);

}  // namespace meshplan::planner
