// Flags of mixtures of experts: which layers, how wide, and how tokens are routed.
#include <algorithm>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "formats/megatron/layer_list.hpp"
#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::MoeSpec;
using models::RouterScore;
using models::RouterSpec;
using program::Plan;

/// 1 for each layer with experts.
std::vector<int> expert_layers(const models::ModelSpec& model) {
  std::vector<int> layers;
  for (int layer = 0; layer < model.num_layers; ++layer)
    layers.push_back(is_moe_layer(model, layer) ? 1 : 0);
  return layers;
}

void read_expert_layers(Reading& reading, const Argument* given) {
  models::ModelSpec& model = reading.plan.model;
  MoeSpec& moe = *model.moe;
  moe.dense_layers.clear();
  const auto first_of_every = [](int layer, std::int64_t every) {
    return layer % every == 0 ? 1 : 0;
  };
  std::vector<int> layers;
  if (given != nullptr) layers = read_layer_list(reading, *given, model.num_layers, first_of_every);
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (layers[i] == 0) moe.dense_layers.push_back(static_cast<int>(i));
  if (!moe.dense_layers.empty()) return;
  model.ffn_size = 0;
  model.mlp_bias = false;
}

void read_balancing(Reading& reading, const Argument* given) {
  RouterSpec& router = reading.plan.model.moe->router;
  const Argument* coefficient = reading.find("--moe-aux-loss-coeff");
  if (given != nullptr &&
      (given->values.size() > 1 || (coefficient != nullptr && coefficient->values.size() > 1)))
    Reading::fail(*given, "several balancing losses at once are not read; nearest: the first one");
  const std::string type = given != nullptr ? reading.text(*given) : "aux_loss";
  const bool balances = type == "aux_loss" || type == "seq_aux_loss" || type == "global_aux_loss";
  router.aux_loss_coefficient =
      balances && coefficient != nullptr ? reading.number(*coefficient, 0, 1e6) : 0;
  if (balances && type != "seq_aux_loss" && router.aux_loss_coefficient > 0)
    reading.assume(
        fmt::format("the balancing loss is of each sequence (the script's is {})", type));
}

std::vector<Flag> size_flags_of_experts() {
  return {
      value(
          "--num-experts", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.model.moe) return std::nullopt;
            return std::to_string(p.model.moe->num_experts);
          },
          [](Reading& reading, const Argument* given) {
            if (given == nullptr || reading.integer(*given, 0, limits::kWidth) == 0) return;
            reading.plan.model.moe.emplace();
            reading.plan.model.moe->num_experts =
                static_cast<int>(reading.integer(*given, 1, limits::kWidth));
          }),
      of_experts(value(
          "--moe-ffn-hidden-size", Group::Experts,
          [](const Plan& p) { return std::optional(std::to_string(p.model.moe->expert_ffn_size)); },
          [](Reading& reading, const Argument* given) {
            models::ModelSpec& model = reading.plan.model;
            model.moe->expert_ffn_size =
                given != nullptr ? static_cast<int>(reading.integer(*given, 1, limits::kWidth))
                                 : model.ffn_size;
          })),
      of_experts(value(
          "--moe-layer-freq", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->dense_layers.empty()) return std::nullopt;
            return layer_list_text(expert_layers(p.model));
          },
          read_expert_layers, "1: a layer with experts")),
      of_experts(value(
          "--moe-shared-expert-intermediate-size", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->shared_expert_ffn_size == 0) return std::nullopt;
            return std::to_string(p.model.moe->shared_expert_ffn_size);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.moe->shared_expert_ffn_size =
                  static_cast<int>(reading.integer(*given, 1, limits::kWidth));
          })),
      of_experts(toggle(
          "--moe-shared-expert-gate", Group::Experts,
          [](const Plan& p) { return p.model.moe->shared_expert_gate; },
          [](Reading& reading, bool given) {
            MoeSpec& moe = *reading.plan.model.moe;
            moe.shared_expert_gate = given;
            // Biases of experts and router come and go with those of the linears.
            moe.expert_bias = moe.router.bias = reading.plan.model.attention_out_bias;
          })),
      of_experts(value(
          "--moe-expert-capacity-factor", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->capacity_factor == 0) return std::nullopt;
            return shortest(p.model.moe->capacity_factor);
          },
          [](Reading& reading, const Argument* given) {
            MoeSpec& moe = *reading.plan.model.moe;
            moe.capacity_factor = given != nullptr ? reading.number(*given, 0, 1e6) : 0;
            if (moe.capacity_factor > 0)
              reading.assume(
                  "an expert's capacity is of each sequence (Megatron-LM's of a rank's tokens)");
          },
          "of a rank's tokens; in the plan of a sequence's")),
  };
}

