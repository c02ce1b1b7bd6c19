// Flags of attention: its heads, latent attention, windows and sinks.
#include <algorithm>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "formats/megatron/layer_list.hpp"
#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::Mixer;
using program::Plan;

bool groups_queries(const Plan& plan) {
  return !plan.model.mla && plan.model.num_kv_heads != plan.model.num_heads;
}

bool has_windows(const Plan& plan) {
  return std::ranges::find(plan.model.layer_pattern, Mixer::Sliding) !=
         plan.model.layer_pattern.end();
}

/// 1 for each layer with a window.
std::vector<int> windowed_layers(const models::ModelSpec& model) {
  std::vector<int> windowed;
  for (int layer = 0; layer < model.num_layers; ++layer)
    windowed.push_back(mixer_of_layer(model, layer) == Mixer::Sliding ? 1 : 0);
  return windowed;
}

void read_windows(Reading& reading, const Argument* given) {
  models::ModelSpec& model = reading.plan.model;
  if (model.window == 0) return;
  model.layer_pattern = {Mixer::Sliding};
  if (given == nullptr) return;
  model.layer_pattern.clear();
  for (const int windowed :
       repeated_part(read_layer_list(reading, *given, model.num_layers, zero_at_last)))
    model.layer_pattern.push_back(windowed != 0 ? Mixer::Sliding : Mixer::Full);
}

std::vector<Flag> latent_flags() {
  const auto rank = [](std::string_view name, auto access, std::int64_t absent) {
    return of_latent(count(name, Group::Model, access, 1, limits::kWidth, absent));
  };
  return {
      toggle(
          "--multi-latent-attention", Group::Model,
          [](const Plan& p) { return p.model.mla.has_value(); },
          [](Reading& reading, bool given) {
            if (given) reading.plan.model.mla.emplace();
          }),
      of_latent(value(
          "--q-lora-rank", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.model.mla->q_lora_rank) return std::nullopt;
            return std::to_string(*p.model.mla->q_lora_rank);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.mla->q_lora_rank =
                  static_cast<int>(reading.integer(*given, 1, limits::kWidth));
          })),
      rank(
          "--kv-lora-rank", [](auto& p) -> auto& { return p.model.mla->kv_lora_rank; }, 32),
      rank(
          "--qk-head-dim", [](auto& p) -> auto& { return p.model.mla->qk_nope_head_size; }, 128),
      rank(
          "--qk-pos-emb-head-dim", [](auto& p) -> auto& { return p.model.mla->qk_rope_head_size; },
          64),
      rank(
          "--v-head-dim", [](auto& p) -> auto& { return p.model.mla->v_head_size; }, 128),
  };
}

std::vector<Flag> head_flags() {
  return {
      toggle("--group-query-attention", Group::Model, groups_queries, [](Reading&, bool) {}),
      value(
          "--num-query-groups", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!groups_queries(p)) return std::nullopt;
            return std::to_string(p.model.num_kv_heads);
          },
          [](Reading& reading, const Argument* given) {
            models::ModelSpec& model = reading.plan.model;
            model.num_kv_heads = model.num_heads;
            if (!reading.has("--group-query-attention")) return;
            model.num_kv_heads =
                given != nullptr ? static_cast<int>(reading.integer(*given, 1, limits::kWidth)) : 1;
          }),
      value(
          "--kv-channels", Group::Model,
          [](const Plan& p) {
            return std::optional(
                std::to_string(p.model.mla ? p.model.mla->qk_nope_head_size : p.model.head_size));
          },
          [](Reading& reading, const Argument* given) {
            models::ModelSpec& model = reading.plan.model;
            if (model.mla)
              model.head_size = model.mla->qk_nope_head_size + model.mla->qk_rope_head_size;
            else
              model.head_size = given != nullptr
                                    ? static_cast<int>(reading.integer(*given, 1, limits::kWidth))
                                    : model.hidden_size / model.num_heads;
          }),
      toggle(
          "--qk-layernorm", Group::Model,
          [](const Plan& p) { return p.model.qk_norm || p.model.mla; },
          [](Reading& reading, bool given) {
            models::ModelSpec& model = reading.plan.model;
            model.qk_norm = given && !model.mla;
            if (!model.mla) return;
            model.mla->norm_epsilon = model.norm_epsilon;
            if (!given)
              reading.assume("latent projections have norms (the script has no --qk-layernorm)");
          }),
      value(
          "--softmax-type", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.model.attention_sinks) return std::nullopt;
            return "learnable";
          },
          [](Reading& reading, const Argument* given) {
            const std::vector<std::string> choices{"vanilla", "learnable"};
            reading.plan.model.attention_sinks =
                given != nullptr && reading.choice(*given, choices) == 1;
          }),
  };
}

std::vector<Flag> window_flags() {
  return {
      value(
          "--window-size", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!has_windows(p)) return std::nullopt;
            return fmt::format("{},0", p.model.window - 1);
          },
          [](Reading& reading, const Argument* given) {
            if (given == nullptr) return;
            std::string text = reading.text(*given);
            std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
            const auto before = parse_integer(text.substr(0, text.find(',')), 0, 1 << 30);
            if (!before || !text.ends_with(",0"))
              Reading::fail(*given, "expected the tokens before and after, such as '4095,0'");
            reading.plan.model.window = *before + 1;
          },
          "tokens that a query sees before and after its own"),
      value(
          "--window-attn-skip-freq", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            const std::vector<int> windowed = windowed_layers(p.model);
            if (!has_windows(p) || std::ranges::find(windowed, 0) == windowed.end())
              return std::nullopt;
            return layer_list_text(windowed);
          },
          read_windows, "1: a layer with the window"),
  };
}

}  // namespace

std::vector<Flag> attention_flags() {
  std::vector<Flag> all = latent_flags();
  for (const auto& part : {head_flags(), window_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace meshplan::planner::megatron
