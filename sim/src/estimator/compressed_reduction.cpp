#include "estimator/compressed_reduction.hpp"

#include <cmath>
#include <vector>

#include "estimator/blocks/block_prices.hpp"
#include "program/compression/compression.hpp"
#include "program/cost/cost.hpp"
#include "schedules/host_thread.hpp"

namespace meshplan::sim {
namespace {

using program::Collective;
using program::StepWork;

/// What lowering makes of one bucket's sum (program/src/compress_reductions.cpp).
std::vector<StepWork> sum_of(const program::CompressedLayout& layout) {
  if (!layout.by_parts) return {StepWork::DecompressGradients};
  if (layout.scatters) return {StepWork::SumCompressed};
  return {StepWork::SumCompressed, StepWork::CompressSum, StepWork::DecompressGradients};
}

program::Bucket bucket_of(const program::Plan& plan, double elements, bool expert,
                          DataGroups& groups) {
  program::Bucket bucket{.group = expert ? program::Group::ExpertDp : program::Group::DpCp};
  if (plan.zero_stage > 0) bucket.shards = groups.shards(expert).size();
  if (plan.zero_stage > 0 && groups.replicas(expert).size() > 1)
    bucket.replicas = expert ? program::Group::ExpertZeroReplicas : program::Group::ZeroReplicas;
  const auto unit =
      static_cast<double>(program::parameter_alignment(plan) * program::bucket_parts(plan, bucket));
  bucket.range = {0, static_cast<std::int64_t>(std::ceil(elements / unit) * unit)};
  return bucket;
}

program::Program alone(const program::Plan& plan, const program::Bucket& bucket) {
  program::Program program{.plan = plan};
  program.buckets = {bucket};
  return program;
}

double work_seconds(program::Program alone, const std::vector<StepWork>& all,
                    const OperatorTable& table, const Cluster& cluster) {
  double seconds = 0;
  for (const StepWork work : all) {
    program::OperationInstance instance;
    instance.operation = {.index = static_cast<int>(alone.step_operations.size())};
    alone.step_operations.push_back(
        {.name = "compression",
         .phase = program::Phase::Reduce,
         .work = program::StepOp{.work = work, .range = alone.buckets.front().range, .bucket = 0},
         .inputs = {},
         .outputs = {}});
    const program::OperationCost cost = program::operation_cost(alone, instance);
    seconds += seconds_on_busy_host(table.price(program::signature(alone, instance), cost.flops,
                                                static_cast<double>(cost.bytes)),
                                    cluster);
  }
  return seconds;
}

}  // namespace

CompressedReduction compressed_reduction(const program::Plan& plan, double elements, bool expert,
                                         DataGroups& groups, const OperatorTable& table,
                                         const Cluster& cluster) {
  CompressedReduction result;
  if (elements <= 0) return result;
  const program::Bucket bucket = bucket_of(plan, elements, expert, groups);
  if (!program::is_compressed(plan, bucket)) return result;
  const program::Program program = alone(plan, bucket);
  const program::CompressedLayout layout = program::compressed_layout(program, 0);
  PricedGroup& group = bucket.replicas ? groups.replicas(expert)
                       : expert        ? groups.experts
                                       : groups.dense;
  if (layout.by_parts)
    result.communication_seconds =
        group.seconds(Collective::AllToAll, static_cast<double>(layout.sent_bytes()), cluster);
  if (!layout.by_parts || !layout.scatters)
    result.communication_seconds +=
        group.seconds(Collective::AllGather, static_cast<double>(layout.record_bytes), cluster);
  if (bucket.replicas)
    result.scatter_seconds =
        progress_factor(plan, cluster) *
        groups.shards(expert).seconds(
            Collective::ReduceScatter,
            static_cast<double>(bucket.range.size() * size_of(DType::F32)), cluster);
  result.communication_seconds *= progress_factor(plan, cluster);
  result.compress_seconds = work_seconds(program, {StepWork::CompressGradients}, table, cluster);
  result.sum_seconds = work_seconds(program, sum_of(layout), table, cluster);
  if (program::keeps_settled_errors(plan))
    result.settle_seconds = work_seconds(program, {StepWork::SettleErrors}, table, cluster);
  const std::int64_t kept =
      layout.compressed + (program::keeps_sum_errors(plan, bucket) ? layout.elements : 0);
  const int copies = program::keeps_settled_errors(plan) ? 2 : 1;
  result.error_bytes = static_cast<double>(copies * kept * size_of(DType::F32));
  result.slot_bytes = static_cast<double>(layout.slot_bytes());
  return result;
}

}  // namespace meshplan::sim
