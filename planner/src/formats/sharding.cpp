#include "formats/sharding.hpp"

namespace meshplan::planner {

Sharding sharding_of(const program::Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  if (plan.zero_stage == 0) return {p.dp, 1};
  if (plan.zero_shard_group == 0) return {1, p.dp};
  const int shard = plan.zero_shard_group / p.cp;
  return {p.dp / shard, shard};
}

}  // namespace meshplan::planner
