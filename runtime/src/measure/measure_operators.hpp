// Calibration of operators: each distinct operation of the given plans is timed by itself, on
// memory of its own. No plan is ever run.
#pragma once

#include <span>
#include <vector>

#include "program/calibration/machine_speed.hpp"
#include "program/calibration/operator_sample.hpp"
#include "program/plan/plan.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/execute/device.hpp"
#include "runtime/measure/measure_options.hpp"

namespace meshplan::runtime {

/// What was seen of the machine meanwhile; alike on all ranks.
struct MeasuredOperators {
  std::vector<program::OperatorSample> samples;
  program::Quietness quietness;  // without other_cores
};

/// Times every distinct signature of the plans' programs, alone (rank 0, the others wait) and with
/// `busy_ranks` ranks at once. On a processor in three rounds of all of them (sampling.hpp), then
/// again what was disturbed. Collective over `world`; every rank must pass equal plans. Weights
/// and gradients are cold, as in a model larger than the cache; activations are as warm as its L3
/// keeps them. With one rank that runs, busy is alone.
/// @returns on every rank the same
MeasuredOperators measure_operators(std::span<const program::Plan> plans,
                                    const OperatorMeasurement& options, Communicator& world,
                                    Device& device, const Progress& progress);

/// Bytes per second, read plus written, of a copy of a large buffer: alone, and the sum over
/// `busy_ranks` that copy at once.
struct MemoryBandwidth {
  double alone = 0;
  double all = 0;
};
MemoryBandwidth measure_memory_bandwidth(const OperatorMeasurement& options, Communicator& world,
                                         Device& device);

}  // namespace meshplan::runtime
