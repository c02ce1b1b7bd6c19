#include "checks/expert_errors.hpp"

#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

#include "core/error.hpp"
#include "core/float8_rows.hpp"

namespace meshplan::program {
namespace {

using Messages = std::vector<std::string>;

void need_experts(const Plan& plan, Messages& messages) {
  const auto needs = [&](const std::string& choice, std::string_view instead) {
    messages.push_back(fmt::format("{} needs a model with experts; {} has none: use {}", choice,
                                   plan.model.name, instead));
  };
  if (plan.parallel.ep > 1) needs(fmt::format("ep = {}", plan.parallel.ep), "ep = 1");
  if (plan.parallel.etp > 1) needs(fmt::format("etp = {}", plan.parallel.etp), "etp = 1");
  if (plan.expert_dispatch_fp8) needs("expert_dispatch_fp8", "false");
  if (plan.expert_node_ranks > 0) needs("expert_node_ranks", "0");
}

void divide(const Plan& plan, const models::MoeSpec& moe, Messages& messages) {
  const auto divides = [&](std::string_view what, int number, std::string_view name, int degree) {
    if (number % degree != 0)
      messages.push_back(fmt::format("{} ({}) is not divisible by {} ({}); nearest {}: {}", what,
                                     number, name, degree, name, nearest_divisor(number, degree)));
  };
  divides("num_experts", moe.num_experts, "ep", plan.parallel.ep);
  divides("expert_ffn_size", moe.expert_ffn_size, "etp", plan.parallel.etp);
  divides("shared_expert_ffn_size", moe.shared_expert_ffn_size, "tp", plan.parallel.tp);
}

void imbalance(const Plan& plan, Messages& messages) {
  if (!(plan.expert_imbalance >= 1))
    messages.push_back(
        fmt::format("expert_imbalance ({}) must be at least 1, which is a balanced router; "
                    "nearest: 1",
                    plan.expert_imbalance));
  else if (!(plan.expected_expert_imbalance >= 1 &&
             plan.expected_expert_imbalance <= plan.expert_imbalance))
    messages.push_back(
        fmt::format("expected_expert_imbalance ({}) must be at least 1, and at most "
                    "expert_imbalance ({}), which buffers are made for: every step of a run would "
                    "take more memory than planned; nearest: {}, or a larger expert_imbalance",
                    plan.expected_expert_imbalance, plan.expert_imbalance,
                    plan.expected_expert_imbalance >= 1 ? plan.expert_imbalance : 1));
}

/// 0 where no division is left.
int nearest_node_ranks(int asked, int ep) {
  int nearest = 0;
  for (int ranks = 2; ranks < ep; ++ranks)
    if (ep % ranks == 0 && (nearest == 0 || std::abs(ranks - asked) < std::abs(nearest - asked)))
      nearest = ranks;
  return nearest;
}

void nodes(const Plan& plan, Messages& messages) {
  const int ranks = plan.expert_node_ranks, ep = plan.parallel.ep;
  if (ranks == 0) return;
  if (ranks < 2 || ranks >= ep || ep % ranks != 0)
    messages.push_back(
        fmt::format("expert_node_ranks ({}) must be at least 2, less than ep ({}) and divide it: "
                    "the group's ranks lie on several nodes, with as many of them on each; "
                    "nearest: {}",
                    ranks, ep, nearest_node_ranks(ranks, ep)));
  if (!plan.stack.is_own())
    messages.emplace_back(
        "expert_node_ranks is of meshplan's own program: what other software does is in "
        "stack.settings.expert_dispatch; use expert_node_ranks = 0");
}

void float8(const Plan& plan, Messages& messages) {
  if (!plan.expert_dispatch_fp8) return;
  const auto refuse = [&](bool uses, const std::string& why) {
    if (uses) messages.push_back(why + "; use expert_dispatch_fp8 = false");
  };
  refuse(plan.parallel.ep == 1,
         "expert_dispatch_fp8 is of tokens that travel to experts of other ranks: ep = 1");
  refuse(plan.workload.precision == DType::F32,
         "expert_dispatch_fp8 rounds tokens that are computed in fp32 to three bits; use "
         "precision bf16, fp16 or fp8");
  refuse(plan.model.hidden_size % kFloat8PerWord != 0,
         fmt::format("expert_dispatch_fp8 packs four numbers in a word: hidden_size ({}) is no "
                     "multiple of {}",
                     plan.model.hidden_size, kFloat8PerWord));
  refuse(!plan.stack.is_own(),
         "expert_dispatch_fp8 is of meshplan's own program: what other software does is in "
         "stack.settings");
}

}  // namespace

std::vector<std::string> expert_errors(const Plan& plan) {
  Messages messages;
  if (!plan.model.moe) {
    need_experts(plan, messages);
    return messages;
  }
  divide(plan, *plan.model.moe, messages);
  if (plan.parallel.tp > 1 && !plan.parallel.sp)
    messages.push_back(
        fmt::format("tp ({}) with experts needs sp: without it every tp rank would route, and its "
                    "experts compute, the same tokens; set sp = true",
                    plan.parallel.tp));
  imbalance(plan, messages);
  nodes(plan, messages);
  float8(plan, messages);
  return messages;
}

}  // namespace meshplan::program
