#include "compressed_reduction.hpp"

#include <cmath>
#include <vector>

#include "block_prices.hpp"
#include "host_thread.hpp"
#include "program/compression.hpp"
#include "program/cost.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::StepWork;

/// What lowering makes of one bucket's sum (program/src/compress_reductions.cpp).
std::vector<StepWork> work_of(const program::Plan& plan) {
  if (plan.compression.kind == program::CompressionKind::TopK)
    return {StepWork::CompressGradients, StepWork::DecompressGradients};
  if (plan.zero_stage > 0) return {StepWork::CompressGradients, StepWork::SumCompressed};
  return {StepWork::CompressGradients, StepWork::SumCompressed, StepWork::CompressSum,
          StepWork::DecompressGradients};
}

}  // namespace

CompressedReduction compressed_reduction(const program::Plan& plan, double elements, bool expert,
                                         PricedGroup& group, const OperatorTable& table,
                                         const Cluster& cluster) {
  CompressedReduction result;
  if (elements <= 0 || group.size() == 1) return result;
  program::Program bucket_alone{.plan = plan};
  program::Bucket bucket{.group = expert ? program::Group::ExpertDp : program::Group::DpCp};
  bucket.shards = plan.zero_stage > 0 ? group.size() : 1;
  const auto unit =
      static_cast<double>(program::parameter_alignment(plan) * program::bucket_parts(plan, bucket));
  bucket.range = {0, static_cast<std::int64_t>(std::ceil(elements / unit) * unit)};
  bucket_alone.buckets = {bucket};
  const program::CompressedLayout layout = program::compressed_layout(plan, bucket);
  const bool int8 = plan.compression.kind == program::CompressionKind::Int8;
  const auto gather = [&] {
    return group.seconds(Collective::AllGather, static_cast<double>(layout.record_bytes), cluster);
  };
  if (int8)
    result.communication_seconds =
        group.seconds(Collective::AllToAll, static_cast<double>(layout.sent_bytes()), cluster);
  if (!int8 || plan.zero_stage == 0) result.communication_seconds += gather();
  result.communication_seconds *= progress_factor(plan, cluster);
  for (const StepWork work : work_of(plan))
    bucket_alone.step_operations.push_back(
        {.name = "compression",
         .phase = program::Phase::Reduce,
         .work = program::StepOp{.work = work, .range = bucket.range, .bucket = 0},
         .inputs = {},
         .outputs = {}});
  for (int i = 0; i < static_cast<int>(bucket_alone.step_operations.size()); ++i) {
    program::OperationInstance instance;
    instance.operation = {.index = i};
    const program::OperationCost cost = program::operation_cost(bucket_alone, instance);
    result.computation_seconds +=
        seconds_on_busy_host(table.price(program::signature(bucket_alone, instance), cost.flops,
                                         static_cast<double>(cost.bytes)),
                             cluster);
  }
  if (program::keeps_sum_errors(plan))
    result.sum_error_bytes = static_cast<double>(layout.elements * size_of(DType::F32));
  result.slot_bytes = static_cast<double>(layout.sent_bytes() * (int8 ? 2 : 1));
  return result;
}

}  // namespace meshplan::sim
