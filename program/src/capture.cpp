#include "program/capture.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {
namespace {

bool host_must_wait(const Program& program, const OperationInstance& instance,
                    CommunicationDriver driver) {
  return driver == CommunicationDriver::Host &&
         std::ranges::any_of(waits_of(program, instance), [&](int earlier) {
           return is_communication(operation_of(program, program.instances[at(earlier)]));
         });
}

/// Does the host need to know how many rows there are when it starts this? The router decides them,
/// and where it sends more than the plan has buffers for, they lie elsewhere in that step. Without
/// an exchange the rows are those of the rank's own tokens, in the plan's buffers: where experts
/// begin is then read on the device.
bool has_routed_size(const Operation& operation, int ep) {
  if (ep == 1) return false;
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work))
    return collective->collective == Collective::AllToAllV;
  const auto* compute = std::get_if<ComputeOp>(&operation.work);
  if (compute == nullptr) return false;
  const bool forward = operation.phase == Phase::Forward || operation.phase == Phase::Recompute;
  if (compute->over == Group::EpWithin) return true;  // how many tokens are forwarded
  switch (compute->kind) {
    case ComputeKind::ExchangeSizes:
    case ComputeKind::RegroupRows:
    case ComputeKind::GroupedLinear:
    case ComputeKind::UnpackRows:
      return true;
    case ComputeKind::Activation:
    case ComputeKind::GatedActivation:
      return operation.inputs.size() > (forward ? 1 : 2);  // the offsets of routed rows
    case ComputeKind::BiasAdd:                             // of experts whose weights are frozen
      return !forward && operation.inputs.size() > 1;
    default:
      return false;
  }
}

}  // namespace

bool is_communication(const Operation& operation) {
  return std::holds_alternative<CollectiveOp>(operation.work) ||
         std::holds_alternative<PeerOp>(operation.work) ||
         std::holds_alternative<FlatCollectiveOp>(operation.work);
}

bool is_static(const Operation& operation, int ep, CommunicationDriver driver) {
  if (has_routed_size(operation, ep)) return false;
  if (is_communication(operation)) return driver == CommunicationDriver::Device;
  const auto* step = std::get_if<StepOp>(&operation.work);
  return step == nullptr || step->work != StepWork::LoadBatch;
}

std::vector<CaptureRegion> capture_regions(const Program& program, CommunicationDriver driver) {
  std::vector<CaptureRegion> regions;
  bool open = false;
  for (int i = 0; i < static_cast<int>(program.instances.size()); ++i) {
    const OperationInstance& instance = program.instances[at(i)];
    if (!is_static(operation_of(program, instance), program.plan.parallel.ep, driver)) {
      open = false;
      continue;
    }
    if (!open || host_must_wait(program, instance, driver)) regions.push_back({i, i});
    open = true;
    regions.back().end = i + 1;
  }
  return regions;
}

}  // namespace meshplan::program
