// What a candidate is called.
#include <fmt/format.h>

#include "core/error.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {

using meshplan::name_of;  // of enumerations, beside planner's own of other things
using program::Recompute;
using program::RecomputeKind;
using program::ScheduleKind;

std::string describe(const Candidate& candidate) {
  std::string text =
      fmt::format("{} mbs{}", program::to_string(candidate.parallel), candidate.micro_batch_size);
  if (candidate.expert_node_ranks > 0) text += " by-node";
  if (candidate.parallel.cp > 1) text += fmt::format(" {}", name_of(candidate.context_parallel));
  const Recompute& recompute = candidate.recompute;
  if (recompute.kind != RecomputeKind::None)
    text += fmt::format(" {}-recompute", program::recompute_name(recompute));
  if (recompute.kind != RecomputeKind::None && recompute.num_layers)
    text += fmt::format("({} layers)", *recompute.num_layers);
  const bool pipelined = candidate.parallel.pp > 1 || program::overlaps_tasks(candidate.schedule);
  if (pipelined && candidate.schedule != ScheduleKind::OneFOneB)
    text += fmt::format(" {}", name_of(candidate.schedule));
  if (!candidate.layers_per_stage.empty()) text += " uneven";
  if (candidate.parallel.pp > 1 && candidate.count_ends_as_layers) text += " ends-as-layers";
  if (candidate.zero_stage > 0) text += fmt::format(" zero{}", candidate.zero_stage);
  if (candidate.zero_shard_group > 0) text += fmt::format("/{}", candidate.zero_shard_group);
  if (candidate.offload_optimizer)
    text += candidate.offload_parameters ? " offload-all" : " offload";
  if (candidate.offload_activations > 0)
    text += fmt::format(" offload-activations({} layers)", candidate.offload_activations);
  if (candidate.rank_order != program::Mesh::kDefaultOrder)
    text += fmt::format(" order {}", candidate.rank_order);
  if (candidate.bucket_bytes != 0)
    text += fmt::format(" buckets {}", format_bytes(static_cast<double>(candidate.bucket_bytes)));
  return text;
}

bool ends_fill_up(int chunks, int num_layers) {
  return num_layers % chunks != 0 && (num_layers + 2) % chunks == 0;
}

Candidate candidate_of(const program::Plan& plan) {
  return {.parallel = plan.parallel,
          .micro_batch_size = plan.micro_batch_size,
          .recompute = plan.recompute,
          .schedule = plan.schedule,
          .layers_per_stage = plan.layers_per_stage,
          .count_ends_as_layers = plan.count_ends_as_layers,
          .context_parallel = plan.context_parallel,
          .zero_stage = plan.zero_stage,
          .zero_shard_group = plan.zero_shard_group,
          .expert_node_ranks = plan.expert_node_ranks,
          .compression = plan.compression,
          .rank_order = plan.rank_order,
          .bucket_bytes =
              plan.bucket_bytes == default_bucket_bytes(plan.parallel) ? 0 : plan.bucket_bytes,
          .offload_optimizer = plan.offload_optimizer,
          .offload_parameters = plan.offload_parameters,
          .offload_activations = plan.offload_activations};
}

std::string label(Choice choice, const Candidate& candidate) {
  switch (choice) {
    case Choice::Tp:
      return fmt::format("tp={}", candidate.parallel.tp);
    case Choice::Sp:
      return candidate.parallel.sp ? "sp" : "no sp";
    case Choice::Cp:
      return candidate.parallel.cp > 1 ? fmt::format("cp={} {}", candidate.parallel.cp,
                                                     name_of(candidate.context_parallel))
                                       : "cp=1";
    case Choice::Pp:
      return fmt::format("pp={}", candidate.parallel.pp);
    case Choice::Dp:
      return fmt::format("dp={}", candidate.parallel.dp);
    case Choice::Ep:
      return fmt::format("ep={}{}", candidate.parallel.ep,
                         candidate.expert_node_ranks > 0 ? " by node" : "");
    case Choice::Etp:
      return fmt::format("etp={}", candidate.parallel.etp);
    case Choice::Zero:
      return candidate.zero_shard_group > 0 ? fmt::format("zero={} in groups", candidate.zero_stage)
                                            : fmt::format("zero={}", candidate.zero_stage);
    case Choice::MicroBatch:
      return fmt::format("mbs={}", candidate.micro_batch_size);
    case Choice::Recompute:
      return fmt::format("recompute={}", name_of(candidate.recompute.kind));
    case Choice::Schedule:
      return program::loops_over_chunks(candidate.schedule)
                 ? fmt::format("{} vpp={}", name_of(candidate.schedule), candidate.parallel.vpp)
                 : std::string(name_of(candidate.schedule));
  }
  throw InvariantError("unknown choice");
}

}  // namespace meshplan::planner
