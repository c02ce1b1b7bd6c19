#include "program/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <iterator>

#include "core/error.hpp"
#include "core/index.hpp"
#include "program/plan/plan_names.hpp"
#include "program/schedule/csv.hpp"
#include "program/schedule/generators.hpp"

namespace meshplan::program {

Precision precision_of(const Workload& workload) {
  if (workload.fp8 != Float8Recipe::None) return Precision::Fp8;
  switch (workload.precision) {
    case DType::F32:
      return Precision::F32;
    case DType::BF16:
      return Precision::BF16;
    case DType::F16:
      return Precision::F16;
    default:
      throw InvariantError("a precision in which nothing is trained");
  }
}

void set_precision(Workload& workload, Precision precision) {
  constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16, DType::BF16};
  workload.precision = kTypes[static_cast<int>(precision)];
  workload.fp8 = precision == Precision::Fp8 ? Float8Recipe::Hybrid : Float8Recipe::None;
}

std::string_view precision_name(const Workload& workload) {
  return meshplan::name_of(precision_of(workload));
}

Precision parse_precision(std::string_view name) {
  if (const auto precision = from_name<Precision>(name)) return *precision;
  std::vector<std::string> known;
  for (const auto& [precision, other] : EnumNames<Precision>::value) known.emplace_back(other);
  throw ConfigError(unknown_name_message("precision", name, std::move(known)));
}

bool keeps_quantized_weights(const Plan& plan) {
  return plan.workload.fp8 != Float8Recipe::None && plan.zero_stage < 3;
}

std::int64_t expert_capacity(const Plan& plan) {
  if (!plan.model.moe || plan.model.moe->capacity_factor == 0) return 0;
  const models::MoeSpec& moe = *plan.model.moe;
  const auto share = static_cast<double>(plan.workload.seq_len) * moe.top_k / moe.num_experts;
  const double tokens = std::ceil(share * moe.capacity_factor);
  return tokens >= static_cast<double>(plan.workload.seq_len) ? plan.workload.seq_len
                                                              : static_cast<std::int64_t>(tokens);
}

namespace {

/// Tokens of a micro-batch whose copies a rank sends to experts: its own, gathered over etp.
std::int64_t routing_tokens(const Plan& plan) {
  const std::int64_t shards = plan.parallel.sp ? plan.parallel.tp : 1;
  return plan.tokens_per_microbatch() / shards * plan.parallel.etp;
}

}  // namespace

std::int64_t most_routed_rows(const Plan& plan) {
  if (!plan.model.moe) return 0;
  const ParallelConfig& parallel = plan.parallel;
  const std::int64_t held = plan.model.moe->num_experts / parallel.ep;
  const std::int64_t most =
      routing_tokens(plan) * parallel.ep * std::min<std::int64_t>(plan.model.moe->top_k, held);
  const std::int64_t capacity = expert_capacity(plan);
  // A rank that forwards has rows of all its node's experts, from few of the ranks.
  if (capacity == 0 || expert_nodes(plan) > 1) return most;
  // The ranks that send to an expert hold parts of at most so many sequences.
  int replicas = (parallel.ep * parallel.etp + parallel.tp - 1) / parallel.tp;
  if (parallel.cp > 1) replicas = std::min(replicas, parallel.dp);
  return std::min(most, capacity * held * plan.micro_batch_size * replicas);
}

std::int64_t place_in_step(const Plan& plan, int microbatch, int dp, int i) {
  return (std::int64_t{microbatch} * plan.parallel.dp + dp) * plan.micro_batch_size + i;
}

int real_sequences(const Plan& plan, int microbatch, int dp) {
  const std::int64_t left =
      plan.workload.global_batch_size - place_in_step(plan, microbatch, dp, 0);
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, plan.micro_batch_size));
}

Plan on_stack(Plan plan, std::string software) {
  plan.stack = {.software = std::move(software), .settings = {}};
  if (plan.stack.is_own()) return plan;
  plan.expert_node_ranks = 0;  // another's exchange is a setting of the stack
  plan.expert_dispatch_fp8 = false;
  plan.uneven_batch = false;
  return plan;
}

int expert_nodes(const Plan& plan) {
  return plan.expert_node_ranks > 0 ? plan.parallel.ep / plan.expert_node_ranks : 1;
}

std::int64_t forwarded_tokens_bound(const Plan& plan) {
  const int nodes = expert_nodes(plan);
  return plan.model.moe && nodes > 1 ? nodes * routing_tokens(plan) : 0;
}

