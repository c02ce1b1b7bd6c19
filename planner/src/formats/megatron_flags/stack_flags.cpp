// Flags that say how Megatron-LM runs a plan: the settings of its stack.
#include <algorithm>

#include "formats/megatron_flags/flag.hpp"
#include "program/plan/stack.hpp"

namespace meshplan::planner::megatron {
namespace {

using program::AttentionBackend;
using program::CudaGraphs;
using program::ExpertDispatch;
using program::LossKernel;
using program::Plan;
using program::StackSettings;
using program::StateDType;

using Switch = std::optional<bool> StackSettings::*;
using Dtype = std::optional<StateDType> StackSettings::*;

StackSettings& settings_of(Reading& reading) {
  return reading.plan.stack.settings;
}

/// A switch that is written where the plan states that it is on, or leaves it open and `by_default`
/// holds.
Flag stated(std::string_view name, Group group, Switch setting, bool (*applies)(const Plan&),
            bool by_default, std::string_view why = "") {
  return toggle(
      name, group,
      [=](const Plan& p) { return applies(p) && (p.stack.settings.*setting).value_or(by_default); },
      [=](Reading& reading, bool given) { settings_of(reading).*setting = given; }, why);
}

bool has_experts(const Plan& p) {
  return p.model.moe.has_value();
}
/// A plan's own schedule says so, or the stack's setting.
bool overlaps_exchanges(const Plan& p) {
  const bool in_pairs = p.schedule == program::ScheduleKind::OverlappedOneFOneB;
  return (in_pairs && p.parallel.ep > 1) ||
         (has_experts(p) && p.stack.settings.overlap_ep.value_or(false));
}
bool sums_gradients(const Plan& p) {
  return p.parallel.dp * p.parallel.cp > 1;
}
bool shards_tokens(const Plan& p) {
  return p.parallel.tp > 1 && p.parallel.sp;
}

std::vector<Flag> communication_flags() {
  const Group group = Group::Overlap;
  return {
      stated("--overlap-grad-reduce", group, &StackSettings::overlap_dp, sums_gradients, true,
             "buckets are summed while backward computes"),
      fixed("--overlap-param-gather", group, {}, "weights return while forward computes",
            [](const Plan& p) {
              return p.zero_stage == 1 && p.stack.settings.overlap_dp.value_or(true);
            }),
      stated("--tp-comm-overlap", group, &StackSettings::overlap_tp, shards_tokens, true,
             "gathers and scatters of tp in pieces beside the products"),
      toggle(
          "--no-overlap-p2p-communication", group,
          [](const Plan& p) { return p.parallel.vpp > 1 && p.stack.settings.overlap_p2p == false; },
          [](Reading& reading, bool given) { settings_of(reading).overlap_p2p = !given; }),
      toggle("--overlap-moe-expert-parallel-comm", group, overlaps_exchanges,
             [](Reading& reading, bool given) { settings_of(reading).overlap_ep = given; }),
  };
}

/// A plan whose tokens travel once to each node asks for the dispatcher that sends them so.
bool is_flex(const Plan& p) {
  return p.expert_node_ranks > 0 || p.stack.settings.expert_dispatch == ExpertDispatch::DeepEp ||
         p.stack.settings.expert_dispatch == ExpertDispatch::HybridEp;
}

void read_dispatcher(Reading& reading, const Argument* given) {
  const std::vector<std::string> types{"allgather", "alltoall", "flex"},
      backends{"deepep", "hybridep", "ncclep"};
  std::optional<ExpertDispatch>& dispatch = settings_of(reading).expert_dispatch;
  switch (given == nullptr ? 0 : reading.choice(*given, types)) {
    case 0:
      dispatch = ExpertDispatch::AllGather;
      return;
    case 1:
      dispatch = ExpertDispatch::AllToAll;
      return;
    default:
      break;
  }
  const Argument* backend = reading.find("--moe-flex-dispatcher-backend");
  const std::size_t chosen = backend == nullptr ? 0 : reading.choice(*backend, backends);
  dispatch = chosen == 1 ? ExpertDispatch::HybridEp : ExpertDispatch::DeepEp;
  if (chosen == 2) reading.assume("experts dispatched as by DeepEP (the script's: ncclep)");
}

/// How many multiprocessors the fused dispatchers take.
void read_dispatch_sms(Reading& reading) {
  const bool hybrid = settings_of(reading).expert_dispatch == ExpertDispatch::HybridEp;
  const Argument* sms = reading.find(hybrid ? "--moe-hybridep-num-sms" : "--moe-deepep-num-sms");
  if (sms != nullptr && is_flex(reading.plan))
    settings_of(reading).expert_dispatch_sms = static_cast<int>(reading.integer(*sms, 0, 256));
}

std::vector<Flag> dispatch_flags() {
  const Group group = Group::Experts;
  return {
      of_experts(value(
          "--moe-token-dispatcher-type", group,
          [](const Plan& p) -> std::optional<std::string> {
            if (is_flex(p)) return "flex";
            const bool gathers = p.stack.settings.expert_dispatch == ExpertDispatch::AllGather;
            return gathers ? "allgather" : "alltoall";
          },
          read_dispatcher, "how tokens travel to their experts")),
      of_experts(value(
          "--moe-flex-dispatcher-backend", group,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_flex(p)) return std::nullopt;
            const bool hybrid = p.stack.settings.expert_dispatch == ExpertDispatch::HybridEp;
            return hybrid ? "hybridep" : "deepep";
          },
          [](Reading& reading, const Argument*) { read_dispatch_sms(reading); })),
      of_experts(stated("--moe-grouped-gemm", group, &StackSettings::grouped_experts, has_experts,
                        true, "all experts of a rank in one product")),
      of_experts(stated("--use-transformer-engine-op-fuser", group, &StackSettings::fused_experts,
                        has_experts, false)),
      of_experts(stated("--moe-router-force-load-balancing", group,
                        &StackSettings::balanced_routing, has_experts, false)),
      of_experts(toggle(
          "--moe-pad-expert-input-to-capacity", group,
          [](const Plan& p) { return program::is_on(p.stack.settings.token_drop); },
          [](Reading& reading, bool given) {
            settings_of(reading).token_drop = given && reading.has("--moe-expert-capacity-factor");
          })),
      fixed("--moe-permute-fusion", group, {}, "", has_experts),
      fixed("--moe-router-dtype", group, {"fp32"}, "", has_experts),
  };
}

