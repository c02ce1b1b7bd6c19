// What a program computes, by what bounds it.
#pragma once

#include <vector>

#include "program/program.hpp"

namespace meshplan::sim {

enum class ComputeClass { Products, Attention, Streams };
constexpr int kNumComputeClasses = 3;

/// Streams: also steps of the optimizer.
ComputeClass compute_class(const program::Operation& operation);

/// How often each instance of a program runs in a step of its plan, which may have more
/// micro-batches than the program (PlayedPlan). Where layers run as one operation, those of their
/// operations that are listed stand for all.
std::vector<double> times_run(const program::Program& program);

}  // namespace meshplan::sim
