// Work on flat ranges: gradients, optimizer state.
#include "program/cost/step_cost.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "program/memory/offload.hpp"
#include "program/plan/plan_names.hpp"
#include "program/zero/zero.hpp"

namespace meshplan::program {
namespace {

/// fp32 numbers that an optimizer reads and writes per element (see kernels::AdamStep).
constexpr std::int64_t kAdamBytes = 28;
constexpr std::int64_t kSgdBytes = 20;

/// Elements that a rank works on: of a divided bucket its part, which is equal for all ranks up to
/// the run's share of it.
std::int64_t step_elements(const Plan& plan, const StepOp& step) {
  if (!step.bucket || plan.zero_stage == 0) return step.range.size();
  const Group group = step.expert ? Group::ExpertZeroShards : Group::ZeroShards;
  const std::int64_t shards = group_size(group, plan);
  return (step.range.size() + shards - 1) / shards;
}

/// Units of work that are alike: elements, or bytes of a copy.
struct FlatWork {
  std::string name;  // empty: costs nothing
  std::int64_t units = 0;
  std::int64_t bytes_per_unit = 0;
  double flops_per_unit = 0;
};

FlatWork flat_work(const Plan& plan, const StepOp& step) {
  switch (step.work) {
    case StepWork::SquaredNorm:
      return {.name = "squared_norm",
              .units = step_elements(plan, step),
              .bytes_per_unit = 4,
              .flops_per_unit = 2};
    case StepWork::AccumulateGradients:
      return {.name = "accumulate_gradients",
              .units = step_elements(plan, step),
              .bytes_per_unit = 12,
              .flops_per_unit = 1};
    case StepWork::OptimizerUpdate: {
      const DType precision = plan.workload.precision;
      const OptimizerKind kind = plan.workload.optimizer.kind;
      const std::int64_t copy = precision == DType::F32 ? 0 : size_of(precision);
      return {.name = fmt::format("{} {}", meshplan::name_of(kind), name_of(precision)),
              .units = step_elements(plan, step),
              .bytes_per_unit = (kind == OptimizerKind::Sgd ? kSgdBytes : kAdamBytes) + copy};
    }
    case StepWork::FetchState:
    case StepWork::StoreState:
    case StepWork::FetchWeights:
    case StepWork::StoreActivations:
    case StepWork::FetchActivations:  // read here and written there
      return {.name = "copy_state", .units = copied_bytes(plan, step), .bytes_per_unit = 2};
    case StepWork::LoadBatch:
    case StepWork::MaskLoss:
    case StepWork::ClipCoefficient:
    case StepWork::ClearGradients:  // gaps of a few elements
    case StepWork::BalanceExperts:
      return {};
    case StepWork::CompressGradients:
    case StepWork::SumCompressed:
    case StepWork::CompressSum:
    case StepWork::DecompressGradients:
    case StepWork::SettleErrors:
      throw InvariantError("compression is priced and named by its bucket");
  }
  throw InvariantError("step work without a cost");
}

}  // namespace

bool copies_to_or_from_host(StepWork work) {
  switch (work) {
    case StepWork::FetchState:
    case StepWork::StoreState:
    case StepWork::FetchWeights:
    case StepWork::StoreActivations:
    case StepWork::FetchActivations:
      return true;
    default:
      return false;
  }
}

std::int64_t copied_bytes(const Plan& plan, const StepOp& step) {
  switch (step.work) {
    case StepWork::StoreActivations:
    case StepWork::FetchActivations:
      return step.range.size();
    case StepWork::FetchWeights:
      return step_elements(plan, step) * size_of(plan.workload.precision);
    default:
      return step_elements(plan, step) * offloaded_bytes_per_element(plan);
  }
}

OperationCost step_cost(const Plan& plan, const StepOp& step) {
  const FlatWork work = flat_work(plan, step);
  return {.flops = work.flops_per_unit * static_cast<double>(work.units),
          .bytes = work.bytes_per_unit * work.units};
}

std::string step_signature(const Plan& plan, const StepOp& step) {
  const FlatWork work = flat_work(plan, step);
  return work.name.empty() ? "" : fmt::format("{} {}", work.name, work.units);
}

}  // namespace meshplan::program
