#include "runs/operation_list.hpp"

#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"

namespace meshplan::planner {
namespace {

using program::ComputeKind;

KernelKind kind_of(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::Linear:
    case ComputeKind::GroupedLinear:
      return KernelKind::Product;
    case ComputeKind::Attention:
      return KernelKind::Attention;
    case ComputeKind::RmsNorm:
    case ComputeKind::LayerNorm:
    case ComputeKind::HeadRmsNorm:
      return KernelKind::Norm;
    case ComputeKind::CrossEntropy:
    case ComputeKind::CrossEntropyLocal:
      return KernelKind::Loss;
    case ComputeKind::Embedding:
      return KernelKind::Embedding;
    default:
      return KernelKind::Elementwise;
  }
}

/// What kind of kernel does the work, with what tells it from others of the kind.
void describe_work(ListedOperation& listed, const program::Operation& operation) {
  if (const auto* compute = std::get_if<program::ComputeOp>(&operation.work))
    listed.kind = kind_of(compute->kind);
  if (const auto* collective = std::get_if<program::CollectiveOp>(&operation.work)) {
    listed.kind = KernelKind::Collective;
    listed.collective = collective->collective;
  }
  if (const auto* flat = std::get_if<program::FlatCollectiveOp>(&operation.work)) {
    listed.kind = KernelKind::Collective;
    listed.collective = flat->collective.collective;
  }
  if (const auto* peer = std::get_if<program::PeerOp>(&operation.work)) {
    listed.kind = KernelKind::Message;
    listed.sends = peer->send;
  }
  if (const auto* step = std::get_if<program::StepOp>(&operation.work))
    listed.kind = step->work == program::StepWork::OptimizerUpdate ? KernelKind::Optimizer
                                                                   : KernelKind::Elementwise;
}

}  // namespace

std::vector<ListedOperation> list_operations(const program::Plan& plan, int rank) {
  const program::Mesh mesh = program::mesh_of(plan);
  const program::Program program = program::lower(plan, mesh.coordinates(rank).pp);
  std::vector<ListedOperation> operations;
  operations.reserve(program.instances.size());
  for (const program::OperationInstance& instance : program.instances) {
    ListedOperation listed{
        .span = program::make_span(program, instance, mesh, rank), .collective = {}, .sends = {}};
    listed.backward = listed.span.phase == program::Phase::InputGrad ||
                      listed.span.phase == program::Phase::WeightGrad;
    describe_work(listed, program::operation_of(program, instance));
    if (listed.kind == KernelKind::Collective || listed.kind == KernelKind::Message)
      listed.message_bytes = program::message_bytes(program, instance);
    operations.push_back(std::move(listed));
  }
  return operations;
}

}  // namespace meshplan::planner
