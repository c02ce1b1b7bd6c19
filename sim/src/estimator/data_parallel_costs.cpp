#include <algorithm>
#include <utility>

#include "core/units.hpp"
#include "estimator/stage_costs.hpp"
#include "prices/element_bytes.hpp"
#include "prices/offload.hpp"
#include "program/memory/offload.hpp"
#include "schedules/host_thread.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {
namespace {

using program::Plan;

/// Buckets that are cut once for all stages with the same elements in the same order. The reference
/// is valid as long as the layout.
const StageBuckets& buckets_of(const StagePricing& pricing,
                               const std::vector<const ChunkCost*>& chunks) {
  static const StageBuckets kNone;
  DataGroups& data = pricing.where.data;
  const bool alone = data.dense.size() <= 1 && data.experts.size() <= 1;
  if (pricing.plan.zero_stage >= 2 || alone) return kNone;
  CacheKey key;
  key.set(pricing.keys.buckets, chunks.size());
  for (const ChunkCost* chunk : chunks) key.add(chunk->gradient_shape);
  const auto found = data.buckets.find(key);
  if (found != data.buckets.end()) return found->second;
  return data.buckets
      .emplace(key, stage_buckets(pricing.plan, chunks, data, pricing.table, pricing.cluster))
      .first->second;
}

/// What one thread has compressed it must have sent before there is room for the bucket after the
/// next, so backward waits for the sums of a chunk, and the stage before it for that.
void reduce_in_tasks(StageCost& stage) {
  stage.reduced_in_task.assign(stage.chunks.size(), 0.0);
  for (const Bucket& bucket : stage.buckets->all) {
    const double seconds = bucket.seconds + bucket.compute_seconds;
    const std::size_t chunk = stage.buckets->parts[bucket.end_part - 1].chunk;
    stage.reduced_in_task[chunk] += seconds;
    stage.streamed += seconds;
    stage.sums.norm_seconds -= bucket.compute_seconds;
  }
  stage.total.seconds += stage.streamed;
}

}  // namespace

double owned_share(const ZeroStage& zero) {
  const double all = zero.whole + zero.streamed;
  return all > 0 ? (zero.owned + zero.owned_streamed) / all : 1;
}

void price_data_parallel(const StagePricing& pricing, double late, StageCost& stage) {
  const Plan& plan = pricing.plan;
  const Cluster& cluster = pricing.cluster;
  DataGroups& data = pricing.where.data;
  const bool compresses = plan.compression.kind != program::CompressionKind::None;
  stage.zero = {};
  stage.streamed = 0;
  stage.buckets = &buckets_of(pricing, stage.chunks);
  if (plan.zero_stage >= 2)
    for (const ChunkCost* chunk : stage.chunks) late += chunk->shared_elements;
  CompressionCost compression = stage.buckets->compression;
  stage.sums.norm_seconds +=
      reduction_seconds(plan, late, false, data, pricing.table, cluster, compression);
  stage.sums.norm_seconds += compression.seconds + compression.settle_seconds;
  stage.compression_bytes = compression.error_bytes;
  stage.compression_slot_bytes = compression.slot_bytes;
  stage.reduced_in_task.clear();
  if (compresses && moves_only_in_waits(plan, cluster)) reduce_in_tasks(stage);
  if (plan.zero_stage == 0) return;
  stage.zero = zero_stage(pricing, stage.chunks, late, *stage.buckets);
  stage.compression_bytes += stage.zero.compression_error_bytes;
  stage.compression_slot_bytes =
      std::max(stage.compression_slot_bytes, stage.zero.compression_slot_bytes);
  // Every rank updates, and sums the squares of, what it owns; ranges end where buckets do.
  const ZeroStage& zero = stage.zero;
  const double share = owned_share(zero);
  const double launch = cluster.device.launch_us / kMicroseconds;
  const auto shared = [&](double& seconds, double launches) {
    const double fixed = std::min(seconds, launch * launches);
    seconds = fixed + (seconds - fixed) * share;
  };
  double launches = 0;
  for (const ChunkCost* chunk : stage.chunks) launches += chunk->sums.update_launches;
  shared(stage.sums.update_seconds, launches);
  const double squares = stage.square_seconds * share + launch * zero.num_buckets;
  stage.sums.norm_seconds += squares - std::exchange(stage.square_seconds, squares);
  double streamed = 0;
  for (std::size_t c = 0; c < zero.tasks.size(); ++c) {
    const TaskTimes& alone = stage.chunks[c]->tasks;
    const StreamedTasks& tasks = zero.tasks[c];
    streamed += plan.num_microbatches() * (tasks.forward - alone.forward.seconds + tasks.backward -
                                           alone.backward_first.seconds);
    stage.sums.norm_seconds += tasks.at_end;
  }
  stage.streamed += streamed;
  stage.total.seconds += streamed;
}

void price_offload(const StagePricing& pricing, StageCost& stage) {
  const Plan& plan = pricing.plan;
  const Cluster& cluster = pricing.cluster;
  double launches = 0;
  for (const ChunkCost* chunk : stage.chunks) launches += chunk->sums.update_launches;
  const ZeroStage& zero = stage.zero;
  const bool divided = plan.zero_stage > 0;
  const double elements = divided ? zero.owned + zero.owned_streamed : stage.sums.elements;
  const double pieces =
      launches +
      (divided ? zero.num_buckets : elements * kFp32Bytes / static_cast<double>(plan.bucket_bytes));
  const double bytes = elements * static_cast<double>(program::offloaded_bytes_per_element(plan));
  if (cluster.device.kind == DeviceKind::Cpu) {
    stage.sums.update_seconds += 2 * (stream_seconds(2 * bytes, cluster) +
                                      pieces * cluster.device.launch_us / kMicroseconds);
    return;
  }
  const double launch = cluster.device.launch_us / kMicroseconds;
  stage.sums.update_seconds = offloaded_update_seconds(
      {.pieces = pieces,
       .copy_seconds = state_copy_seconds(bytes, cluster) + (pieces - 1) * launch,
       .update_seconds = stage.sums.update_seconds,
       .lead = stage.sums.norm_seconds});
}

}  // namespace meshplan::sim
