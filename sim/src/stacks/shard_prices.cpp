#include "stacks/shard_prices.hpp"

#include "prices/element_bytes.hpp"

namespace meshplan::sim {

using program::Collective;

double gathered_bytes(const TrainingRun& run, const ExecutionProfile& profile) {
  return run.precision == RunPrecision::Fp8 && profile.gathers_fp8 ? 1 : kHalfBytes;
}

ShardTraffic ShardPricer::traffic(const LayerWork& work) const {
  // Only of tensors with one scale: blocks of a shard have scales of their own.
  const double parameter_bytes = gathered_bytes(run_, profile_);
  const double gradient_bytes = profile_.reduce_bytes;
  ShardTraffic traffic;
  const auto add = [&](double n, const GroupPlacement& group) {
    if (n <= 0) return;
    const double shard = n / group.size;
    traffic.gather += pricer_.collective(Collective::AllGather, shard * parameter_bytes, group);
    traffic.scatter += pricer_.collective(Collective::ReduceScatter, n * gradient_bytes, group);
    if (!run_.switches.offload_parameters) return;
    traffic.gather += host_.transfer_seconds(shard * parameter_bytes);
    traffic.scatter += host_.transfer_seconds(shard * gradient_bytes);
  };
  add(work.dense_parameters, dense_shards());
  add(work.expert_parameters, placements_.expert_dp);
  if (run_.shard_in_node)
    traffic.across = pricer_.collective(
        Collective::AllReduce, work.dense_parameters / placements_.node_dp.size * gradient_bytes,
        placements_.across_dp);
  return traffic;
}

double ShardPricer::gather_copies(const LayerWork& work) const {
  if (profile_.shard_copies != ShardCopies::All) return 0;
  return pricer_.stream((work.dense_parameters + work.expert_parameters) * 2 *
                        gathered_bytes(run_, profile_));
}

double ShardPricer::scatter_copies(const LayerWork& work) const {
  const double widened = kHalfBytes + profile_.reduce_bytes;
  double bytes = 0;
  if (profile_.shard_copies == ShardCopies::All) bytes = widened;
  if (profile_.shard_copies == ShardCopies::Gradients)
    bytes = 2 * kHalfBytes + (profile_.reduce_bytes > kHalfBytes ? widened : 0);
  return pricer_.stream((work.dense_parameters + work.expert_parameters) * bytes);
}

const GroupPlacement& ShardPricer::dense_shards() const {
  return run_.shard_in_node ? placements_.node_dp : placements_.dp;
}

}  // namespace meshplan::sim
