// Flags of the parallel axes, and of what recomputes and is kept elsewhere.
#include <fmt/ranges.h>

#include "core/limits.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "models/model_modules.hpp"

namespace meshplan::planner::megatron {
namespace {

using program::ContextMethod;
using program::Plan;
using program::RecomputeKind;

constexpr std::string_view kPipelineBeforeData = "tp-cp-ep-pp-dp";

std::vector<Flag> axis_flags() {
  const auto degree = [](std::string_view name, auto access) {
    return count(name, Group::Parallel, access, 1, limits::kRanks, 1);
  };
  return {
      degree(
          "--tensor-model-parallel-size", [](auto& p) -> auto& { return p.parallel.tp; }),
      toggle(
          "--sequence-parallel", Group::Parallel, [](const Plan& p) { return p.parallel.sp; },
          [](Reading& reading, bool given) {
            // Megatron-LM turns it off without tp, too.
            reading.plan.parallel.sp = given && reading.plan.parallel.tp > 1;
          },
          "divides the tokens between tp regions"),
      degree(
          "--context-parallel-size", [](auto& p) -> auto& { return p.parallel.cp; }),
      value(
          "--cp-comm-type", Group::Parallel,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.parallel.cp == 1) return std::nullopt;
            return p.context_parallel == ContextMethod::Ring      ? "p2p"
                   : p.context_parallel == ContextMethod::Ulysses ? "a2a"
                                                                  : "allgather";
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr && given->values.size() > 1)
              Reading::fail(*given, "a type for each layer is not read; nearest: p2p");
            const std::vector<std::string> choices{"p2p", "a2a", "allgather"};
            const std::size_t type = given != nullptr ? reading.choice(*given, choices) : 0;
            reading.plan.context_parallel = type == 0   ? ContextMethod::Ring
                                            : type == 1 ? ContextMethod::Ulysses
                                                        : ContextMethod::AllGather;
          },
          "how attention reaches the keys of other cp ranks"),
      degree(
          "--pipeline-model-parallel-size", [](auto& p) -> auto& { return p.parallel.pp; }),
  };
}

std::vector<Flag> expert_axis_flags() {
  return {
      of_experts(count(
          "--expert-model-parallel-size", Group::Parallel,
          [](auto& p) -> auto& { return p.parallel.ep; }, 1, limits::kRanks, 1)),
      of_experts(value(
          "--expert-tensor-parallel-size", Group::Parallel,
          [](const Plan& p) { return std::optional(std::to_string(p.parallel.etp)); },
          [](Reading& reading, const Argument* given) {
            program::ParallelConfig& parallel = reading.plan.parallel;
            parallel.etp = given != nullptr
                               ? static_cast<int>(reading.integer(*given, 1, limits::kRanks))
                               : parallel.tp;
            if (given == nullptr && parallel.tp > 1)
              reading.assume(fmt::format("etp = tp = {} (Megatron-LM's default)", parallel.tp));
          },
          "its default is tp")),
  };
}

void read_sharding(Reading& reading, bool distributed) {
  Plan& plan = reading.plan;
  plan.zero_stage = distributed ? 1 : 0;
  if (reading.has("--use-megatron-fsdp")) {
    const Argument* strategy = reading.find("--data-parallel-sharding-strategy");
    const std::vector<std::string> choices{"no_shard", "optim", "optim_grads",
                                           "optim_grads_params"};
    plan.zero_stage =
        strategy != nullptr ? static_cast<int>(reading.choice(*strategy, choices)) : 3;
  }
  if (reading.has("--use-torch-fsdp2"))
    plan.zero_stage = reading.has("--torch-fsdp2-no-reshard-after-forward") ? 2 : 3;
}

std::vector<Flag> data_flags() {
  return {
      toggle(
          "--use-tp-pp-dp-mapping", Group::Parallel,
          [](const Plan& p) { return p.rank_order == kPipelineBeforeData; },
          [](Reading& reading, bool given) {
            reading.plan.rank_order =
                given ? std::string(kPipelineBeforeData) : program::Plan{}.rank_order;
          },
          "the stages of a pipeline are neighbours"),
      toggle(
          "--use-distributed-optimizer", Group::Parallel,
          [](const Plan& p) { return p.zero_stage == 1; }, read_sharding,
          "ZeRO 1: optimizer state is divided over dp * cp"),
      value(
          "--num-distributed-optimizer-instances", Group::Parallel,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.zero_shard_group == 0) return std::nullopt;
            return std::to_string(p.parallel.dp * p.parallel.cp / p.zero_shard_group);
          },
          [](Reading&, const Argument*) {},  // once dp is known: see complete_ranks()
          "copies of the divided optimizer state"),
  };
}

