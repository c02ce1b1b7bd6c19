// Flags of the layers' sizes, norms, activations and biases.
#include <fmt/format.h>

#include "core/limits.hpp"
#include "formats/megatron_flags/flag.hpp"
#include "formats/megatron_launch/vocabulary.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::ActivationKind;
using models::Mlp;
using models::Norm;
using program::Plan;

/// Megatron's default where it is not given: arguments.py, validate_args.
int default_ffn_size(const models::ModelSpec& model, bool swiglu) {
  const std::int64_t four = std::int64_t{4} * model.hidden_size;
  return static_cast<int>(swiglu ? four * 2 / 3 / 64 * 64 : four);
}

/// Bias of the linears behind attention and in the MLP: --disable-bias-linear takes both away.
bool has_linear_bias(const Plan& plan) {
  return plan.model.attention_out_bias;
}

void set_activation(Reading& reading, Mlp mlp, ActivationKind kind) {
  reading.plan.model.mlp = mlp;
  reading.plan.model.activation = kind;
}

/// The tanh approximation is that of the kernel that adds the bias, too.
void read_gelu(Reading& reading, bool unfused) {
  models::ModelSpec& model = reading.plan.model;
  if (reading.has("--swiglu") || reading.has("--quick-geglu") || reading.has("--squared-relu"))
    return;
  const bool fused = !unfused && !reading.has("--disable-bias-linear");
  set_activation(reading, Mlp::Plain, fused ? ActivationKind::GeluTanh : ActivationKind::Gelu);
  model.mlp = Mlp::Plain;
}

std::vector<Flag> size_flags() {
  return {
      count(
          "--num-layers", Group::Model, [](auto& p) -> auto& { return p.model.num_layers; }, 1,
          limits::kLayers),
      count(
          "--hidden-size", Group::Model, [](auto& p) -> auto& { return p.model.hidden_size; }, 1,
          limits::kWidth),
      value(
          "--ffn-hidden-size", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.ffn_size == 0) return std::nullopt;  // every layer has experts
            return std::to_string(p.model.ffn_size);
          },
          [](Reading& reading, const Argument* given) {
            models::ModelSpec& model = reading.plan.model;
            model.ffn_size = given != nullptr
                                 ? static_cast<int>(reading.integer(*given, 1, limits::kWidth))
                                 : default_ffn_size(model, reading.has("--swiglu"));
          }),
      count(
          "--num-attention-heads", Group::Model, [](auto& p) -> auto& { return p.model.num_heads; },
          1, limits::kWidth),
      value(
          "--vocab-size", Group::Model,
          [](const Plan& p) { return std::optional(std::to_string(p.model.vocab_size)); },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr) {
              reading.plan.model.vocab_size =
                  static_cast<int>(reading.integer(*given, 1, limits::kVocabulary));
              return;
            }
            assume_vocabulary(reading);
          },
          "padded to a multiple of 128 * tp when the model is built"),
      real(
          "--init-method-std", Group::Model, [](auto& p) -> auto& { return p.model.init_std; }, 0,
          1e3, 0.02),
  };
}

std::vector<Flag> norm_flags() {
  return {
      value(
          "--normalization", Group::Model,
          [](const Plan& p) {
            return std::optional<std::string>(p.model.norm == Norm::RmsNorm ? "RMSNorm"
                                                                            : "LayerNorm");
          },
          [](Reading& reading, const Argument* given) {
            const std::vector<std::string> choices{"LayerNorm", "RMSNorm"};
            const bool rms = given != nullptr && reading.choice(*given, choices) == 1;
            reading.plan.model.norm = rms ? Norm::RmsNorm : Norm::LayerNorm;
          }),
      real(
          "--norm-epsilon", Group::Model, [](auto& p) -> auto& { return p.model.norm_epsilon; }, 0,
          1, 1e-5),
  };
}

