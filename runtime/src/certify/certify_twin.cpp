#include "certify/certify_twin.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <numeric>
#include <optional>

namespace meshplan::runtime {

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
      .compressed = plan.compression.kind != program::CompressionKind::None};
  program::TwinResult result{.plan = plan,
                             .techniques = twin.techniques,
                             .ranks = plan.parallel.world_size(),
                             .steps = options.num_steps,
                             .seeds = {seed},
                             .tolerance = program::tolerance_of(plan)};
  program::TwinRun run;
  if (Communicator* own = groups.first_ranks(result.ranks))
    run = run_twin(plan, options, *own, job.backend, mutate);
  if (Communicator* alone = groups.first_ranks(1)) {
    program::Plan one_rank = program::one_rank_plan(plan);
    const program::TwinRun expected = run_twin(one_rank, options, *alone, job.backend);
    std::optional<program::TwinRun> in_fp32;
    if (!exact) {
      set_precision(one_rank.workload, program::Precision::F32);
      in_fp32 = run_twin(one_rank, options, *alone, job.backend);
    }
    result.compared =
        program::compare(run, expected, result.tolerance, in_fp32 ? &*in_fp32 : nullptr);
    std::ranges::move(program::exact_figures(run.exact), std::back_inserter(result.compared));
  }
  job.world.barrier().wait();
  return result;
}

}  // namespace meshplan::runtime
