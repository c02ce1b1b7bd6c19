#include "certify/certify_twin.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <numeric>
#include <optional>

namespace meshplan::runtime {
namespace {

/// What the one rank beside a twin trains.
struct ReferencePlans {
  program::Plan plan;
  /// The same in another precision, to know what rounding alone does; none in fp32.
  std::optional<program::Plan> other;
};

/// @param in_fp32  `plan` is in fp32 and `other` in the twin's precision, not the other way round
ReferencePlans reference_plans(const program::Plan& twin, bool in_fp32) {
  ReferencePlans plans{.plan = program::one_rank_plan(twin)};
  if (twin.workload.precision == DType::F32) return plans;
  plans.other = plans.plan;
  set_precision((in_fp32 ? plans.plan : *plans.other).workload, program::Precision::F32);
  return plans;
}

}  // namespace

Communicator* TwinGroups::first_ranks(int count) {
  if (count == world_.size()) return &world_;
  const auto [entry, fresh] = groups_.try_emplace(count);
  if (fresh) {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    entry->second = world_.create_group(ranks, fmt::format("twin of {}", count));
  }
  return entry->second.get();
}

program::TwinResult certify_twin(const program::Twin& twin, std::uint64_t seed, const TwinJob& job,
                                 TwinGroups& groups, const Mutation& mutate) {
  const program::Plan& plan = twin.plan;
  const bool exact = plan.workload.precision == DType::F32;
  const TwinRunOptions options{
      .num_steps = exact ? 2 : 1,  // the second one reads what the first one wrote
      .seed = seed,
      .status = job.status,
      .trained_only = !exact,
      .compressed = plan.compression.kind != program::CompressionKind::None};
  const bool same_kernels = &job.device.backend() == &job.reference;
  const ReferencePlans reference = reference_plans(plan, /*in_fp32=*/!same_kernels);
  program::TwinResult result{
      .plan = plan,
      .techniques = twin.techniques,
      .device = job.device_name.empty() ? job.device.backend().name() : job.device_name,
      .reference = job.reference.name(),
      .reference_precision = std::string(program::precision_name(reference.plan.workload)),
      .ranks = plan.parallel.world_size(),
      .steps = options.num_steps,
      .seeds = {seed},
      .tolerance = program::tolerance_of(plan)};
  program::TwinRun run;
  if (Communicator* own = groups.first_ranks(result.ranks))
    run = run_twin(plan, options, *own, job.device, mutate);
  if (Communicator* alone = groups.first_ranks(1)) {
    HostDevice processor(job.reference);
    const program::TwinRun expected = run_twin(reference.plan, options, *alone, processor);
    std::optional<program::TwinRun> other;
    if (reference.other) other = run_twin(*reference.other, options, *alone, processor);
    result.compared = program::compare(run, expected, result.tolerance, other ? &*other : nullptr);
    std::ranges::move(program::exact_figures(run.exact), std::back_inserter(result.compared));
  }
  job.world.barrier().wait();
  return result;
}

}  // namespace meshplan::runtime
