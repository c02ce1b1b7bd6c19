#include "planner/failures/saving.hpp"

#include "core/checkpoint_interval.hpp"
#include "failures/checkpoint_prices.hpp"
#include "failures/positive.hpp"
#include "program/memory/saved_share.hpp"

namespace meshplan::planner {
namespace {

PlaceSaving saves_every(int steps, const CheckpointCosts& costs, double step_time_s) {
  const double interval_s = steps * step_time_s;
  return {.every = steps,
          .interval_s = interval_s,
          .stall_s = costs.stall_s,
          .stall_share = costs.stall_s / interval_s,
          .lag_s = costs.lag_s};
}

/// Steps between checkpoints, as a run chooses them; absent: only the end of the run is saved.
std::optional<int> checkpoint_steps(const SavingIntervals& intervals, const CheckpointCosts& costs,
                                    const sim::Cluster& cluster, double step_time_s) {
  if (intervals.device_mtbf_hours)
    return checkpoint_interval_steps(
        times_of(costs, step_time_s),
        *intervals.device_mtbf_hours * kHourSeconds / cluster.num_ranks());
  if (intervals.checkpoint_every > 0) return intervals.checkpoint_every;
  return std::nullopt;
}

}  // namespace

SavingPrediction predict_saving(const std::vector<program::Program>& programs,
                                const sim::Cluster& cluster, double step_time_s,
                                const SavingIntervals& intervals) {
  if (intervals.storage_gb_per_s)
    require_positive("storage bandwidth in GB/s", *intervals.storage_gb_per_s);
  const program::SavedBytes saved = program::saved_bytes(programs);
  const CheckpointBytes bytes{.saved = static_cast<double>(saved.all_ranks),
                              .saved_rank = static_cast<double>(saved.fullest_rank)};
  const auto costs_in = [&](CheckpointPlace place) {
    return checkpoint_costs(bytes, place, cluster, intervals.storage_gb_per_s);
  };
  SavingPrediction prediction{
      .bytes = bytes.saved,
      .rank_bytes = bytes.saved_rank,
      .step_time_s = step_time_s,
      .storage_bytes_per_s = storage_bytes_per_s(cluster, intervals.storage_gb_per_s),
      .is_storage_assumed = is_storage_assumed(cluster, intervals.storage_gb_per_s)};
  const CheckpointCosts on_disk = costs_in(CheckpointPlace::Storage);
  if (const auto steps = checkpoint_steps(intervals, on_disk, cluster, step_time_s))
    prediction.disk = saves_every(*steps, on_disk, step_time_s);
  if (intervals.memory_every == 0) return prediction;
  const CheckpointCosts in_memory = costs_in(CheckpointPlace::Partner);
  prediction.memory = saves_every(intervals.memory_every, in_memory, step_time_s);
  prediction.memory_copies = program::kept_states(cluster.num_nodes);
  prediction.memory_node_bytes = in_memory.host_node_bytes;
  return prediction;
}

}  // namespace meshplan::planner