std::int64_t routed_rows_bound(const Plan& plan) {
  if (!plan.model.moe) return 0;
  const std::int64_t most = most_routed_rows(plan);
  const std::int64_t balanced = routing_tokens(plan) * plan.model.moe->top_k;
  if (plan.parallel.ep == 1) return std::min(balanced, most);
  const double wanted = std::ceil(static_cast<double>(balanced) * plan.expert_imbalance);
  return wanted >= static_cast<double>(most) ? most : static_cast<std::int64_t>(wanted);
}

int expert_load_row(const Plan& plan, int layer) {
  int row = 0;
  for (int before = 0; before < layer; ++before) row += models::is_moe_layer(plan.model, before);
  return row;
}

int expert_load_rows(const Plan& plan) {
  const int modules = models::predicts_with_experts(plan.model) ? plan.model.mtp_layers : 0;
  return expert_load_row(plan, plan.model.num_layers) + modules;
}

std::int64_t expert_load_elements(const Plan& plan) {
  if (!plan.model.moe) return 0;
  const std::int64_t rows = expert_load_rows(plan);
  return (expert_capacity(plan) > 0 ? 2 : 1) * rows * plan.model.moe->num_experts;
}

std::vector<int> resolved_layers_per_stage(const Plan& plan) {
  if (!plan.layers_per_stage.empty()) return plan.layers_per_stage;
  const int stages = plan.parallel.pp * plan.parallel.vpp;
  const int ends = plan.count_ends_as_layers ? 2 : 0;
  const int layers_and_ends = plan.model.num_layers + ends;
  // A remainder goes to the middle stages: the embedding and the head weigh on the first and the
  // last.
  std::vector<int> layers(static_cast<std::size_t>(stages), layers_and_ends / stages);
  const int remainder = layers_and_ends % stages;
  const int first = std::max(0, (stages - remainder) / 2);
  for (int i = 0; i < remainder; ++i) ++layers[at(first + i)];
  layers.front() -= ends / 2;
  layers.back() -= ends / 2;
  return layers;
}

RecomputedPart recomputed_part(const Recompute& recompute) {
  switch (recompute.kind) {
    case RecomputeKind::None:
      return {};
    case RecomputeKind::Selective:
      return {.modules = recompute.modules.empty() ? kCheapModules : recompute.modules};
    case RecomputeKind::Full:
      return {.whole_layer = true};
  }
  throw InvariantError("unknown recompute");
}

Recompute recompute_of_all_layers(const RecomputedPart& part) {
  if (part.empty()) return {};
  if (part.whole_layer) return {.kind = RecomputeKind::Full};
  Recompute recompute{.kind = RecomputeKind::Selective};
  if (part.modules != kCheapModules) recompute.modules = part.modules;
  return recompute;
}

std::string recompute_name(const Recompute& recompute) {
  if (recompute.kind == RecomputeKind::Selective && !recompute.modules.empty())
    return models::to_string(recompute.modules);
  return std::string(meshplan::name_of(recompute.kind));
}

Recompute parse_recompute(std::string_view name) {
  if (const auto kind = from_name<RecomputeKind>(name)) return {.kind = *kind};
  if (name.find('+') == std::string_view::npos && !from_name<models::Module>(name)) {
    std::vector<std::string> known = all_names<RecomputeKind>();
    std::ranges::copy(all_names<models::Module>(), std::back_inserter(known));
    throw ConfigError(unknown_name_message("recompute", name, std::move(known)));
  }
  return recompute_of_all_layers({.modules = models::parse_modules(name)});
}

std::vector<int> recomputed_layers_per_stage(const Plan& plan) {
  std::vector<int> layers = resolved_layers_per_stage(plan);
  const Recompute& recompute = plan.recompute;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    int limit = recompute.num_layers.value_or(layers[i]);
    if (i < recompute.layers_per_stage.size()) limit = recompute.layers_per_stage[i];
    layers[i] = recompute.kind == RecomputeKind::None ? 0 : std::min(limit, layers[i]);
  }
  return layers;
}

Schedule schedule_of(const Plan& plan) {
  if (plan.schedule != ScheduleKind::Custom)
    return make_schedule(plan.schedule, plan.parallel.pp, plan.num_microbatches(),
                         plan.parallel.vpp);
  return parse_schedule_csv(fmt::format("{}", fmt::join(plan.custom_schedule, "\n")),
                            "custom_schedule");
}

ChunkPlacement placement_of(const Plan& plan) {
  switch (plan.schedule) {
    case ScheduleKind::ZbV:
    case ScheduleKind::DualPipeV:
      return ChunkPlacement::V;
    case ScheduleKind::Custom:
      return schedule_of(plan).placement;
    default:
      return ChunkPlacement::Loop;
  }
}

}  // namespace meshplan::program
