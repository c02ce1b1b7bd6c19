// The way from the FLOPs that a model needs to the time of a step: what each thing adds that keeps
// the devices from their peak.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace meshplan::program {
struct Plan;
}  // namespace meshplan::program

namespace meshplan::sim {

struct Cluster;
struct PlayedPlan;

/// In the order in which they are added up.
enum class StepPart {
  Ideal,      // model FLOPs at the peak of all ranks: the step of 100 % MFU
  Beyond,     // FLOPs that forward and backward compute beyond these, at that peak
  Products,   // what matrix products take longer than their FLOPs would at that peak
  Attention,  // the same of attention
  Streams,    // operations that are bound by memory: norms, activation functions, casts, sums
  Slowdown,   // of computation by what runs beside it on the same device or host
  Recompute,
  Tensor,  // exposed tensor- and sequence-parallel communication, and so on
  Context,
  Experts,
  Sends,  // exposed messages between pipeline stages
  Bubble,
  Data,  // exposed sums of gradients and gathers of weights
  Optimizer,
  Offload,  // waiting for copies of offloaded state
  Host,
  Waits,     // nothing in progress between operations
  Overhead,  // stragglers, noise of the machine, and what a step takes beside its operations
};
constexpr int kNumStepParts = 18;

/// "ideal", "beyond_model", "products", ...: as JSON has them.
std::string_view name_of(StepPart part);
/// All parts in order, for tables.
constexpr std::array<StepPart, kNumStepParts> all_step_parts() {
  std::array<StepPart, kNumStepParts> parts{};
  for (int i = 0; i < kNumStepParts; ++i)
    parts[static_cast<std::size_t>(i)] = static_cast<StepPart>(i);
  return parts;
}

/// Seconds of each part; they sum to the step time. Only Beyond may be negative: where experts or
/// frozen parameters leave out what the model's FLOPs count.
struct StepParts {
  std::array<double, kNumStepParts> seconds{};
  double& operator[](StepPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double operator[](StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
  double total() const;
  bool operator==(const StepParts&) const = default;
};

/// A step's ideal: model FLOPs over what all ranks can do in a second.
double ideal_seconds(const program::Plan& plan, const Cluster& cluster);

/// Parts of a played step, the mean over all ranks.
StepParts parts_of(const PlayedPlan& played, const program::Plan& plan, const Cluster& cluster);

/// The part of a step time that with_step_effects added.
double step_effects(const Cluster& cluster, double step_time_s);

}  // namespace meshplan::sim
