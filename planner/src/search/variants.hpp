// What a plan of the enumerated space can be varied in without another sharding of its layers: the
// part of the space that is priced only where a bound does not tell that other plans are faster.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/search/search.hpp"

namespace meshplan::planner {

/// A schedule with the chunks of a rank; `ends`: embedding and head count as layers when the others
/// are divided.
struct ScheduleVariant {
  program::ScheduleKind schedule = program::ScheduleKind::OneFOneB;
  int vpp = 1;
  bool ends = false;
  std::vector<std::optional<int>> recompute_layers;  // to be tried; absent = all, or not limited
};

/// What lies in host memory; each beside what the one before has there.
enum class Offloading { None, Optimizer, Parameters };
Offloading offloading_of(const Candidate& candidate);
void set_offloading(Candidate& candidate, Offloading offloading);

/// The values of each axis, of which every combination is a variant; the candidate's own come
/// first.
struct Variants {
  std::vector<std::pair<int, int>> zero;  // (stage, ranks that share a copy)
  std::vector<Offloading> offload;
  std::vector<ScheduleVariant> schedules;
  std::vector<std::string> rank_orders;
  std::vector<std::int64_t> bucket_bytes;

  /// Those that differ from one another in rank order and buckets alone.
  std::size_t of_schedule() const { return rank_orders.size() * bucket_bytes.size(); }
  /// With the candidate itself.
  std::size_t count() const;
};

/// Does the search say how many layers are recomputed? Not where recompute is pinned, nor to stacks
/// that recompute all layers or none.
bool chooses_recomputed_layers(const SearchRequest& request);

/// What `space` has and the request has not pinned.
Variants variants_of(const SearchRequest& request, const Candidate& candidate);

/// Data-parallel ranks of a node, if these are some of several of a mesh: what hybrid sharding
/// divides a copy over. 0 = none.
int node_group(const program::ParallelConfig& mesh, int ranks_per_node);

/// Bounds are less by so much: programs of split backwards fuse other operations, and layers that
/// do not divide evenly weigh on some stages less.
constexpr double kBoundSlack = 0.03;

/// A step time that no variant with this schedule and recompute falls below: its mean stage runs
/// all tasks of all micro-batches, and where backwards are whole the last stage waits for the first
/// micro-batch to come, and the first one for the last to return (Narayanan et al. 2021,
/// section 2.2).
/// @param core  the candidate's estimate. Without busy times of its stages nothing is known: 0
double least_step_s(const Candidate& candidate, const sim::StepPrediction& core,
                    const ScheduleVariant& schedule, std::optional<int> recompute_layers,
                    const SearchRequest& request);

}  // namespace meshplan::planner
