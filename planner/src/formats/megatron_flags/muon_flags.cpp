// Flags of Megatron-LM's Muon (--optimizer muon).
#include <array>

#include "core/enum_names.hpp"
#include "core/limits.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "program/plan/stack_names.hpp"

namespace meshplan::planner::megatron {
namespace {

using program::MuonTp;
using program::Plan;

bool is_muon(const Plan& plan) {
  return plan.workload.optimizer.kind == program::OptimizerKind::Muon;
}

void read_tp_mode(Reading& reading, const Argument* given) {
  if (given == nullptr || !is_muon(reading.plan)) return;
  const std::vector<std::string> modes{"duplicated", "blockwise", "distributed"};
  constexpr std::array kWays{MuonTp::Duplicated, MuonTp::Blockwise, MuonTp::Distributed};
  reading.plan.stack.settings.muon_tp = kWays.at(reading.choice(*given, modes));
}

void read_precision(Reading& reading, const Argument* given) {
  if (given == nullptr || !is_muon(reading.plan)) return;
  if (const std::string& precision = reading.text(*given); precision != "medium")
    reading.assume(
        fmt::format("Muon's products are in bf16 (the script's precision: {})", precision));
}

}  // namespace

std::vector<Flag> muon_flags() {
  const Group group = Group::Training;
  return {
      value(
          "--muon-momentum", group,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_muon(p)) return std::nullopt;
            return shortest(p.workload.optimizer.momentum);
          },
          [](Reading& reading, const Argument* given) {
            if (!is_muon(reading.plan)) return;
            reading.plan.workload.optimizer.momentum =
                given != nullptr ? reading.number(*given, 0, 1) : 0.9;
          }),
      value(
          "--muon-num-ns-steps", group,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_muon(p)) return std::nullopt;
            return std::to_string(p.workload.optimizer.orthogonal_steps);
          },
          [](Reading& reading, const Argument* given) {
            if (!is_muon(reading.plan) || given == nullptr) return;
            reading.plan.workload.optimizer.orthogonal_steps =
                static_cast<int>(reading.integer(*given, 1, 100));
          },
          "Newton and Schulz's iteration"),
      value(
          "--muon-tp-mode", group,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_muon(p) || p.parallel.tp == 1) return std::nullopt;
            return std::string(
                meshplan::name_of(p.stack.settings.muon_tp.value_or(MuonTp::Duplicated)));
          },
          read_tp_mode),
      value(
          "--muon-fp32-matmul-prec", group,
          [](const Plan&) -> std::optional<std::string> { return std::nullopt; }, read_precision),
      toggle(
          "--no-use-layer-wise-param-layout", group,
          [](const Plan& p) {
            return is_muon(p) && p.zero_stage == 1 && p.stack.settings.layer_wise_layout == false;
          },
          [](Reading& reading, bool given) {
            if (is_muon(reading.plan) && reading.plan.zero_stage == 1)
              reading.plan.stack.settings.layer_wise_layout = !given;
          },
          "gradients of matrices are summed on all ranks"),
  };
}

}  // namespace meshplan::planner::megatron
