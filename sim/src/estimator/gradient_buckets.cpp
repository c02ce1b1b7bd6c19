#include "estimator/gradient_buckets.hpp"

#include <algorithm>
#include <cmath>

#include "estimator/compressed_reduction.hpp"
#include "prices/element_bytes.hpp"
#include "schedules/host_thread.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::Plan;

/// In the order in which lowering places them, but for a stage of one chunk, where they are in the
/// order in which they are ready.
void cut(const Plan& plan, const std::vector<const ChunkCost*>& chunks, StageBuckets& buckets) {
  const double most = static_cast<double>(plan.bucket_bytes) / kFp32Bytes;
  for (const bool expert : {false, true}) {
    bool open = false;
    for (std::size_t chunk = chunks.size(); chunk-- > 0;)
      for (std::size_t i = 0; i < chunks[chunk]->ready.size(); ++i) {
        const ReadyGradients& gradients = chunks[chunk]->ready[i];
        if (gradients.expert != expert) continue;
        if (!open || buckets.all.back().elements >= most)
          buckets.all.push_back({.expert = expert,
                                 .begin_part = buckets.parts.size(),
                                 .end_part = buckets.parts.size()});
        open = true;
        Bucket& bucket = buckets.all.back();
        bucket.elements += gradients.elements;
        if (bucket.begin_part == bucket.end_part || buckets.parts.back().chunk != chunk)
          buckets.parts.push_back({.chunk = chunk});
        buckets.parts.back().last = i;
        bucket.end_part = buckets.parts.size();
      }
  }
  if (chunks.size() > 1) return;  // which chunk's are ready first depends on the schedule
  std::ranges::stable_sort(
      buckets.all, {}, [&](const Bucket& bucket) { return buckets.parts[bucket.begin_part].last; });
}

/// @returns seconds of the communication; the computation is in the way of backward or of the norm
double compressed_seconds(const CompressedReduction& reduction, CompressionCost& compression) {
  compression.add({.seconds = reduction.compress_seconds + reduction.sum_seconds,
                   .settle_seconds = reduction.settle_seconds,
                   .error_bytes = reduction.error_bytes,
                   .slot_bytes = reduction.slot_bytes});
  return reduction.scatter_seconds + reduction.communication_seconds;
}

}  // namespace

void CompressionCost::add(const CompressionCost& other) {
  seconds += other.seconds;
  settle_seconds += other.settle_seconds;
  error_bytes += other.error_bytes;
  slot_bytes = std::max(slot_bytes, other.slot_bytes);
}

double padded(double elements, int shards) {
  constexpr double kAlignmentElements = program::kAlignment / 2;
  const double block = shards > 1 ? shards * kAlignmentElements : 1;
  return std::ceil(elements / block) * block;
}

StageBuckets stage_buckets(const Plan& plan, const std::vector<const ChunkCost*>& chunks,
                           DataGroups& groups, const OperatorTable& table, const Cluster& cluster) {
  StageBuckets buckets;
  cut(plan, chunks, buckets);
  for (Bucket& bucket : buckets.all) {
    CompressionCost compression;
    bucket.seconds = reduction_seconds(plan, bucket.elements, bucket.expert, groups, table, cluster,
                                       compression);
    bucket.compute_seconds = compression.seconds;
    buckets.compression.add(compression);
    if (plan.zero_stage == 0) continue;
    bucket.whole = padded(bucket.elements, groups.shards(bucket.expert).size());
    bucket.gather_seconds = gather_seconds(plan, bucket.whole, bucket.expert, groups, cluster);
  }
  return buckets;
}

double reduction_seconds(const Plan& plan, double elements, bool expert, DataGroups& groups,
                         const OperatorTable& table, const Cluster& cluster,
                         CompressionCost& compression) {
  if (plan.compression.kind != program::CompressionKind::None)
    return compressed_seconds(compressed_reduction(plan, elements, expert, groups, table, cluster),
                              compression);
  if (plan.zero_stage == 0) {
    PricedGroup& all = expert ? groups.experts : groups.dense;
    return progress_factor(plan, cluster) *
           all.seconds(Collective::AllReduce, elements * kFp32Bytes, cluster);
  }
  PricedGroup& shards = groups.shards(expert);
  const double bytes = padded(elements, shards.size()) * kFp32Bytes;
  return progress_factor(plan, cluster) *
         (shards.seconds(Collective::ReduceScatter, bytes, cluster) +
          groups.replicas(expert).seconds(Collective::AllReduce, bytes / shards.size(), cluster));
}

double gather_seconds(const Plan& plan, double elements, bool expert, DataGroups& groups,
                      const Cluster& cluster) {
  PricedGroup& shards = groups.shards(expert);
  const auto bytes = static_cast<double>(size_of(plan.workload.precision));
  return progress_factor(plan, cluster) *
         shards.seconds(Collective::AllGather, elements * bytes / shards.size(), cluster);
}

}  // namespace meshplan::sim
