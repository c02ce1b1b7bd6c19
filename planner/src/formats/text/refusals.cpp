#include "formats/text/refusals.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::planner {
namespace {

/// The axes of an order along which there is more than one rank.
std::vector<std::string> axes_of(std::string_view order, const program::ParallelConfig& parallel) {
  const std::array<std::pair<std::string_view, int>, 5> degrees = {{{"tp", parallel.tp},
                                                                    {"cp", parallel.cp},
                                                                    {"ep", parallel.ep},
                                                                    {"dp", parallel.dp},
                                                                    {"pp", parallel.pp}}};
  std::vector<std::string> axes;
  while (!order.empty()) {
    const std::string_view axis = order.substr(0, order.find('-'));
    for (const auto& [name, degree] : degrees)
      if (name == axis && degree > 1) axes.emplace_back(axis);
    order.remove_prefix(std::min(order.size(), axis.size() + 1));
  }
  return axes;
}

}  // namespace

void Refusals::throw_if_any() const {
  if (lines_.empty()) return;
  throw ConfigError(
      fmt::format("{} cannot be asked for this plan:\n  {}", target_, fmt::join(lines_, "\n  ")));
}

void refuse_own_techniques(Refusals& refusals, const program::Plan& plan) {
  refusals.add(plan.compression.kind != program::CompressionKind::None, "compression.kind",
               meshplan::name_of(plan.compression.kind), "gradients travel whole; nearest: none");
  refusals.add(plan.offload_activations > 0, "offload_activations", plan.offload_activations,
               "moves other parts of what backward reads, or none; nearest: 0");
  refusals.add(plan.empty_sequences() > 0, "uneven_batch", true,
               fmt::format("replicas take equally many sequences; nearest global_batch_size: {}",
                           plan.workload.global_batch_size + plan.empty_sequences()));
  refusals.add(plan.model.adapters.has_value(), "model.adapters", "given",
               "the files have no adapters; nearest: null");
  refusals.add(!plan.frozen.empty(), "frozen", fmt::format("[{}]", fmt::join(plan.frozen, ", ")),
               "has no setting for it; nearest: []");
  refusals.add(plan.workload.documents.packed, "workload.documents.packed", true,
               "how documents share sequences is not written by this version; nearest: false");
  refusals.add(plan.max_tokens_per_rank > 0, "max_tokens_per_rank", plan.max_tokens_per_rank,
               "a document is divided over all cp ranks; nearest: 0");
}

void refuse_offloaded_parameters(Refusals& refusals, const program::Plan& plan) {
  refusals.add(
      plan.offload_parameters, "offload_parameters", true,
      "weights lie on the devices, or wherever the optimizer's state lies; nearest: false");
}

void require_rules_kept(std::string_view target, const program::Plan& plan, const Facts& settings) {
  const RuleSet& rules = rules_for(target);
  std::vector<std::string> lines;
  for (const Judgement& judgement : judge(rules, plan, settings))
    if (judgement.refuses())
      lines.push_back(fmt::format("{} ({}): {}", judgement.id, judgement.name, judgement.message));
  if (lines.empty()) return;
  throw ConfigError(fmt::format("{} refuses this plan (`meshplan check --for {}` says more):\n  {}",
                                rules.stack, target, fmt::join(lines, "\n  ")));
}

void refuse_other_order(Refusals& refusals, const program::Plan& plan, std::string_view order) {
  refusals.add(axes_of(plan.rank_order, plan.parallel) != axes_of(order, plan.parallel),
               "rank_order", plan.rank_order,
               fmt::format("ranks are numbered {0}, innermost axis first; nearest: {0}", order));
}

}  // namespace meshplan::planner
