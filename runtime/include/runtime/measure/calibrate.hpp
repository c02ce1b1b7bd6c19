// Measures a machine: operators by shape, memory bandwidth, links, collectives and what a process
// takes by itself. It never times a plan.
#pragma once

#include <span>
#include <vector>

#include "program/calibration/calibration.hpp"
#include "program/plan/plan.hpp"
#include "runtime/comm/job_layout.hpp"
#include "runtime/measure/measure_options.hpp"

namespace meshplan::runtime {

class Communicator;
class Device;

/// The shapes to measure: those that tp up to `max_tp`, with and without sp, without tp as many ep
/// ranks, and these micro-batches give a model. Plans that break a rule are left out.
std::vector<program::Plan> shapes_to_measure(const models::ModelSpec& model,
                                             const program::Workload& workload, int max_tp,
                                             std::span<const int> micro_batches);

struct CalibrationOptions {
  std::vector<program::Plan> shapes;  // empty: communication only
  OperatorMeasurement operators;
  MeasureOptions communication;
};

/// One measuring job. Collective over `world`, which communicates in host memory; all ranks return
/// the same samples. Operators come first, so that a job of several ranks shows progress.
program::CalibrationSamples calibrate(const CalibrationOptions& options, const JobLayout& layout,
                                      const program::CollectiveTable& table, Communicator& world,
                                      Device& device, const Progress& progress);

}  // namespace meshplan::runtime
