// Flags of positions: rotary bases, and what stretches them to longer sequences.
#include <cmath>
#include <fmt/format.h>

#include "core/limits.hpp"
#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {
namespace {

using models::Positions;
using models::RopeScaling;
using models::RopeScalingKind;
using program::Plan;

bool is_scaled(const Plan& plan, RopeScalingKind kind) {
  return plan.model.rope_scaling && plan.model.rope_scaling->kind == kind;
}

bool is_rotary(const Plan& plan) {
  return plan.model.positions == Positions::Rope;
}

/// Latent attention has a yarn of its own, with fewer flags.
bool has_plain_yarn(const Plan& plan) {
  return is_scaled(plan, RopeScalingKind::Yarn) && !plan.model.mla;
}

/// Of the heads' elements. Megatron truncates kv_channels * percent.
std::optional<std::string> rotary_percent(const Plan& plan) {
  const models::ModelSpec& model = plan.model;
  if (!is_rotary(plan) || model.mla || !model.rope_size || *model.rope_size == model.head_size)
    return std::nullopt;
  double percent = static_cast<double>(*model.rope_size) / model.head_size;
  if (static_cast<int>(model.head_size * percent) < *model.rope_size)
    percent = std::nextafter(percent, 1);
  return shortest(percent);
}

/// The scaling that the flags before have made, or a new one.
RopeScaling& scaling_of(Reading& reading, RopeScalingKind kind) {
  auto& scaling = reading.plan.model.rope_scaling;
  if (!scaling) scaling.emplace();
  scaling->kind = kind;
  return *scaling;
}

void read_position_type(Reading& reading, const Argument* given) {
  // Older forks (Pai-Megatron-Patch's) write rotary.
  const std::vector<std::string> choices{"learned_absolute", "rope", "yarn", "none", "rotary"};
  std::size_t type = given != nullptr ? reading.choice(*given, choices) : 0;
  if (type == 4) type = 1;
  if (reading.has("--use-rotary-position-embeddings")) type = 1;
  models::ModelSpec& model = reading.plan.model;
  model.positions = type == 0 ? Positions::Learned : type == 3 ? Positions::None : Positions::Rope;
  if (model.mla) model.positions = Positions::Rope;
  if (type == 2 && !model.mla) {
    RopeScaling& yarn = scaling_of(reading, RopeScalingKind::Yarn);
    yarn.original_max_positions = 4096;
  }
}

/// Yarn of latent attention: its frequencies' constants are Megatron's own defaults.
void read_rope_type(Reading& reading, const Argument* given) {
  models::ModelSpec& model = reading.plan.model;
  if (!model.mla) return;
  const std::vector<std::string> choices{"rope", "yarn"};
  if (given != nullptr && reading.choice(*given, choices) == 0) return;
  const Argument* factor = reading.find("--rotary-scaling-factor");
  if (factor == nullptr || reading.number(*factor, 1, 1e9) == 1) return;  // a yarn of factor 1
  scaling_of(reading, RopeScalingKind::Yarn).original_max_positions = 4096;
}

/// A flag of the yarn that has been read.
template <class Access>
Flag of_yarn(std::string_view name, Access access, double absent, bool (*when)(const Plan&)) {
  return value(
      name, Group::Model,
      [access, when](const Plan& p) -> std::optional<std::string> {
        if (!when(p)) return std::nullopt;
        return shortest(access(*p.model.rope_scaling));
      },
      [access, absent](Reading& reading, const Argument* given) {
        if (!is_scaled(reading.plan, RopeScalingKind::Yarn)) return;
        RopeScaling& scaling = *reading.plan.model.rope_scaling;
        access(scaling) = given != nullptr ? reading.number(*given, 0, 1e9) : absent;
      });
}

/// The factors of cos and sin: Megatron's 1 and 0 are what absent ones mean here.
Flag mscale(std::string_view name, std::optional<double> RopeScaling::*field, double absent) {
  return value(
      name, Group::Model,
      [field](const Plan& p) -> std::optional<std::string> {
        if (!is_scaled(p, RopeScalingKind::Yarn) || !((*p.model.rope_scaling).*field))
          return std::nullopt;
        return shortest(*((*p.model.rope_scaling).*field));
      },
      [field, absent](Reading& reading, const Argument* given) {
        if (given == nullptr || !is_scaled(reading.plan, RopeScalingKind::Yarn)) return;
        const double read = reading.number(*given, 0, 1e9);
        const bool other = reading.has("--mscale") && reading.has("--mscale-all-dim");
        if (read != absent || other) (*reading.plan.model.rope_scaling).*field = read;
      });
}

std::vector<Flag> base_flags() {
  return {
      value(
          "--position-embedding-type", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (has_plain_yarn(p)) return "yarn";
            return p.model.positions == Positions::Learned ? "learned_absolute"
                   : is_rotary(p)                          ? "rope"
                                                           : "none";
          },
          read_position_type),
      value(
          "--max-position-embeddings", Group::Model,
          [](const Plan& p) {
            // Megatron wants no fewer than a sequence has.
            return std::optional(
                std::to_string(std::max<std::int64_t>(p.model.max_positions, p.workload.seq_len)));
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              reading.plan.model.max_positions =
                  static_cast<int>(reading.integer(*given, 1, 1 << 30));
          }),
      value(
          "--rotary-base", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_rotary(p)) return std::nullopt;
            return fmt::format("{:.0f}", p.model.rope_base);
          },
          [](Reading& reading, const Argument* given) {
            reading.plan.model.rope_base =
                given != nullptr ? reading.number(*given, 1, 1e15) : 10000;
          }),
      value("--rotary-percent", Group::Model, rotary_percent,
            [](Reading& reading, const Argument* given) {
              models::ModelSpec& model = reading.plan.model;
              if (given == nullptr || model.mla) return;
              const int size = static_cast<int>(model.head_size * reading.number(*given, 0, 1));
              if (size < model.head_size) model.rope_size = size;
            }),
  };
}

