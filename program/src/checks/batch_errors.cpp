#include "checks/batch_errors.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>

namespace meshplan::program {
namespace {

bool leaves_no_replica_idle(const Plan& plan) {
  const std::int64_t before_last = std::int64_t{plan.micro_batch_size} * (plan.parallel.dp - 1);
  return plan.workload.global_batch_size > before_last;
}

/// Sequences of the global batch that a replica takes in a step.
std::int64_t sequences_of_replica(const Plan& plan, int dp) {
  const int last = plan.num_microbatches() - 1;
  return std::int64_t{last} * plan.micro_batch_size + real_sequences(plan, last, dp);
}

/// "6, 5 and 5", or of many replicas "5 to 6".
std::string sequences_of_replicas(const Plan& plan) {
  constexpr int kListed = 4;
  const int dp = plan.parallel.dp;
  if (dp > kListed)
    return fmt::format("{} to {}", sequences_of_replica(plan, dp - 1),
                       sequences_of_replica(plan, 0));
  std::vector<std::string> texts;
  for (int replica = 0; replica + 1 < dp; ++replica)
    texts.push_back(std::to_string(sequences_of_replica(plan, replica)));
  return fmt::format("{}{}{}", fmt::join(texts, ", "), texts.empty() ? "" : " and ",
                     sequences_of_replica(plan, dp - 1));
}

/// What the plan costs with empty sequences; empty if it cannot have them.
std::string uneven_way_out(const Plan& plan) {
  if (!plan.stack.is_own() || !leaves_no_replica_idle(plan)) return "";
  const int rounds = plan.num_microbatches(), dp = plan.parallel.dp;
  const std::int64_t empty = plan.empty_sequences();
  return fmt::format(
      "; or uneven_batch (--uneven-batch): {} replica{} {} {} sequences in {} micro-batch{}{}, and "
      "{} of {} computed {} empty",
      dp, dp == 1 ? "" : "s", dp == 1 ? "takes" : "take", sequences_of_replicas(plan), rounds,
      rounds == 1 ? "" : "es", dp == 1 ? "" : " each", empty,
      plan.workload.global_batch_size + empty, empty == 1 ? "is" : "are");
}

/// The largest micro-batch, or the most replicas, that leaves none without a sequence.
std::string nearest_without_idle(const Plan& plan) {
  const std::int64_t global = plan.workload.global_batch_size;
  const int dp = plan.parallel.dp;
  if (global < dp) return fmt::format("dp {}", global);
  return fmt::format("micro_batch_size {}", (global - 1) / (dp - 1));
}

}  // namespace

std::vector<Violation> batch_errors(const Plan& plan) {
  if (plan.empty_sequences() == 0) return {};
  const std::int64_t global = plan.workload.global_batch_size;
  const std::int64_t round = plan.sequences_per_round();
  const std::string division = fmt::format("micro_batch_size({}) * dp({}) = {}",
                                           plan.micro_batch_size, plan.parallel.dp, round);
  const std::int64_t nearest = std::max<std::int64_t>(1, (global + round / 2) / round) * round;
  if (!plan.uneven_batch)
    return {{"batch", fmt::format("global_batch_size ({}) is not divisible by {}; nearest: {}{}",
                                  global, division, nearest, uneven_way_out(plan))}};
  if (!plan.stack.is_own())
    return {{"uneven-batch",
             fmt::format("uneven_batch is of meshplan's own program, and global_batch_size ({}) is "
                         "not divisible by {}; nearest: {}",
                         global, division, nearest)}};
  if (!leaves_no_replica_idle(plan))
    return {
        {"uneven-batch",
         fmt::format("uneven_batch: with {} some of the replicas have no sequence of the global "
                     "batch ({}); nearest: {}",
                     division, global, nearest_without_idle(plan))}};
  return {};
}

}  // namespace meshplan::program
