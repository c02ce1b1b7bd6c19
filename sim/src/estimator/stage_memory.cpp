#include "estimator/stage_memory.hpp"

#include <algorithm>

#include "core/units.hpp"
#include "prices/element_bytes.hpp"
#include "program/memory/offload.hpp"
#include "program/plan/mesh.hpp"

namespace meshplan::sim {
namespace {

using program::Group;
using program::Plan;

/// Process groups of more than one rank that a rank of the stage opens.
int communicators_of(const Plan& plan, bool tied, bool last) {
  const auto& p = plan.parallel;
  const auto several = [&](Group group) { return program::group_size(group, plan) > 1 ? 1 : 0; };
  const bool over_world = plan.model.moe || plan.zero_stage > 0;
  int count = several(Group::Tp) + several(Group::Cp) + (p.pp > 1) + (tied ? 1 : 0) +
              several(Group::KvCopies) + several(over_world ? Group::World : Group::TpPp);
  const bool hybrid = plan.zero_stage > 0 && several(Group::ZeroReplicas) > 0;
  // Hybrid: over all of them the last stage alone sums its loss.
  count += hybrid ? several(Group::ZeroShards) + 1 + (last ? 1 : 0) : several(Group::DpCp);
  if (!plan.model.moe) return count;
  const bool hybrid_experts = plan.zero_stage > 0 && several(Group::ExpertZeroReplicas) > 0;
  count += several(Group::Etp) + (program::expert_nodes(plan) > 1
                                      ? several(Group::EpWithin) + several(Group::EpAcross)
                                      : several(Group::Ep));
  return count + (hybrid_experts ? several(Group::ExpertZeroShards) + 1 : several(Group::ExpertDp));
}

/// Both slots of what an offloaded update works on: pieces as large as a bucket, or what a rank
/// owns of one.
double staging_bytes(const Plan& plan, const StageCost& stage) {
  if (!plan.offload_optimizer) return 0;
  double elements = 0;
  if (plan.zero_stage == 0) {
    elements = std::min(stage.sums.elements, static_cast<double>(plan.bucket_bytes) / kFp32Bytes);
  } else {
    const ZeroStage& zero = stage.zero;
    for (const Bucket& bucket : stage.buckets->all)
      elements = std::max(elements, bucket.elements * owned_share(zero));
    if (plan.zero_stage >= 2) elements = std::max(zero.owned, zero.largest_owned);
  }
  return program::kStagingSlots * elements *
         static_cast<double>(program::offloaded_bytes_per_element(plan));
}

}  // namespace

double stage_state_bytes(const Plan& plan, const StageCost& cost, const Cluster& cluster) {
  const bool on_gpu = cluster.device.kind == DeviceKind::Gpu;
  return parameter_bytes(plan, cost.sums.elements, cost.sums.frozen_elements, cost.zero, on_gpu);
}

double stage_host_bytes(const Plan& plan, const StageCost& cost, double activations,
                        const Cluster& cluster) {
  if (cluster.device.kind == DeviceKind::Cpu) return 0;
  const auto state_bytes = [&](bool on_gpu) {
    return parameter_bytes(plan, cost.sums.elements, cost.sums.frozen_elements, cost.zero, on_gpu);
  };
  return state_bytes(/*on_gpu=*/false) - state_bytes(/*on_gpu=*/true) + activations;
}

double stage_memory_bytes(const Plan& plan, const StageCost& cost,
                          const StageActivations& activations, double expert_load,
                          const Cluster& cluster) {
  const int m = plan.num_microbatches();
  const double batch = 2.0 * static_cast<double>(plan.tokens_per_microbatch()) * m * kFp32Bytes;
  const double load = expert_load * kFp32Bytes;
  const bool on_gpu = cluster.device.kind == DeviceKind::Gpu;
  return stage_state_bytes(plan, cost, cluster) + staging_bytes(plan, cost) +
         cost.sums.quantized_bytes + cost.compression_bytes + 2 * cost.compression_slot_bytes +
         activations.bytes + cost.slots.staging + (on_gpu ? cost.slots.workspace : 0) +
         cost.slots.transient * activations.transient_slots +
         cost.slots.boundary * activations.boundary_slots + cost.slots.scalar + load + batch +
         communicators_of(plan, cost.tied, cost.last) * cluster.communication.buffer_mib * kMib +
         cluster.device.runtime_base_mib * kMib;
}

}  // namespace meshplan::sim
