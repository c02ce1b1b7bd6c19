#include "html/plan_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "program/plan/plan_names.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using program::Plan;

std::string plural(std::int64_t number, const std::string& noun, const std::string& end = "s") {
  return fmt::format("{} {}{}", grouped(number), noun, number == 1 ? "" : end);
}

std::string axes_sentence(const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  std::vector<std::string> axes;
  if (p.tp > 1)
    axes.push_back(fmt::format("{} cut each layer's matrices among them (tensor parallel{})", p.tp,
                               p.sp ? ", tokens between them too: sequence parallel" : ""));
  if (p.cp > 1)
    axes.push_back(fmt::format("{} share each sequence (context parallel, {})", p.cp,
                               name_of(plan.context_parallel)));
  if (p.pp > 1) axes.push_back(fmt::format("{} stages share the layers (pipeline)", p.pp));
  if (p.dp > 1) axes.push_back(fmt::format("{} replicas share the batch (data parallel)", p.dp));
  const std::string ranks = plural(p.world_size(), "rank");
  if (axes.empty()) return fmt::format("{} holds the whole model.", ranks);
  return fmt::format("{}: {}.", ranks, fmt::join(axes, "; "));
}

std::string schedule_sentence(const Plan& plan) {
  std::string text =
      fmt::format("A step is {} on each replica, of {} of {} tokens.",
                  plural(plan.num_microbatches(), "micro-batch", "es"),
                  plural(plan.micro_batch_size, "sequence"), grouped(plan.workload.seq_len));
  if (const std::int64_t empty = plan.empty_sequences(); empty > 0)
    text += fmt::format(
        " {} of the last sequences {} empty and {} in no loss: replicas share the global batch of "
        "{} unevenly.",
        empty, empty == 1 ? "is" : "are", empty == 1 ? "counts" : "count",
        grouped(plan.workload.global_batch_size));
  if (program::overlaps_tasks(plan.schedule))
    text += " Forwards run beside backwards of other micro-batches.";
  if (plan.parallel.pp == 1) return text;
  text += fmt::format(" Stages run them in the order of {}", name_of(plan.schedule));
  if (plan.parallel.vpp > 1)
    text += fmt::format(", each with {} chunks of layers", plan.parallel.vpp);
  return text + ".";
}

std::string experts_sentence(const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  if (p.ep == 1 && p.etp == 1) return "";
  std::string text =
      fmt::format("Experts are divided over {} (expert parallel)", plural(p.ep, "rank"));
  if (p.etp > 1) text += fmt::format(", each cut among {}", p.etp);
  if (plan.expert_node_ranks > 0)
    text +=
        fmt::format("; a token travels once to each node of {} of them", plan.expert_node_ranks);
  if (plan.expert_dispatch_fp8) text += "; tokens travel to them in FP8";
  return text + ".";
}

std::string zero_sentence(const Plan& plan) {
  static constexpr const char* kShared[] = {"", "the optimizer's state",
                                            "the optimizer's state and gradients",
                                            "the optimizer's state, gradients and weights"};
  if (plan.zero_stage == 0) return "";
  std::string text = fmt::format("ZeRO-{}: replicas divide {} among them", plan.zero_stage,
                                 kShared[plan.zero_stage]);
  if (plan.zero_shard_group > 0) text += fmt::format(", in groups of {}", plan.zero_shard_group);
  return text + ".";
}

std::string recompute_sentence(const Plan& plan) {
  switch (plan.recompute.kind) {
    case program::RecomputeKind::None:
      return "Backward keeps all activations.";
    case program::RecomputeKind::Selective:
      return "Backward computes cheap activations again (selective recompute).";
    case program::RecomputeKind::Full:
      if (!plan.recompute.num_layers && plan.recompute.layers_per_stage.empty())
        return "Backward computes every layer again (full recompute).";
      return fmt::format(
          "Backward computes some layers of each stage again (full recompute of {}).",
          fmt::join(program::recomputed_layers_per_stage(plan), ", "));
  }
  throw InvariantError("unknown recompute kind");
}

}  // namespace

std::vector<std::string> plan_in_words(const Plan& plan) {
  std::vector<std::string> sentences = {axes_sentence(plan), schedule_sentence(plan),
                                        experts_sentence(plan), recompute_sentence(plan),
                                        zero_sentence(plan)};
  if (plan.offload_activations > 0)
    sentences.push_back(fmt::format(
        "The first {} layers of each virtual stage keep their activations in host memory.",
        plan.offload_activations));
  if (plan.offload_parameters)
    sentences.emplace_back("The weights that a rank owns lie in host memory.");
  if (!plan.deterministic)
    sentences.emplace_back("A GPU's attention may add gradients up in any order.");
  if (plan.offload_optimizer) sentences.emplace_back("The optimizer's state lies in host memory.");
  std::erase(sentences, std::string());
  return sentences;
}

}  // namespace meshplan::reports