void read_attention(Reading& reading, const Argument* given) {
  const std::vector<std::string> names{"auto", "flash", "fused", "unfused", "local"};
  const Argument* implementation = reading.find("--transformer-impl");
  // What stands behind it may be a variable that holds other flags, or none.
  const bool local = implementation != nullptr && !implementation->values.empty() &&
                     implementation->values.front().known() &&
                     implementation->values.front().text == "local";
  const std::size_t name = given == nullptr ? 0 : reading.choice(*given, names);
  std::optional<AttentionBackend>& attention = settings_of(reading).attention;
  if (name >= 3 || (name == 0 && local && !reading.has("--use-flash-attn")))
    attention = AttentionBackend::Unfused;
  else if (name > 0)
    attention = name == 1 ? AttentionBackend::Flash : AttentionBackend::Cudnn;
}

/// Graphs of parts of a layer leave most launches to the host; of whole layers and steps, none.
void read_graphs(Reading& reading, const Argument* given) {
  const std::vector<std::string> names{"none", "local", "transformer_engine", "full_iteration"};
  const bool old_flag = reading.has("--enable-cuda-graph") || reading.has("--external-cuda-graph");
  const std::size_t name = given == nullptr ? (old_flag ? 1 : 0) : reading.choice(*given, names);
  const Argument* modules = reading.find("--cuda-graph-modules");
  if (modules == nullptr) modules = reading.find("--cuda-graph-scope");
  const std::vector<std::string> parts =
      modules == nullptr ? std::vector<std::string>{} : reading.texts(*modules);
  const bool whole = parts.empty() || std::ranges::count(parts, "full_iteration") > 0;
  if (name == 0)
    settings_of(reading).cuda_graphs = CudaGraphs::None;
  else
    settings_of(reading).cuda_graphs = whole ? CudaGraphs::Full : CudaGraphs::Partial;
}