std::vector<Flag> activation_flags() {
  return {
      toggle(
          "--swiglu", Group::Model,
          [](const Plan& p) {
            return p.model.mlp == Mlp::Gated && p.model.activation == ActivationKind::Silu;
          },
          [](Reading& reading, bool given) {
            if (given) set_activation(reading, Mlp::Gated, ActivationKind::Silu);
          }),
      toggle(
          "--squared-relu", Group::Model,
          [](const Plan& p) { return p.model.activation == ActivationKind::SquaredRelu; },
          [](Reading& reading, bool given) {
            if (given) set_activation(reading, Mlp::Plain, ActivationKind::SquaredRelu);
          }),
      toggle(
          "--quick-geglu", Group::Model,
          [](const Plan& p) { return p.model.activation == ActivationKind::ClampedSilu; },
          [](Reading& reading, bool given) {
            if (given) set_activation(reading, Mlp::Gated, ActivationKind::ClampedSilu);
          }),
      value(
          "--activation-func-clamp-value", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.activation != ActivationKind::ClampedSilu) return std::nullopt;
            return "7.0";
          },
          [](Reading& reading, const Argument* given) {
            const bool clamped = given != nullptr && reading.number(*given, 0, 1e9) == 7;
            const Argument* geglu = reading.find("--quick-geglu");
            if (geglu != nullptr && !clamped)
              Reading::fail(*geglu,
                            "is read as gpt-oss has it, with --activation-func-clamp-value 7 and "
                            "--glu-linear-offset 1; nearest: --swiglu");
            if (given != nullptr && geglu == nullptr)
              Reading::fail(*given, "is read beside --quick-geglu only");
          }),
      value(
          "--glu-linear-offset", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.activation != ActivationKind::ClampedSilu) return std::nullopt;
            return "1.0";
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr && reading.number(*given, -1e9, 1e9) != 1)
              Reading::fail(*given, "is read as gpt-oss has it; nearest: 1.0");
          }),
      toggle(
          "--no-bias-gelu-fusion", Group::Model,
          [](const Plan& p) {
            return has_linear_bias(p) && (p.model.activation == ActivationKind::Gelu ||
                                          p.model.activation == ActivationKind::SquaredRelu);
          },
          read_gelu, "the fused kernel computes the tanh approximation of GELU"),
  };
}

std::vector<Flag> bias_flags() {
  return {
      toggle(
          "--disable-bias-linear", Group::Model, [](const Plan& p) { return !has_linear_bias(p); },
          [](Reading& reading, bool given) {
            models::ModelSpec& model = reading.plan.model;
            model.qkv_bias = model.attention_out_bias = model.mlp_bias = !given;
            // Of Pai-Megatron-Patch: one of them alone.
            if (reading.has("--disable-bias-linear-fc")) model.mlp_bias = false;
            if (reading.has("--disable-bias-attn-fc")) model.attention_out_bias = false;
          }),
      toggle(
          "--add-qkv-bias", Group::Model,
          [](const Plan& p) { return !has_linear_bias(p) && p.model.qkv_bias; },
          [](Reading& reading, bool given) {
            reading.plan.model.qkv_bias = reading.plan.model.qkv_bias || given;
          }),
      toggle(
          "--untie-embeddings-and-output-weights", Group::Model,
          [](const Plan& p) { return !p.model.tied_embeddings; },
          [](Reading& reading, bool given) { reading.plan.model.tied_embeddings = !given; }),
  };
}

/// Megatron's default is 0.1. What hidden states drop is a setting of the stack; attention's
/// kernels drop scores on chip.
Flag dropout(std::string_view name) {
  return {name,
          Group::Model,
          1,
          "Megatron's default is 0.1",
          [](const Plan& p) -> std::optional<Values> {
            const double rate = p.stack.settings.dropout.value_or(0);
            return Values{rate == 0 ? "0.0" : shortest(rate)};
          },
          [name](Reading& reading, const Argument* given) {
            const double rate = given != nullptr ? reading.number(*given, 0, 1) : 0.1;
            if (name == "--hidden-dropout") reading.plan.stack.settings.dropout = rate;
            if (rate > 0 && given == nullptr)
              reading.assume(fmt::format("{} {} (where it is not given)", name, rate));
          }};
}

}  // namespace

std::vector<Flag> model_flags() {
  std::vector<Flag> all = size_flags();
  for (const auto& part : {norm_flags(), activation_flags(), bias_flags()})
    all.insert(all.end(), part.begin(), part.end());
  all.push_back(dropout("--attention-dropout"));
  all.push_back(dropout("--hidden-dropout"));
  return all;
}

}  // namespace meshplan::planner::megatron
