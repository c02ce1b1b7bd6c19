#include "stacks/shard_prices.hpp"

#include <algorithm>

#include "prices/collective_rates.hpp"
#include "prices/element_bytes.hpp"
#include "sim/prices/pricing.hpp"

namespace meshplan::sim {

using program::Collective;

double share_beside(const GroupPlacement& group, const Cluster& cluster, double in_node) {
  // Two rings over each of a node's eight adapters (NCCL, src/graph/connect.cc, nChannels).
  constexpr double kChannels = 16;
  if (!group.level || *group.level == 0) return in_node;
  const double rate = bus_bytes_per_s(cluster, group) / link_capacity_bytes_per_s(cluster, 0);
  const double sms = std::min(in_node, kChannels / cluster.device.num_units);
  return sms + (in_node - sms) * std::min(1.0, rate);
}

double gathered_bytes(const TrainingRun& run, const ExecutionProfile& profile) {
  return run.precision == RunPrecision::Fp8 && profile.gathers_fp8 ? 1 : kHalfBytes;
}

double frozen_bytes(const TrainingRun& run, const ExecutionProfile& profile) {
  if (run.settings.frozen_storage) return program::bytes_of(*run.settings.frozen_storage);
  constexpr double kWideState = 6;  // more: the optimizer's copy is in fp32
  return run.shards_layers() && profile.optimizer_bytes > kWideState ? kFp32Bytes : kHalfBytes;
}

double frozen_gathered_bytes(const TrainingRun& run, const ExecutionProfile& profile) {
  if (run.settings.shard_frozen == false) return 0;
  const double whole = gathered_bytes(run, profile);
  return run.settings.frozen_storage
             ? std::min(whole, program::bytes_of(*run.settings.frozen_storage))
             : whole;
}

ShardTraffic ShardPricer::traffic(const LayerWork& work) const {
  // Only of tensors with one scale: blocks of a shard have scales of their own.
  const double parameter_bytes = gathered_bytes(run_, profile_);
  const double frozen_bytes = frozen_gathered_bytes(run_, profile_);
  const double gradient_bytes = profile_.reduce_bytes;
  ShardTraffic traffic;
  const auto add = [&](double n, double trained, const GroupPlacement& group) {
    const double gathered = trained * parameter_bytes + (n - trained) * frozen_bytes;
    if (gathered > 0)
      traffic.gather += pricer_.collective(Collective::AllGather, gathered / group.size, group);
    if (trained > 0)
      traffic.scatter +=
          pricer_.collective(Collective::ReduceScatter, trained * gradient_bytes, group);
    if (!run_.offload_parameters || n <= 0) return;
    traffic.gather += host_.transfer_seconds(gathered / group.size);
    if (trained > 0)
      traffic.scatter += host_.transfer_seconds(trained / group.size * gradient_bytes);
  };
  add(work.parameters.dense, work.trained.dense, dense_shards());
  add(work.parameters.expert, work.trained.expert, placements_.expert_dp);
  if (run_.shard_in_node)
    traffic.across = pricer_.collective(
        Collective::AllReduce, work.trained.dense / placements_.node_dp.size * gradient_bytes,
        placements_.across_dp);
  return traffic;
}

double ShardPricer::gather_copies(const LayerWork& work) const {
  if (profile_.shard_copies != ShardCopies::All) return 0;
  const double trained = work.trained.all();
  return pricer_.stream(
      2 * (trained * gathered_bytes(run_, profile_) +
           (work.parameters.all() - trained) * frozen_gathered_bytes(run_, profile_)));
}

double ShardPricer::scatter_copies(const LayerWork& work) const {
  const double widened = kHalfBytes + profile_.reduce_bytes;
  double bytes = 0;
  if (profile_.shard_copies == ShardCopies::All) bytes = widened;
  if (profile_.shard_copies == ShardCopies::Gradients)
    bytes = 2 * kHalfBytes + (profile_.reduce_bytes > kHalfBytes ? widened : 0);
  return pricer_.stream(work.trained.all() * bytes);
}

const GroupPlacement& ShardPricer::dense_shards() const {
  return run_.shard_in_node ? placements_.node_dp : placements_.dp;
}

}  // namespace meshplan::sim
