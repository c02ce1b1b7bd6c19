#include "program/cost/cost.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.hpp"
#include "cost/compression_cost.hpp"
#include "cost/compute_operation.hpp"
#include "program/cost/step_cost.hpp"
#include "program/plan/plan_names.hpp"

namespace meshplan::program {
namespace {

bool compresses(StepWork work) {
  return work >= StepWork::CompressGradients && work <= StepWork::SettleErrors;
}

/// Probability that `drawn` of `all` experts, each drawn once, leave out `some` of them.
double all_missed(std::int64_t all, std::int64_t some, int drawn) {
  double probability = 1;
  for (int i = 0; i < drawn; ++i)
    probability *= static_cast<double>(std::max<std::int64_t>(all - some - i, 0)) /
                   static_cast<double>(all - i);
  return probability;
}

/// Ways to choose `chosen` of `all`.
double combinations(int all, int chosen) {
  if (chosen < 0 || chosen > all) return 0;
  double ways = 1;
  for (int i = 0; i < chosen; ++i) ways = ways * (all - i) / (i + 1);
  return ways;
}

/// Probability that a token has none of a node's experts.
double node_missed(const models::MoeSpec& moe, std::int64_t held) {
  const int groups = moe.router.num_groups, chosen = moe.router.top_groups;
  if (groups <= 1 || chosen >= groups) return all_missed(moe.num_experts, held, moe.top_k);
  const std::int64_t size = moe.num_experts / groups;
  const std::int64_t eligible = chosen * size;
  if (held < size) {
    const double is_eligible = static_cast<double>(chosen) / groups;
    return 1 - is_eligible + is_eligible * all_missed(eligible, held, moe.top_k);
  }
  const int of_node = static_cast<int>(held / size);
  double missed = 0;
  for (int hit = 0; hit <= std::min(of_node, chosen); ++hit)
    missed += combinations(of_node, hit) * combinations(groups - of_node, chosen - hit) /
              combinations(groups, chosen) * all_missed(eligible, hit * size, moe.top_k);
  return missed;
}

}  // namespace

double expected_expert_nodes(const Plan& plan) {
  const int nodes = expert_nodes(plan);
  const models::MoeSpec& moe = *plan.model.moe;
  return nodes * (1 - node_missed(moe, moe.num_experts / nodes));
}

std::int64_t busiest_forwarded(const Plan& plan) {
  const std::int64_t bound = forwarded_tokens_bound(plan);
  if (bound == 0) return 0;
  const double tokens = static_cast<double>(bound) / expert_nodes(plan);
  const double busiest = tokens * expected_expert_nodes(plan) * plan.expected_expert_imbalance;
  return std::min(bound, static_cast<std::int64_t>(std::ceil(busiest)));
}

std::int64_t busiest_rows(const Plan& plan) {
  const auto balanced = static_cast<double>(balanced_rows(plan));
  return static_cast<std::int64_t>(std::ceil(balanced * plan.expected_expert_imbalance));
}

std::int64_t balanced_rows(const Plan& plan) {
  if (!plan.model.moe) return 0;
  const std::int64_t shards = plan.parallel.sp ? plan.parallel.tp : 1;
  return plan.tokens_per_microbatch() / shards * plan.parallel.etp * plan.model.moe->top_k;
}

OperationCost operation_cost(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (std::holds_alternative<ComputeOp>(operation.work))
    return compute_cost({program, instance, operation});
  if (const auto* step = std::get_if<StepOp>(&operation.work))
    return compresses(step->work) ? compression_cost(program, *step)
                                  : step_cost(program.plan, *step);
  return {.flops = 0, .bytes = message_bytes(program, instance)};
}

double score_gradient_bytes(double pairs, double queries, double keys, double edges) {
  constexpr double kTile = 128;
  const double cut = queries * edges * (kTile - 1) / 2;  // of tiles on an edge, beyond the mask
  return static_cast<double>(size_of(DType::BF16)) * std::min(pairs + cut, queries * keys);
}

double mean_mask_edges(double keys, bool causal, double window) {
  if (!causal) return 0;
  return window > 0 && window < keys ? 1 + (1 - window / keys) : 1;
}

double score_gradient_bytes(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (!std::holds_alternative<ComputeOp>(operation.work)) return 0;
  return score_gradient_bytes(ComputeOperation{program, instance, operation});
}

void add_signature(std::string& text, const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  if (std::holds_alternative<ComputeOp>(operation.work))
    return add_compute_signature(text, {program, instance, operation});
  const auto* step = std::get_if<StepOp>(&operation.work);
  if (step == nullptr) return;
  text += compresses(step->work) ? compression_signature(program, *step)
                                 : step_signature(program.plan, *step);
}

std::string signature(const Program& program, const OperationInstance& instance) {
  std::string text;
  add_signature(text, program, instance);
  return text;
}

void check_signature(std::string_view signature) {
  static const std::vector<std::string> kPhases{"forward", "input_grad", "weight_grad", "reduce",
                                                "optimizer"};
  static const std::vector<std::string> kKinds = [] {
    std::vector<std::string> all = compute_kinds();
    std::ranges::copy(all_names<OptimizerKind>(), std::back_inserter(all));
    all.insert(all.end(), {"copy_state", "squared_norm", "accumulate_gradients", "settle_errors"});
    return all;
  }();
  const std::string first(signature.substr(0, signature.find(' ')));
  for (const char* family : {"compress_", "sum_", "decompress_"})
    if (first.starts_with(family)) return;
  const std::size_t dot = first.find('.');
  const std::string kind = first.substr(0, dot);
  if (std::ranges::find(kKinds, kind) == kKinds.end())
    throw ConfigError(unknown_name_message("operator", kind, kKinds));
  if (dot == std::string::npos) return;
  const std::string phase = first.substr(dot + 1);
  if (std::ranges::find(kPhases, phase) == kPhases.end())
    throw ConfigError(unknown_name_message("phase", phase, kPhases));
}

std::int64_t message_bytes(const Program& program, const OperationInstance& instance) {
  const Operation& operation = operation_of(program, instance);
  const models::SymbolValues sizes = counted_sizes(program);
  const auto bytes = [&](const models::Dim& elements, DType dtype) {
    return models::evaluate(elements, sizes) * size_of(dtype);
  };
  if (const auto* collective = std::get_if<CollectiveOp>(&operation.work)) {
    const std::int64_t sent = bytes(collective->elements, collective->dtype);
    if (collective->collective != Collective::AllToAllV) return sent;
    // Every rank sends about as much; the busiest one receives more, or sends it back.
    const Value& received = value_of(program, instance, operation.outputs.front());
    return std::max(sent, counted_elements(received, sizes) * size_of(collective->dtype));
  }
  if (const auto* peer = std::get_if<PeerOp>(&operation.work))
    return bytes(peer->elements, peer->dtype);
  if (const auto* flat = std::get_if<FlatCollectiveOp>(&operation.work))
    return bytes(flat->collective.elements, flat->collective.dtype);
  return 0;
}

}  // namespace meshplan::program
