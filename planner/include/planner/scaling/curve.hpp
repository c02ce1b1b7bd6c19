// How fast a plan, or the best plan, becomes with more devices; where that ends, and why.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"
#include "planner/scaling/figures.hpp"
#include "planner/scaling/laws.hpp"
#include "planner/search/search.hpp"

namespace meshplan::planner {

/// The axis along which a plan gets more devices. `Ep` takes dp along: experts are divided over the
/// ranks that hold replicas of all else.
enum class ScaledAxis { Dp, Tp, Pp, Cp, Ep };

/// What weak scaling multiplies with the devices, so that each has as much to do: "sequence
/// length" along cp, else "global batch". Strong scaling multiplies neither.
std::string_view scaled_work(std::optional<ScaledAxis> axis);

struct ScalingRequest {
  ScalingMode mode = ScalingMode::Strong;
  std::vector<int> devices;       // ascending
  double least_efficiency = 0.8;  // of the knee, and of iso-efficiency
  bool iso_efficiency = false;    // look for the batches that keep the efficiency
};

/// Sequences of a step with which a size is as efficient as the first one times the least
/// efficiency (Grama, Gupta and Kumar 1993, section 3).
struct IsoBatch {
  std::int64_t global_batch_size = 0;  // the last that was tried, if none does
  double efficiency = 0;               // with it
  bool reached = false;
};

struct ScalingPoint {
  int devices = 0;
  std::optional<int> degree;           // of the axis; absent of a search, or where it is no integer
  std::optional<PlanFigures> figures;  // absent: there is no such plan
  std::string rule;                    // that it breaks
  std::string message;                 // with values and the nearest choice
  std::string level;                   // of the fabric that the axis needs; empty: none
  bool shares_cores = false;           // ranks on processors outnumber the cores
  // Against the first usable point. Work is counted in model FLOPs, so that efficiency is the ratio
  // of MFUs whatever the mode.
  double speed_up = 0;                            // times as much work a second
  sim::Interval speed_up_80{};                    // 80 %: both points err by the same factors
  double efficiency = 0;                          // speed-up over the ratio of devices
  std::optional<double> serial;                   // serial_part of the speed-up
  std::array<double, sim::kNumStepParts> lost{};  // efficiency, by part; they sum to 1 - efficiency
  std::optional<IsoBatch> iso;

  bool is_valid() const { return figures.has_value(); }
  bool fits() const { return figures && figures->step.fits(); }
  double lost_to_communication() const;
  double lost_to_bubble() const;
  /// What does not shrink as devices are added: the optimizer, small operations, stragglers, ...
  double lost_to_rest() const;
};

/// The part of a step that costs most efficiency between two points.
struct NextBottleneck {
  std::size_t from = 0, to = 0;  // points
  sim::StepPart part = sim::StepPart::Ideal;
  double lost = 0;  // efficiency that it costs, in that of `from`
  double all = 0;   // that all parts cost together
};

/// A size at which the axis first needs another level of the fabric.
struct LevelChange {
  std::size_t point = 0;
  std::string from, to;
};

struct SizeToTest {
  std::size_t point = 0;
  std::vector<std::string> reasons;
};

/// Efficiency that a cause has to cost before it is said to bend the curve.
constexpr double kBends = 0.05;

struct ScalingCurve {
  ScalingRequest request;
  std::optional<ScaledAxis> axis;    // absent: each point is the best plan of a search
  std::vector<ScalingPoint> points;  // by devices
  std::optional<std::size_t> first;  // that fits, else that is valid: what ratios are of
  /// The largest size up to which all that fit have at least the least efficiency.
  std::optional<std::size_t> knee;
  std::optional<NextBottleneck> next;  // behind the knee; of the last step if nothing lies behind
  std::optional<SerialFit> serial;     // `worst` is an index into `points`
  std::optional<Trend> trend;          // of the points' serial parts
  std::vector<LevelChange> level_changes;
  std::optional<std::size_t> communication_bends;  // first points at which each costs kBends
  std::optional<std::size_t> bubble_bends;
  std::optional<std::size_t> rest_bends;
  std::vector<SizeToTest> worth_testing;  // by devices
};

/// The plan at another number of devices along the axis.
struct ScaledPlan {
  std::optional<int> degree;
  program::Plan plan;
  std::string rule, message;  // why there is none; empty: there is
};

/// All else stays as it is: layers are divided evenly over more stages, buckets keep their default
/// where they had it. @param software  whose rules the plan must obey, too
ScaledPlan scaled_plan(const program::Plan& base, ScaledAxis axis, ScalingMode mode, int devices);

/// Called before each size is simulated or searched. From any worker.
using ScalingProgress = std::function<void(int devices)>;

/// Points of one plan along one axis.
/// @param cluster  as large as the plan; it is resized
/// @throws ConfigError for sizes that are none, and a base whose schedule is written for its stages
ScalingCurve scale_plan(const program::Plan& base, ScaledAxis axis, const sim::Cluster& cluster,
                        const ScalingRequest& request, const ParallelFor& parallel_for,
                        const ScalingProgress& progress = {});

/// Points that are each the best plan of a search. Weak scaling multiplies the global batch.
/// @param search  at the first size
ScalingCurve scale_search(const SearchRequest& search, const ScalingRequest& request,
                          const ParallelFor& parallel_for, const ScalingProgress& progress = {});

/// Fills in all that is said of points against each other; points have their figures.
void summarize(ScalingCurve& curve);

}  // namespace meshplan::planner

template <>
struct meshplan::EnumNames<meshplan::planner::ScaledAxis> {
  static constexpr std::array<std::pair<planner::ScaledAxis, std::string_view>, 5> value{
      {{planner::ScaledAxis::Dp, "dp"},
       {planner::ScaledAxis::Tp, "tp"},
       {planner::ScaledAxis::Pp, "pp"},
       {planner::ScaledAxis::Cp, "cp"},
       {planner::ScaledAxis::Ep, "ep"}}};
};
