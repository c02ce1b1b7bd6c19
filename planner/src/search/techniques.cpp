#include "search/techniques.hpp"

#include "core/error.hpp"

namespace meshplan::planner {
namespace {

/// What a schedule adds to a pipeline's own: chunks; weight gradients put off, tasks overlapped.
int intricacy(program::ScheduleKind schedule) {
  switch (schedule) {
    case program::ScheduleKind::OneFOneB:
    case program::ScheduleKind::GPipe:
      return 0;
    case program::ScheduleKind::Interleaved:
    case program::ScheduleKind::ZbH1:
      return 1;
    case program::ScheduleKind::OverlappedOneFOneB:
    case program::ScheduleKind::ZbV:
    case program::ScheduleKind::DualPipeV:
    case program::ScheduleKind::Custom:
      return 2;
  }
  throw InvariantError("an unknown schedule");
}

}  // namespace

int techniques(const Candidate& candidate) {
  const program::ParallelConfig& p = candidate.parallel;
  const program::Recompute& recompute = candidate.recompute;
  const bool of_a_part = recompute.kind == program::RecomputeKind::Selective &&
                         (!recompute.modules.empty() || recompute.num_layers);
  return (p.tp > 1) + (p.cp > 1) + (p.pp > 1) + intricacy(candidate.schedule) + (p.ep > 1) +
         (p.etp > 1) + (candidate.expert_node_ranks > 0) + candidate.zero_stage +
         (candidate.zero_shard_group > 0) + (recompute.kind != program::RecomputeKind::None) +
         of_a_part + (!candidate.layers_per_stage.empty() || candidate.count_ends_as_layers);
}

}  // namespace meshplan::planner
