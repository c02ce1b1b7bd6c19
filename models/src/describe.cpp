#include "models/describe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>
#include <vector>

namespace meshplan::models {
namespace {

template <class Holds>
int count_layers(const ModelSpec& spec, Holds holds) {
  int count = 0;
  for (int layer = 0; layer < spec.num_layers; ++layer) count += holds(layer) ? 1 : 0;
  return count;
}

std::string in_layers(const ModelSpec& spec, int layers) {
  return layers == spec.num_layers ? "" : fmt::format(" in {} layers", layers);
}

std::string attention_of(const ModelSpec& spec) {
  if (spec.compressed_attention)
    return fmt::format("compressed attention of {} heads", spec.num_heads);
  if (spec.mla)
    return fmt::format("{}latent attention of {} heads", spec.sparse_attention ? "sparse " : "",
                       spec.num_heads);
  return fmt::format("attention of {} query and {} key heads of {}", spec.num_heads,
                     spec.num_kv_heads, spec.head_size);
}

std::string mixer_of(const ModelSpec& spec, Mixer mixer) {
  switch (mixer) {
    case Mixer::Full:
      return attention_of(spec);
    case Mixer::Sliding:
      return fmt::format("a window of {} tokens", spec.window);
    case Mixer::Chunked:
      return fmt::format("chunks of {} tokens", spec.window);
    case Mixer::Linear:
      return fmt::format("linear attention of {} heads", spec.linear_attention->num_value_heads);
    case Mixer::Mamba:
      return fmt::format("Mamba {} of state {}", spec.mamba->version, spec.mamba->state_size);
    case Mixer::AttentionAndMamba:
      return fmt::format("{} beside Mamba {}", attention_of(spec), spec.mamba->version);
    case Mixer::Convolution:
      return fmt::format("a gated convolution of {} taps", spec.convolution->size);
    case Mixer::Projection:
      return "one linear for attention";
    case Mixer::None:
      break;
  }
  return "";
}

}  // namespace

std::string describe_parts(const ModelSpec& spec) {
  std::vector<std::string> parts{
      fmt::format("{} layers of width {}", spec.num_layers, spec.hidden_size)};
  for (int mixer = 0; mixer < static_cast<int>(Mixer::None); ++mixer) {
    const auto kind = static_cast<Mixer>(mixer);
    const int layers =
        count_layers(spec, [&](int layer) { return mixer_of_layer(spec, layer) == kind; });
    if (layers > 0) parts.push_back(mixer_of(spec, kind) + in_layers(spec, layers));
  }
  if (spec.moe) {
    const int layers = count_layers(spec, [&](int layer) { return is_moe_layer(spec, layer); });
    parts.push_back(fmt::format("{} experts of {}, {} a token{}{}", spec.moe->num_experts,
                                spec.moe->expert_ffn_size, spec.moe->top_k,
                                spec.moe->shared_expert_ffn_size > 0 ? " and a shared one" : "",
                                in_layers(spec, layers)));
  }
  if (!spec.layer_variants.empty())
    parts.push_back(
        fmt::format("{} kinds of layers with sizes of their own", spec.layer_variants.size()));
  if (spec.hyper_connections)
    parts.push_back(fmt::format("{} residual streams", spec.hyper_connections->streams));
  if (spec.mtp_layers > 0)
    parts.push_back(
        fmt::format("{} prediction module{}", spec.mtp_layers, spec.mtp_layers == 1 ? "" : "s"));
  if (!spec.causal) parts.emplace_back("an encoder");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> parts_beyond_plain(const ModelSpec& spec) {
  const std::pair<const char*, bool> parts[] = {
      {"attention_output_gate", spec.attention_output_gate},
      {"linear_attention", spec.linear_attention.has_value()},
      {"mamba", spec.mamba.has_value()},
      {"convolution", spec.convolution.has_value()},
      {"chunked attention", has_mixer(spec, Mixer::Chunked)},
      {"sparse_attention", spec.sparse_attention.has_value()},
      {"compressed_attention", spec.compressed_attention.has_value()},
      {"ffn_pattern", !spec.ffn_pattern.empty()},
      {"layer_variants", !spec.layer_variants.empty()},
      {"residual", spec.residual != Residual::Sequential},
      {"residual_scale", spec.residual_scale.has_value()},
      {"logit_scale", spec.logit_scale.has_value()},
      {"hyper_connections", spec.hyper_connections.has_value()},
      {"layer_inputs", spec.layer_inputs.has_value()},
      {"low_rank_residual", spec.low_rank_residual.has_value()},
      {"moe.latent_size", spec.moe && spec.moe->latent_size},
      {"qk_norm_over", spec.qk_norm && spec.qk_norm_over != QkNorm::Head},
      {"value_head_size", spec.value_head_size && *spec.value_head_size != spec.head_size},
      {"keys_are_values", spec.keys_are_values},
      {"borrows_keys", spec.borrows_keys},
      {"positions 'alibi'", spec.positions == Positions::Alibi},
      {"norm_bias", spec.norm == Norm::LayerNorm && !spec.norm_bias},
      {"head_bias", spec.head_bias},
      {"vision (--text-only leaves it out)", spec.vision.has_value()},
      {"only_predicted", !spec.only_predicted.empty()}};
  std::vector<std::string> beyond;
  for (const auto& [name, used] : parts)
    if (used) beyond.emplace_back(name);
  return beyond;
}

}  // namespace meshplan::models