void read_recompute(Reading& reading, const Argument* given) {
  const std::vector<std::string> choices{"selective", "full"};
  program::Recompute& recompute = reading.plan.recompute;
  recompute = {};
  if (reading.has("--recompute-activations")) recompute.kind = RecomputeKind::Selective;
  if (given == nullptr) return;
  recompute.kind =
      reading.choice(*given, choices) == 0 ? RecomputeKind::Selective : RecomputeKind::Full;
}

/// Not given, Megatron-LM recomputes attention's core, as the plan has it without modules.
void read_modules(Reading& reading, const Argument* given) {
  program::Recompute& recompute = reading.plan.recompute;
  if (given == nullptr || recompute.kind != RecomputeKind::Selective) return;
  Values without;
  for (const std::string& name : reading.texts(*given)) {
    const auto module = module_of(name);
    if (module && models::has_module(reading.plan.model, *module))
      recompute.modules.add(*module);
    else
      without.push_back(name);
  }
  if (!without.empty())
    reading.assume(
        fmt::format("recompute.modules without {} (of {}), which the plan's model has not",
                    fmt::join(without, ", "), given->written()));
  if (recompute.modules.empty()) recompute.kind = RecomputeKind::None;
}

std::vector<Flag> recompute_flags() {
  const auto is_full = [](const Plan& p) { return p.recompute.kind == RecomputeKind::Full; };
  return {
      value(
          "--recompute-granularity", Group::Memory,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.recompute.kind == RecomputeKind::None) return std::nullopt;
            return p.recompute.kind == RecomputeKind::Full ? "full" : "selective";
          },
          read_recompute),
      value(
          "--recompute-method", Group::Memory,
          [is_full](const Plan& p) -> std::optional<std::string> {
            if (!is_full(p)) return std::nullopt;
            return p.recompute.num_layers ? "block" : "uniform";
          },
          [](Reading&, const Argument*) {},  // with the number of layers
          "block: the first layers of each virtual stage"),
      value(
          "--recompute-num-layers", Group::Memory,
          [is_full](const Plan& p) -> std::optional<std::string> {
            if (!is_full(p)) return std::nullopt;
            return std::to_string(p.recompute.num_layers.value_or(1));
          },
          [is_full](Reading& reading, const Argument* given) {
            if (given == nullptr || !is_full(reading.plan)) return;
            const int layers = static_cast<int>(reading.integer(*given, 1, limits::kLayers));
            const Argument* method = reading.find("--recompute-method");
            const std::vector<std::string> choices{"uniform", "block"};
            if (method != nullptr && reading.choice(*method, choices) == 1)
              reading.plan.recompute.num_layers = layers;
            else if (layers > 1)
              reading.assume(fmt::format(
                  "every layer keeps its input (the script keeps that of each {} layers)", layers));
          }),
      {"--recompute-modules", Group::Memory, -1, "",
       [](const Plan& p) -> std::optional<Values> {
         if (p.recompute.modules.empty()) return std::nullopt;
         Values names;
         for (const auto& [name, module] : kRecomputeModules)
           if (p.recompute.modules.contains(module)) names.emplace_back(name);
         return names;
       },
       read_modules},
  };
}

std::vector<Flag> offload_flags() {
  const auto offloads = [](const Plan& p) { return p.offload_optimizer; };
  return {
      toggle(
          "--optimizer-cpu-offload", Group::Memory, offloads,
          [](Reading& reading, bool given) { reading.plan.offload_optimizer = given; },
          "master weights and optimizer state in the host's memory"),
      fixed("--overlap-cpu-optimizer-d2h-h2d", Group::Memory, {}, "", offloads),
      fixed("--use-precision-aware-optimizer", Group::Memory, {}, "which offloading needs",
            offloads),
  };
}

}  // namespace

std::vector<Flag> parallel_flags() {
  std::vector<Flag> all = axis_flags();
  for (const auto& part : {pipeline_flags(), expert_axis_flags(), data_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<Flag> memory_flags() {
  std::vector<Flag> all = recompute_flags();
  const std::vector<Flag> offload = offload_flags();
  all.insert(all.end(), offload.begin(), offload.end());
  return all;
}

}  // namespace meshplan::planner::megatron
