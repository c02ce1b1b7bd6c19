// Parts of a layer that a plan can name, each a set of operations of the layer's graph. An
// operation may belong to several: an expert's activation is of Moe, MoeAct and Activations.
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"

namespace meshplan::models {

enum class Module {
  Norms,          // of the residual stream, and of latents
  Activations,    // activation functions, of dense MLPs and of experts
  Attention,      // scores, softmax and their product with the values
  MlaUpProj,      // queries, keys and values made of latents, with their rotation
  Mlp,            // a dense MLP: both products and the activation between them
  Moe,            // router, exchange of tokens, experts, shared ones included, and their sum
  MoeAct,         // activation functions of routed experts
  SharedExperts,  // an MLP for all tokens beside the routed ones
};

class ModuleSet {
 public:
  constexpr ModuleSet() = default;
  constexpr ModuleSet(std::initializer_list<Module> modules) {
    for (const Module module : modules) add(module);
  }
  explicit ModuleSet(const std::vector<Module>& modules) {
    for (const Module module : modules) add(module);
  }

  constexpr void add(Module module) { bits_ |= bit(module); }
  constexpr void remove(Module module) { bits_ &= ~bit(module); }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool contains(Module module) const { return (bits_ & bit(module)) != 0; }
  constexpr bool intersects(ModuleSet other) const { return (bits_ & other.bits_) != 0; }
  /// A number for the set: 0 = empty.
  constexpr std::uint32_t bits() const { return bits_; }
  /// In the order of the enum.
  std::vector<Module> list() const;
  auto operator<=>(const ModuleSet&) const = default;

 private:
  static constexpr std::uint32_t bit(Module module) { return 1U << static_cast<unsigned>(module); }

  std::uint32_t bits_ = 0;
};

/// "norms+mlp"
std::string to_string(ModuleSet modules, char separator = '+');
/// Reads the same. @throws ConfigError naming the nearest module
ModuleSet parse_modules(std::string_view text, char separator = '+');

}  // namespace meshplan::models

/// How files, flags and tables spell them.
template <>
struct meshplan::EnumNames<meshplan::models::Module> {
  using Module = meshplan::models::Module;
  static constexpr std::array<std::pair<Module, std::string_view>, 8> value = {
      {{Module::Norms, "norms"},
       {Module::Activations, "activations"},
       {Module::Attention, "attention"},
       {Module::MlaUpProj, "mla_up_proj"},
       {Module::Mlp, "mlp"},
       {Module::Moe, "moe"},
       {Module::MoeAct, "moe_act"},
       {Module::SharedExperts, "shared_experts"}}};
};
