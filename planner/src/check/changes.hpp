// Single changes of a plan that train the same: everything but the model, the sequences and the
// global batch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::planner {

/// What a change turns; two of one axis cannot be made together.
enum class ChangeAxis { Recompute, MicroBatch, Zero, Sequence, Schedule, Mesh, Experts, Offload };

struct Change {
  ChangeAxis axis = ChangeAxis::Recompute;
  std::string words;
  std::vector<std::string> settings;  // paths and values of the plan's file
  std::function<void(program::Plan&)> apply;
};

/// All that make another plan, in one fixed order; many break a rule of the stack, or do not fit.
std::vector<Change> changes_of(const program::Plan& plan, const sim::Cluster& cluster);

/// Full recompute of the first `layers` layers of each virtual stage alone.
Change partial_recompute(const program::Plan& plan, int layers);

/// What was predicted of the plan, and lists for stages that it no longer has, go.
program::Plan changed(const program::Plan& plan, const Change& change);

}  // namespace meshplan::planner
