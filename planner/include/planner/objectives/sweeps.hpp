// Searches over requests that differ in one thing: how many devices are worth having, what else
// fits, what memory costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::planner {

/// Called before each search with what is searched now.
using SweepProgress = std::function<void(const std::string& what)>;

struct DevicePoint {
  int devices = 0;
  std::optional<RankedPlan> plan;  // the fastest; absent: none fits or obeys the rules
  std::string reason;              // why there is none
};

/// The fastest plan of each number of devices.
struct DeviceSweep {
  std::vector<DevicePoint> points;  // by devices
  /// The point whose plan is the fastest: devices beyond it are better left unused. Absent: nothing
  /// fits.
  std::optional<std::size_t> fastest;
  /// The largest number of devices up to which each doubling makes a step at least kWorthDoubling
  /// times as fast.
  std::optional<std::size_t> worth_having;
  /// The fewest devices that meet the deadline; absent: none does, or none was given.
  std::optional<std::size_t> fewest_in_time;
};
constexpr double kWorthDoubling = 1.5;

/// `first`, twice, four times ... as many devices, and `last`.
/// @throws ConfigError if first < 1 or last < first
std::vector<int> device_counts(int first, int last);

/// @param deadline_s  of a step
/// @throws ConfigError as search()
DeviceSweep sweep_devices(const SearchRequest& request, const std::vector<int>& counts,
                          std::optional<double> deadline_s, const ParallelFor& parallel_for,
                          const SweepProgress& progress = {});

/// Plans of which none is both faster and smaller than another, the fastest and largest first: each
/// is the fastest that needs less memory than the one before. At most `most`.
std::vector<RankedPlan> memory_frontier(const SearchRequest& request, int most,
                                        const ParallelFor& parallel_for,
                                        const SweepProgress& progress = {});

/// The fastest plan of a tensor and a pipeline parallel size, as estimated.
struct DegreeCell {
  int tp = 1;
  int pp = 1;
  std::optional<RankedPlan> plan;  // absent: none fits or obeys the rules
  std::string reason;              // why there is none
};

/// Cells of all tp and pp that divide the ranks, exceed neither the model's heads nor its layers,
/// and lie within the request's pins and bounds, by tp, then pp.
std::vector<DegreeCell> degree_grid(const SearchRequest& request, const ParallelFor& parallel_for,
                                    const SweepProgress& progress = {});

/// The longest sequence (a multiple of `step` tokens) or the most layers of the model that fit,
/// with the fastest plan. The global batch stays as many sequences.
struct LargestThatFits {
  std::int64_t value = 0;
  RankedPlan plan;
};
std::optional<LargestThatFits> longest_sequence(const SearchRequest& request,
                                                const ParallelFor& parallel_for,
                                                const SweepProgress& progress = {});
std::optional<LargestThatFits> most_layers(const SearchRequest& request,
                                           const ParallelFor& parallel_for,
                                           const SweepProgress& progress = {});

}  // namespace meshplan::planner
