#include "planner/explain/rule_of_thumb.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "core/dtype.hpp"
#include "models/counts.hpp"
#include "planner/explain/priced_plan.hpp"
#include "planner/search/reasons.hpp"
#include "sim/engine/memory.hpp"
#include "sim/stacks/execution_profile.hpp"

namespace meshplan::planner {
namespace {

using program::Plan;

constexpr double kFp32 = 4;

/// State that is kept per parameter beside weights and gradients.
double optimizer_bytes(const program::Workload& workload) {
  const program::OptimizerKind kind = workload.optimizer.kind;
  const bool has_one = kind == program::OptimizerKind::Sgd || kind == program::OptimizerKind::Muon;
  const double moments = has_one ? kFp32 : 2 * kFp32;
  return workload.precision == DType::F32 ? moments : kFp32 + moments;
}

/// Parameters of one rank.
struct OwnParameters {
  double dense = 0;
  double experts = 0;
};

OwnParameters own_parameters(const Plan& plan) {
  const models::ParameterCounts counts = models::count_parameters(models::build_graph(plan.model));
  double experts = 0;  // one token uses top_k of them
  if (const auto& moe = plan.model.moe; moe && moe->num_experts > moe->top_k)
    experts = static_cast<double>(counts.total - counts.active) * moe->num_experts /
              (moe->num_experts - moe->top_k);
  const program::ParallelConfig& p = plan.parallel;
  return {.dense = (static_cast<double>(counts.total) - experts) / (p.tp * p.pp),
          .experts = experts / (p.ep * p.etp * p.pp)};
}

/// Bytes per token and layer that a backward needs, without tensor parallelism: 34 h where ffn = 4
/// h and the activation function is not gated.
double saved_bytes_of_token(const models::ModelSpec& model) {
  constexpr double kOfHidden = 18;  // attention 11, norms 4, the block's dropout and input 3
  constexpr double kOfWide = 2;
  const double wide_values = model.mlp == models::Mlp::Gated ? 3 : 2;
  double wide = model.ffn_size;
  if (model.moe)
    wide = model.moe->top_k * model.moe->expert_ffn_size + model.moe->shared_expert_ffn_size;
  return kOfHidden * model.hidden_size + kOfWide * wide_values * wide;
}

class Thumb {
 public:
  explicit Thumb(const SearchRequest& request)
      : request_(request), software_(sim::load_execution_profile(request.stack.software)) {}

  RuleOfThumb run() {
    const int ranks = request_.cluster.num_ranks();
    const int node = request_.cluster.devices_per_node;
    const bool experts = request_.model.moe.has_value() && software_.can.expert_parallel;
    const int inner_most = experts ? request_.model.moe->num_experts : node;
    int inner = 1;
    for (int next = 1; next <= std::min(node, inner_most); next *= 2) {
      if (next > 1 && !experts && !software_.can.tensor_parallel) break;
      if (ranks % next != 0 || !obeys_rules(with(next, 1, experts))) continue;
      inner = next;
      if (takes(with(inner, 1, experts))) return std::move(found_);
    }
    if (software_.can.schedules.empty()) return none();
    for (int pp = 2; pp <= request_.model.num_layers && pp <= ranks; ++pp) {
      const int model_ranks = experts ? pp : inner * pp;
      if (ranks % model_ranks != 0 || !obeys_rules(with(inner, pp, experts))) continue;
      if (takes(with(inner, pp, experts))) return std::move(found_);
    }
    return none();
  }

 private:
  Plan with(int inner, int pp, bool experts) const {
    Candidate candidate;
    program::ParallelConfig& p = candidate.parallel;
    (experts ? p.ep : p.tp) = inner;
    p.pp = pp;
    p.dp = request_.cluster.num_ranks() / (p.tp * p.pp);
    p.sp = p.tp > 1;
    candidate.recompute.kind = program::RecomputeKind::Selective;
    if (p.dp > 1) candidate.zero_stage = zero_stage(pp);
    return make_plan(request_, candidate);
  }

  int zero_stage(int pp) const {
    const std::vector<int>& stages = software_.can.zero_stages;
    if (std::ranges::find(stages, 1) != stages.end()) return 1;
    const int own = sim::default_zero_stage(software_);
    return own >= 2 && pp > 1 && !software_.can.shards_in_pipelines ? 0 : own;
  }

  bool obeys_rules(const Plan& plan) {
    const std::vector<program::Violation> broken = broken_rules(plan);
    if (!broken.empty()) broken_ = broken.front().message;
    return broken.empty();
  }

  /// Does the plan fit, as the rule counts? Then it is found.
  bool takes(const Plan& plan) {
    const double usable =
        sim::memory_capacity_bytes(request_.cluster) * (1 - request_.memory_reserve);
    const ThumbMemory memory = thumb_memory(plan);
    smallest_ =
        fmt::format("{}: {}", describe(candidate_of(plan)), shortage(memory.total(), usable));
    if (memory.total() > usable) return false;
    found_ = {.plan = plan,
              .reason = fmt::format("{} of state and {} of activations are below {}",
                                    format_bytes(memory.state), format_bytes(memory.activations),
                                    format_bytes(usable))};
    return true;
  }

  RuleOfThumb none() const {
    if (smallest_.empty()) return {.plan = {}, .reason = broken_};
    return {.plan = {}, .reason = "too large by its count of state and activations, " + smallest_};
  }

  const SearchRequest& request_;
  const sim::ExecutionProfile& software_;
  RuleOfThumb found_;
  std::string broken_, smallest_;
};

}  // namespace

ThumbMemory thumb_memory(const Plan& plan) {
  const program::ParallelConfig& p = plan.parallel;
  const OwnParameters own = own_parameters(plan);
  const double dense_copies = p.dp * p.cp;
  const double expert_copies = std::max(1, p.edp());
  const auto state = [&](double parameters, double copies) {
    const auto kept = [&](double bytes, int stage) {
      return plan.zero_stage >= stage ? bytes / copies : bytes;
    };
    return parameters * (kept(static_cast<double>(size_of(plan.workload.precision)), 3) +
                         kept(kFp32, 2) + kept(optimizer_bytes(plan.workload), 1));
  };
  const double tokens = static_cast<double>(plan.tokens_per_microbatch());
  return {.state = state(own.dense, dense_copies) + state(own.experts, expert_copies),
          .activations = tokens * plan.model.num_layers * saved_bytes_of_token(plan.model) / p.tp};
}

RuleOfThumb rule_of_thumb(const SearchRequest& request) {
  return Thumb(request).run();
}

}  // namespace meshplan::planner