std::vector<Flag> scaling_flags() {
  return {
      toggle(
          "--use-rope-scaling", Group::Model,
          [](const Plan& p) { return is_scaled(p, RopeScalingKind::Llama3); },
          [](Reading& reading, bool given) {
            if (given) scaling_of(reading, RopeScalingKind::Llama3).original_max_positions = 8192;
          }),
      value(
          "--rope-scaling-factor", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_scaled(p, RopeScalingKind::Llama3)) return std::nullopt;
            return shortest(p.model.rope_scaling->factor);
          },
          [](Reading& reading, const Argument* given) {
            if (!is_scaled(reading.plan, RopeScalingKind::Llama3)) return;
            reading.plan.model.rope_scaling->factor =
                given != nullptr ? reading.number(*given, 1, 1e9) : 8;
          }),
      value(
          "--rotary-seq-len-interpolation-factor", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!is_scaled(p, RopeScalingKind::Linear)) return std::nullopt;
            return fmt::format("{:.0f}", p.model.rope_scaling->factor);
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr)
              scaling_of(reading, RopeScalingKind::Linear).factor =
                  static_cast<double>(reading.integer(*given, 1, 1 << 30));
          }),
      value(
          "--rope-type", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!p.model.mla) return std::nullopt;
            return p.model.rope_scaling ? "yarn" : "rope";
          },
          read_rope_type),
      toggle(
          "--no-rope-fusion", Group::Model,
          [](const Plan& p) {
            return p.model.mla && (!p.model.rope_scaling || p.model.sparse_attention);
          },
          [](Reading&, bool) {},
          "the fused kernel of latent attention is for yarn, and for attention to all keys"),
  };
}

std::vector<Flag> yarn_flags() {
  const auto any_yarn = [](const Plan& p) { return is_scaled(p, RopeScalingKind::Yarn); };
  return {
      of_yarn(
          "--rotary-scaling-factor", [](auto& s) -> auto& { return s.factor; }, 1, any_yarn),
      of_yarn(
          "--yarn-beta-fast", [](auto& s) -> auto& { return s.beta_fast; }, 32, has_plain_yarn),
      of_yarn(
          "--yarn-beta-slow", [](auto& s) -> auto& { return s.beta_slow; }, 1, has_plain_yarn),
      value(
          "--yarn-original-max-position-embeddings", Group::Model,
          [](const Plan& p) -> std::optional<std::string> {
            if (!has_plain_yarn(p)) return std::nullopt;
            return std::to_string(
                p.model.rope_scaling->original_max_positions.value_or(p.model.max_positions));
          },
          [](Reading& reading, const Argument* given) {
            if (given != nullptr && has_plain_yarn(reading.plan))
              reading.plan.model.rope_scaling->original_max_positions =
                  static_cast<int>(reading.integer(*given, 1, 1 << 30));
          }),
      toggle(
          "--no-yarn-correction-range-round-to-int", Group::Model,
          [](const Plan& p) { return has_plain_yarn(p) && !p.model.rope_scaling->truncate; },
          [](Reading& reading, bool given) {
            if (given && has_plain_yarn(reading.plan))
              reading.plan.model.rope_scaling->truncate = false;
          }),
      mscale("--mscale", &RopeScaling::mscale, 1),
      mscale("--mscale-all-dim", &RopeScaling::mscale_all_dim, 0),
  };
}

}  // namespace

std::vector<Flag> position_flags() {
  std::vector<Flag> all = base_flags();
  for (const auto& part : {scaling_flags(), yarn_flags()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace meshplan::planner::megatron
