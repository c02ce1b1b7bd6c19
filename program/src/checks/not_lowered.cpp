#include "checks/not_lowered.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "models/adapters.hpp"

namespace meshplan::program {
namespace {

class Parts {
 public:
  explicit Parts(const Plan& plan) : plan_(plan), model_(plan.model), parallel_(plan.parallel) {}

  std::vector<std::string> run() {
    experts();
    refuse(model_.linear_attention.has_value(), "linear attention");
    if (model_.dropout > 0)
      refuse(true, fmt::format("dropout {}", model_.dropout),
             "--no-dropout plans and trains the model without it");
    refuse(model_.mtp_layers > 0, "multi-token prediction (mtp_layers)",
           "--no-mtp plans the model without these modules");
    refuse(model_.attention_output_gate, "attention_output_gate");
    refuse(plan_.workload.optimizer.kind == OptimizerKind::Muon, "workload.optimizer.kind 'muon'",
           "use 'adamw'; Megatron-Core's Muon is predicted (stack.software)");
    adapters();
    if (parallel_.cp > 1) context_parallel();
    return std::move(messages_);
  }

 private:
  void refuse(bool uses, std::string_view what, std::string_view way_out = "") {
    if (uses) messages_.push_back(not_lowered_message(model_, what, way_out));
  }

  void experts() {
    if (!model_.moe) return;
    const models::MoeSpec& moe = *model_.moe;
    refuse(moe.router.z_loss_coefficient != 0 && moe.router.score == models::RouterScore::Sigmoid,
           "a z-loss of a sigmoid router (moe.router.z_loss_coefficient)");
  }

  void adapters() {
    if (!model_.adapters) return;
    refuse(models::has_adapters_apart(model_),
           "an adapter for a part of a fused linear (adapters.modules)",
           "qkv_proj and gate_up_proj have one for all their parts");
    const auto has = [&](std::string_view module) {
      return models::has_adapters(*model_.adapters, module);
    };
    refuse(model_.moe && (has("gate_up_proj") || has("up_proj") || has("down_proj")),
           "an adapter of experts (adapters.modules)", "attention's are: qkv_proj, o_proj");
    refuse(parallel_.cp > 1 && has("kv_b_proj"), "an adapter of kv_b_proj over cp > 1");
  }

  void context_parallel() {
    refuse(!model_.causal, "attention without a causal mask over cp > 1");
    refuse(model_.moe && model_.moe->capacity_factor != 0 && plan_.workload.documents.packed,
           "a capacity of experts (moe.capacity_factor) over cp > 1 with packed documents, whose "
           "tokens do not lie in the order of their sequence,");
    const bool has_window =
        std::ranges::find(model_.layer_pattern, models::LayerAttention::Sliding) !=
        model_.layer_pattern.end();
    refuse(plan_.context_parallel == ContextMethod::Ring && has_window,
           "a sliding window in a ring over cp > 1 (use context_parallel 'all_gather')");
  }

  const Plan& plan_;
  const models::ModelSpec& model_;
  const ParallelConfig& parallel_;
  std::vector<std::string> messages_;
};

}  // namespace

std::string not_lowered_message(const models::ModelSpec& model, std::string_view what,
                                std::string_view way_out) {
  return fmt::format("{}: {} is not lowered by this version{}{}", model.name, what,
                     way_out.empty() ? "" : "; ", way_out);
}

std::vector<std::string> not_lowered(const Plan& plan) {
  return Parts(plan).run();
}

}  // namespace meshplan::program