std::vector<Flag> router_flags() {
  return {
      of_experts(count(
          "--moe-router-topk", Group::Experts, [](auto& p) -> auto& { return p.model.moe->top_k; },
          1, limits::kWidth, 2)),
      of_experts(value(
          "--moe-router-score-function", Group::Experts,
          [](const Plan& p) {
            return std::optional<std::string>(
                p.model.moe->router.score == RouterScore::Sigmoid ? "sigmoid" : "softmax");
          },
          [](Reading& reading, const Argument* given) {
            const std::vector<std::string> choices{"softmax", "sigmoid"};
            const bool sigmoid = given != nullptr && reading.choice(*given, choices) == 1;
            reading.plan.model.moe->router.score =
                sigmoid ? RouterScore::Sigmoid : RouterScore::Softmax;
          })),
      of_experts(toggle(
          "--moe-router-pre-softmax", Group::Experts,
          [](const Plan& p) {
            const RouterSpec& router = p.model.moe->router;
            return router.score == RouterScore::Softmax && !router.normalize_top_k;
          },
          [](Reading& reading, bool given) {
            RouterSpec& router = reading.plan.model.moe->router;
            router.normalize_top_k = router.score == RouterScore::Sigmoid || !given;
          },
          "the weights of the chosen experts need not sum to 1")),
      of_experts(value(
          "--moe-router-topk-scaling-factor", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->router.scaling_factor == 1) return std::nullopt;
            return shortest(p.model.moe->router.scaling_factor);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.moe->router.scaling_factor = reading.number(*given, 0, 1e6);
          })),
      of_experts(value(
          "--moe-router-num-groups", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->router.num_groups == 1) return std::nullopt;
            return std::to_string(p.model.moe->router.num_groups);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr && reading.has("--moe-router-group-topk"))
              reading.plan.model.moe->router.num_groups =
                  static_cast<int>(reading.integer(*given, 1, limits::kWidth));
          })),
      of_experts(value(
          "--moe-router-group-topk", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->router.num_groups == 1) return std::nullopt;
            return std::to_string(p.model.moe->router.top_groups);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr && reading.has("--moe-router-num-groups"))
              reading.plan.model.moe->router.top_groups =
                  static_cast<int>(reading.integer(*given, 1, limits::kWidth));
          })),
  };
}

std::vector<Flag> balance_flags() {
  return {
      of_experts(toggle(
          "--moe-router-enable-expert-bias", Group::Experts,
          [](const Plan& p) { return p.model.moe->router.correction_bias; },
          [](Reading& reading, bool given) {
            reading.plan.model.moe->router.correction_bias = given;
          })),
      of_experts(value(
          "--moe-router-bias-update-rate", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.model.moe->router.correction_bias) return std::nullopt;
            return shortest(p.model.moe->router.correction_bias_rate);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.moe->router.correction_bias_rate = reading.number(*given, 0, 1);
          })),
      of_experts(value(
          "--moe-router-load-balancing-type", Group::Experts,
          [](const Plan& p) {
            return std::optional<std::string>(
                p.model.moe->router.aux_loss_coefficient > 0 ? "seq_aux_loss" : "none");
          },
          read_balancing)),
      of_experts(value(
          "--moe-aux-loss-coeff", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->router.aux_loss_coefficient == 0) return std::nullopt;
            return shortest(p.model.moe->router.aux_loss_coefficient);
          },
          [](Reading&, const Argument*) {})),  // with the type
      of_experts(value(
          "--moe-z-loss-coeff", Group::Experts,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.moe->router.z_loss_coefficient == 0) return std::nullopt;
            return shortest(p.model.moe->router.z_loss_coefficient);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.moe->router.z_loss_coefficient = reading.number(*given, 0, 1e6);
          })),
  };
}

}  // namespace

std::vector<Flag> expert_flags() {
  std::vector<Flag> all = size_flags_of_experts();
  for (const auto& part : {router_flags(), balance_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace meshplan::planner::megatron
