// What a rank's memory holds over a step: the program's memory plan laid over the times of a trace,
// predicted or measured.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"
#include "program/trace/chrome_trace.hpp"
#include "program/trace/trace.hpp"
#include "sim/clusters/cluster.hpp"

namespace meshplan::sim {

enum class MemoryClass {
  Weights,        // in the compute dtype, with ZeRO-3's gathered units
  Gradients,      // with what ZeRO has not reduced yet and what compression keeps
  Optimizer,      // fp32 weights and moments
  Communication,  // messages of the pipeline, the batch, buffers of the collective library
  Runtime,        // context of the process or device
  Activations,    // kept from task to task
  Transient,      // alive inside a layer of a task
};
constexpr int kNumMemoryClasses = 7;
std::string_view name_of(MemoryClass memory_class);

/// Only what is kept from task to task, and what a layer works on, comes and goes: all else lies in
/// buffers that are there for the whole run.
bool changes_over_step(MemoryClass memory_class);

struct MemoryUse {
  std::array<double, kNumMemoryClasses> bytes{};
  double& operator[](MemoryClass c) { return bytes[static_cast<std::size_t>(c)]; }
  double operator[](MemoryClass c) const { return bytes[static_cast<std::size_t>(c)]; }
  double total() const;
  bool operator==(const MemoryUse&) const = default;
};

/// Holds from `time_s` until the next sample.
struct MemorySample {
  double time_s = 0;  // on the clock of the spans
  MemoryUse use;
};

struct MemoryTimeline {
  int stage = 0;
  int rank = 0;
  std::vector<MemorySample> samples;  // times ascend; the last holds to the end of the step
  double end_s = 0;                   // of the rank's last operation
  MemorySample peak;                  // the first of the fullest samples
  std::string during;                 // what ran at the peak: "backward 3, layer 12"
  /// What the plan holds for the rank: StageMemory::total(). The peak falls short of it only by
  /// gaps between buffers of unequal size, and by classes that are fullest at different times.
  double planned_bytes = 0;
  double mean_bytes() const;
};

/// @param program  of the stage that the rank is on
/// @param spans    of one step of that rank, keyed by OperationInstance::id
/// @throws InvariantError if a task of the program has no span
MemoryTimeline memory_timeline(const program::Program& program, const Cluster& cluster,
                               const std::vector<const program::Span*>& spans);

/// Timelines of all ranks that the trace has spans of, in the order of ranks; first traced step.
std::vector<MemoryTimeline> memory_timelines(const std::vector<program::Program>& stages,
                                             const Cluster& cluster, const program::Trace& trace);

/// For program::to_chrome_trace: MiB of what changes, and of all the rest together.
program::CounterTrack counter_track(const MemoryTimeline& timeline);

}  // namespace meshplan::sim
