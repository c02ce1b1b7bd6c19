#include "certify/certify_twin.hpp"

#include <numeric>
#include <span>

namespace meshplan::runtime {

program::TwinResult certify_twin(const program::Twin& twin, std::uint64_t seed, const TwinJob& job,
                                 const Mutation& mutate) {
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
  std::vector<int> ranks(static_cast<std::size_t>(result.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  program::TwinRun run;
  if (const auto group = job.world.create_group(ranks, "twin"))
    run = run_twin(plan, options, *group, job.backend, mutate);
  const int first = 0;
  if (const auto alone = job.world.create_group(std::span(&first, 1), "one rank"))
    result.compared =
        program::compare(run, run_twin(program::one_rank_plan(plan), options, *alone, job.backend),
                         result.tolerance);
  job.world.barrier().wait();
  return result;
}

}  // namespace meshplan::runtime
