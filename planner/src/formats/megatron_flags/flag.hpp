// A flag of Megatron-LM, once for both ways: how a plan's field becomes its value, and how its
// value becomes the field. Names and defaults: Megatron-LM d98e8a64,
// megatron/training/arguments.py.
#pragma once

#include <array>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "formats/megatron/reading.hpp"
#include "models/module.hpp"

namespace meshplan::planner::megatron {

/// The arrays of a launch script.
enum class Group { Model, Experts, Parallel, Memory, Precision, Training, Overlap };

using Values = std::vector<std::string>;

struct Flag {
  std::string_view name;
  Group group;
  int operands;          // -1: several
  std::string_view why;  // a comment behind it in the script; empty = none
  /// Absent where the flag is left out.
  std::function<std::optional<Values>(const program::Plan&)> write;
  /// Called in the order of the table, also where the flag is not given: its default is then meant.
  std::function<void(Reading&, const Argument* given)> read;
};

/// In the order in which they are written and read: what others depend on comes first.
const std::vector<Flag>& flags();

/// Is the flag one of the model's shape, not of how it is run?
bool describes_model(std::string_view flag);

// The parts of flags().
std::vector<Flag> model_flags();
std::vector<Flag> attention_flags();
std::vector<Flag> mixer_flags();
std::vector<Flag> position_flags();
std::vector<Flag> expert_flags();
std::vector<Flag> parallel_flags();
std::vector<Flag> pipeline_flags();
std::vector<Flag> memory_flags();
std::vector<Flag> precision_flags();
std::vector<Flag> training_flags();
std::vector<Flag> muon_flags();
std::vector<Flag> stack_flags();

/// --recompute-modules: those that a plan has, too (transformer_config.py, recompute_modules).
/// Norms are the two before attention and MLP; latents have none of their own there.
constexpr std::array<std::pair<std::string_view, models::Module>, 7> kRecomputeModules = {
    {{"core_attn", models::Module::Attention},
     {"moe_act", models::Module::MoeAct},
     {"layernorm", models::Module::Norms},
     {"mla_up_proj", models::Module::MlaUpProj},
     {"mlp", models::Module::Mlp},
     {"moe", models::Module::Moe},
     {"shared_experts", models::Module::SharedExperts}}};
inline std::optional<models::Module> module_of(std::string_view name) {
  for (const auto& [known, module] : kRecomputeModules)
    if (known == name) return module;
  return std::nullopt;
}

/// A double in the fewest digits that read back to it, as Python's float() reads them.
inline std::string shortest(double value) {
  return fmt::format("{}", value);
}

/// A whole number that is always written.
/// @param access  the field of a plan, const or not
/// @param absent  what Megatron takes where it is not given; none: it must be
template <class Access>
Flag count(std::string_view name, Group group, Access access, std::int64_t low, std::int64_t high,
           std::optional<std::int64_t> absent = std::nullopt) {
  return {name,
          group,
          1,
          "",
          [access](const program::Plan& plan) -> std::optional<Values> {
            return Values{std::to_string(access(plan))};
          },
          [=](Reading& reading, const Argument* given) {
            auto& field = access(reading.plan);
            using Field = std::remove_reference_t<decltype(field)>;
            if (given != nullptr)
              field = static_cast<Field>(reading.integer(*given, low, high));
            else if (absent)
              field = static_cast<Field>(*absent);
            else
              throw ConfigError(fmt::format(
                  "{} is not given, and Megatron-LM has no default for it; add it, or name the "
                  "model with --model",
                  name));
          }};
}

/// A real number that is always written.
template <class Access>
Flag real(std::string_view name, Group group, Access access, double low, double high,
          double absent) {
  return {name,
          group,
          1,
          "",
          [access](const program::Plan& plan) -> std::optional<Values> {
            return Values{shortest(access(plan))};
          },
          [=](Reading& reading, const Argument* given) {
            access(reading.plan) = given != nullptr ? reading.number(*given, low, high) : absent;
          }};
}

/// A switch without operands.
/// @param is_on  of a plan    @param set  the field; called with false where it is not given
template <class IsOn, class Set>
Flag toggle(std::string_view name, Group group, IsOn is_on, Set set, std::string_view why = "") {
  return {name,
          group,
          0,
          why,
          [is_on](const program::Plan& plan) -> std::optional<Values> {
            if (!is_on(plan)) return std::nullopt;
            return Values{};
          },
          [set](Reading& reading, const Argument* given) { set(reading, given != nullptr); }};
}

/// A flag whose value is a text.
template <class Write, class Read>
Flag value(std::string_view name, Group group, Write write, Read read, std::string_view why = "") {
  return {name,
          group,
          1,
          why,
          [write](const program::Plan& plan) -> std::optional<Values> {
            std::optional<std::string> text = write(plan);
            if (!text) return std::nullopt;
            return Values{std::move(*text)};
          },
          read};
}

/// Written always in the same way, and without effect on a plan where it is read.
inline Flag fixed(std::string_view name, Group group, Values values, std::string_view why,
                  bool (*when)(const program::Plan&)) {
  const int operands = static_cast<int>(values.size());
  return {name,
          group,
          operands,
          why,
          [values = std::move(values), when](const program::Plan& plan) -> std::optional<Values> {
            if (!when(plan)) return std::nullopt;
            return values;
          },
          [](Reading&, const Argument*) {}};
}

/// The flag where a plan's model has `part`; else it is neither written nor read.
template <class Has>
Flag where(Has part, const Flag& flag) {
  return {flag.name,
          flag.group,
          flag.operands,
          flag.why,
          [part, write = flag.write](const program::Plan& plan) -> std::optional<Values> {
            if (!part(plan.model)) return std::nullopt;
            return write(plan);
          },
          [part, read = flag.read](Reading& reading, const Argument* given) {
            if (part(reading.plan.model)) read(reading, given);
          }};
}
inline Flag of_experts(const Flag& flag) {
  return where([](const models::ModelSpec& model) { return model.moe.has_value(); }, flag);
}
inline Flag of_latent(const Flag& flag) {
  return where([](const models::ModelSpec& model) { return model.mla.has_value(); }, flag);
}

inline bool always(const program::Plan& /*plan*/) {
  return true;
}
/// Products in four bits, which a plan holds as a way to scale FP8.
inline bool is_fp4(const program::Plan& plan) {
  return plan.workload.fp8 != program::Float8Recipe::None &&
         plan.stack.settings.fp8_scaling == program::Fp8Scaling::NvFp4;
}
inline bool is_fp8(const program::Plan& plan) {
  return plan.workload.fp8 != program::Float8Recipe::None && !is_fp4(plan);
}

}  // namespace meshplan::planner::megatron
