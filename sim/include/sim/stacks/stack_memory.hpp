// What users of a stack read of a plan's memory, and how sure a prediction of it is.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "program/plan/plan.hpp"
#include "sim/engine/memory_need.hpp"

namespace meshplan::sim {

struct Cluster;
struct RunMemory;

/// Four of five peaks of other software are predicted within this part of them: 63 measured ones
/// (`meshplan validate --csv`, memory_error; docs/accuracy.md).
constexpr double kMemoryError = 0.062;
/// Part of a device by which a plan of this stack must fit to be said to fit.
inline double memory_margin(const program::Stack& stack, double memory_reserve) {
  return stack.is_own() ? memory_reserve : std::max(memory_reserve, kMemoryError);
}

/// Part of each device that a recommended plan leaves free where nobody says how much:
/// kMemoryReserve, of other software as much as predictions of its peaks err by, and of models with
/// experts twice kMemoryReserve, since the rows of a rank's experts differ from step to step.
double default_memory_reserve(const program::Stack& stack, const models::ModelSpec& model);

ShownMemory shown_memory(const RunMemory& memory);

/// What another release of the same stack says of the memory of a plan that names none, where that
/// is another verdict: "megatron-core@24.07: does not fit". @param margin  as memory_margin()
std::vector<std::string> other_verdicts(const program::Plan& plan, const Cluster& cluster,
                                        double margin);

}  // namespace meshplan::sim
