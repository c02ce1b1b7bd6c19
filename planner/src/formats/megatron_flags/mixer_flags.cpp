// Flags of layers that mix tokens by other means than attention to all of them (gated delta nets,
// sparse attention with an indexer), of gates of attention, and of prediction modules. Names and
// defaults: Megatron-LM, megatron/core/transformer/transformer_config.py, from which its arguments
// are made.
#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "core/limits.hpp"
#include "formats/megatron/layer_list.hpp"
#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::Mixer;
using models::ModelSpec;
using program::Plan;

bool has_delta_nets(const ModelSpec& model) {
  return model.linear_attention.has_value();
}
bool has_indexer(const ModelSpec& model) {
  return model.sparse_attention.has_value();
}

/// A size of a part that `has` says the model to have.
/// @param absent  as in count()
template <class Has, class Access>
Flag size_of(Has has, std::string_view name, Access access,
             std::optional<std::int64_t> absent = std::nullopt) {
  return where(has, count(name, Group::Model, access, 1, limits::kWidth, absent));
}

/// A flag that is never written: what it changes, no plan has.
/// @param read  called where it is given
template <class Read>
Flag read_alone(std::string_view name, int operands, Read read) {
  return {name,
          Group::Model,
          operands,
          "",
          [](const Plan&) { return std::optional<Values>(); },
          [read](Reading& reading, const Argument* given) {
            if (given != nullptr) read(reading, *given);
          }};
}

void read_variant(Reading& reading, const Argument* given) {
  if (given == nullptr) return;
  const std::vector<std::string> choices{"gated_delta_net", "dsa"};
  if (reading.choice(*given, choices) == 0) {
    reading.plan.model.linear_attention.emplace();
    return;
  }
  if (!reading.plan.model.mla)
    Reading::fail(*given, "is for latent attention; add --multi-latent-attention");
  reading.plan.model.sparse_attention.emplace();
}

void read_delta_layers(Reading& reading, const Argument* given) {
  ModelSpec& model = reading.plan.model;
  if (given == nullptr)
    throw ConfigError(
        "--linear-attention-freq is not given, and Megatron-LM has no default for it; add it, or "
        "name the model with --model");
  model.layer_pattern.clear();
  for (const int linear :
       repeated_part(read_layer_list(reading, *given, model.num_layers, zero_at_last)))
    model.layer_pattern.push_back(linear != 0 ? Mixer::Linear : Mixer::Full);
}

/// 1 for each layer that is a gated delta net.
std::optional<std::string> delta_layers(const Plan& plan) {
  std::vector<int> linear;
  for (int layer = 0; layer < plan.model.num_layers; ++layer)
    linear.push_back(mixer_of_layer(plan.model, layer) == Mixer::Linear ? 1 : 0);
  return layer_list_text(linear);
}

std::vector<Flag> delta_flags() {
  return {
      where(has_delta_nets, value("--linear-attention-freq", Group::Model, delta_layers,
                                  read_delta_layers, "1: a layer of gated delta nets")),
      size_of(
          has_delta_nets, "--linear-conv-kernel-dim",
          [](auto& p) -> auto& { return p.model.linear_attention->conv_size; }, 4),
      size_of(
          has_delta_nets, "--linear-key-head-dim",
          [](auto& p) -> auto& { return p.model.linear_attention->key_head_size; }, 128),
      size_of(
          has_delta_nets, "--linear-value-head-dim",
          [](auto& p) -> auto& { return p.model.linear_attention->value_head_size; }, 128),
      size_of(
          has_delta_nets, "--linear-num-key-heads",
          [](auto& p) -> auto& { return p.model.linear_attention->num_key_heads; }, 16),
      size_of(
          has_delta_nets, "--linear-num-value-heads",
          [](auto& p) -> auto& { return p.model.linear_attention->num_value_heads; }, 32),
  };
}

void read_indexer_loss(Reading& reading, const Argument* given) {
  const double weight = given != nullptr ? reading.number(*given, 0, 1e6) : 0;
  if (weight != 1)
    reading.assume(fmt::format(
        "the indexer's loss has the weight 1 (the script's is {}); gradients of both losses go to "
        "different parameters",
        weight));
}

std::vector<Flag> indexer_flags() {
  const auto shares_choices = [](Reading& reading, const Argument& given) {
    if (reading.integer(given, 0, limits::kLayers) > 1)
      Reading::fail(given, "layers that share choices are not read; name the model with --model");
  };
  return {
      read_alone("--dsa-indexer-topk-freq", 1, shares_choices),
      size_of(
          has_indexer, "--dsa-indexer-n-heads",
          [](auto& p) -> auto& { return p.model.sparse_attention->index_heads; }),
      size_of(
          has_indexer, "--dsa-indexer-head-dim",
          [](auto& p) -> auto& { return p.model.sparse_attention->index_head_size; }),
      size_of(
          has_indexer, "--dsa-indexer-topk",
          [](auto& p) -> auto& { return p.model.sparse_attention->top_k; }),
      where(has_indexer,
            value(
                "--dsa-indexer-loss-coeff", Group::Model,
                [](const Plan&) { return std::optional<std::string>("1.0"); }, read_indexer_loss)),
      where(has_indexer, toggle(
                             "--dsa-indexer-use-sparse-loss", Group::Model, always,
                             [](Reading& reading, bool given) {
                               if (!given)
                                 reading.assume(
                                     "the indexer learns from the keys that it chose (the script "
                                     "has no --dsa-indexer-use-sparse-loss)");
                             },
                             "the indexer learns from the keys that it chose")),
  };
}

std::vector<Flag> prediction_flags() {
  const auto predicts = [](const ModelSpec& model) { return model.mtp_layers > 0; };
  return {
      value(
          "--mtp-num-layers", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (p.model.mtp_layers == 0) return std::nullopt;
            return std::to_string(p.model.mtp_layers);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.mtp_layers =
                  static_cast<int>(reading.integer(*given, 0, limits::kPredictionModules));
          },
          "prediction modules"),
      read_alone("--mtp-use-repeated-layer", 0,
                 [](Reading& reading, const Argument&) {
                   if (reading.plan.model.mtp_layers > 1)
                     reading.assume(
                         "each prediction module has weights of its own (the script's share one)");
                 }),
      read_alone("--mtp-detach-heads", 0,
                 [](Reading& reading, const Argument&) {
                   reading.assume(
                       "gradients of prediction modules reach the model (the script keeps them)");
                 }),
      where(predicts,
            real(
                "--mtp-loss-scaling-factor", Group::Model,
                [](auto& p) -> auto& { return p.model.mtp_loss_coefficient; }, 1e-9, 1e6, 0.1)),
  };
}

}  // namespace

std::vector<Flag> mixer_flags() {
  std::vector<Flag> all = {
      toggle(
          "--attention-output-gate", Group::Model,
          [](const Plan& p) { return p.model.attention_output_gate; },
          [](Reading& reading, bool given) { reading.plan.model.attention_output_gate = given; }),
      value(
          "--experimental-attention-variant", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (has_delta_nets(p.model)) return "gated_delta_net";
            if (has_indexer(p.model)) return "dsa";
            return std::nullopt;
          },
          read_variant)};
  for (const auto& part : {delta_flags(), indexer_flags(), prediction_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace meshplan::planner::megatron