std::vector<Flag> kernel_flags() {
  return {
      value(
          "--attention-backend", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.stack.settings.attention) return std::nullopt;
            switch (*p.stack.settings.attention) {
              case AttentionBackend::Flash:
                return "flash";
              case AttentionBackend::Cudnn:
                return "fused";
              case AttentionBackend::Unfused:
                return "unfused";
            }
            return std::nullopt;
          },
          read_attention),
      value(
          "--cuda-graph-impl", Group::Overlap,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.stack.settings.cuda_graphs == CudaGraphs::Full) return "full_iteration";
            if (p.stack.settings.cuda_graphs == CudaGraphs::Partial) return "transformer_engine";
            return std::nullopt;
          },
          read_graphs),
      {"--cuda-graph-modules", Group::Overlap, -1, "",
       [](const Plan& p) -> std::optional<Values> {
         if (p.stack.settings.cuda_graphs != CudaGraphs::Partial) return std::nullopt;
         return Values{"moe_router", "moe_preprocess"};
       },
       [](Reading&, const Argument*) {}},
      toggle(
          "--cross-entropy-loss-fusion", Group::Model,
          [](const Plan& p) { return p.stack.settings.loss == LossKernel::Fused; },
          [](Reading& reading, bool given) {
            if (given) settings_of(reading).loss = LossKernel::Fused;
          }),
  };
}

/// A dtype that only the precision-aware optimizer takes.
Flag state_dtype(std::string_view name, Dtype setting) {
  return value(
      name, Group::Precision,
      [setting](const Plan& p) -> std::optional<std::string> {
        const auto& dtype = p.stack.settings.*setting;
        if (!dtype || *dtype == StateDType::F32) return std::nullopt;
        return *dtype == StateDType::BF16 ? "bf16" : *dtype == StateDType::F16 ? "fp16" : "fp8";
      },
      [setting](Reading& reading, const Argument* given) {
        const std::vector<std::string> names{"fp32", "bf16", "fp16", "fp8"};
        constexpr std::array kDtypes{StateDType::F32, StateDType::BF16, StateDType::F16,
                                     StateDType::Fp8};
        if (given != nullptr && reading.has("--use-precision-aware-optimizer"))
          settings_of(reading).*setting = kDtypes.at(reading.choice(*given, names));
      });
}

bool has_small_moments(const Plan& p) {
  const auto small = [](const std::optional<StateDType>& dtype) {
    return dtype.value_or(StateDType::F32) != StateDType::F32;
  };
  return small(p.stack.settings.first_moment_dtype) || small(p.stack.settings.second_moment_dtype);
}

std::vector<Flag> dtype_flags() {
  return {
      toggle(
          "--grad-reduce-in-bf16", Group::Precision,
          [](const Plan& p) {
            const auto& stated = p.stack.settings.gradient_dtype;
            return p.workload.precision == DType::BF16 &&
                   stated.value_or(StateDType::BF16) == StateDType::BF16;
          },
          [](Reading& reading, bool given) {
            if (reading.plan.workload.precision == DType::F32) return;
            const Argument* main = reading.has("--use-precision-aware-optimizer")
                                       ? reading.find("--main-grads-dtype")
                                       : nullptr;
            const bool half = given || (main != nullptr && reading.text(*main) == "bf16");
            settings_of(reading).gradient_dtype = half ? StateDType::BF16 : StateDType::F32;
          },
          "as predicted: gradients are kept and summed in bf16"),
      fixed("--use-precision-aware-optimizer", Group::Precision, {}, "moments in less than fp32",
            has_small_moments),
      state_dtype("--exp-avg-dtype", &StackSettings::first_moment_dtype),
      state_dtype("--exp-avg-sq-dtype", &StackSettings::second_moment_dtype),
      toggle(
          "--fp8-param-gather", Group::Precision,
          [](const Plan& p) {
            return is_fp8(p) && p.zero_stage == 1 && !p.offload_optimizer &&
                   p.stack.settings.fp8_param_gather.value_or(true);
          },
          [](Reading& reading, bool given) {
            if (is_fp8(reading.plan)) settings_of(reading).fp8_param_gather = given;
          },
          "weights travel in FP8"),
  };
}

}  // namespace

std::vector<Flag> stack_flags() {
  std::vector<Flag> all = dispatch_flags();
  for (const auto& part : {kernel_flags(), dtype_flags(), communication_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace meshplan::planner::megatron
