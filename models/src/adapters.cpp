#include "models/adapters.hpp"

#include <algorithm>

#include "models/graph.hpp"

namespace meshplan::models {

std::string module_of_weight(std::string_view weight) {
  const std::size_t dot = weight.rfind('.');
  return std::string(dot == std::string_view::npos ? weight : weight.substr(dot + 1));
}

std::vector<std::string> parts_of_module(std::string_view module) {
  if (module == "qkv_proj") return {"q_proj", "k_proj", "v_proj"};
  if (module == "gate_up_proj") return {"gate_proj", "up_proj"};
  return {};
}

bool has_adapters(const AdapterSpec& adapters, std::string_view module) {
  return std::ranges::find(adapters.modules, module) != adapters.modules.end();
}

std::vector<std::string> linear_modules(const ModelSpec& spec) {
  ModelSpec plain = spec;
  plain.adapters.reset();
  std::vector<std::string> modules;
  constexpr std::string_view kWeight = ".weight";
  for (const LayerGraph& layer : build_graph(plain).kinds)
    for (const Op& op : layer.ops) {
      if (op.kind != OpKind::Linear && op.kind != OpKind::GroupedLinear) continue;
      std::string_view name = layer.tensors[static_cast<std::size_t>(op.parameters[0])].name;
      name.remove_suffix(kWeight.size());
      const std::string module = module_of_weight(name);
      if (std::ranges::find(modules, module) == modules.end()) modules.push_back(module);
    }
  return modules;
}

std::vector<std::string> adaptable_modules(const ModelSpec& spec) {
  std::vector<std::string> modules = linear_modules(spec);
  for (const std::string& whole : std::vector(modules))
    for (const std::string& part : parts_of_module(whole))
      if (std::ranges::find(modules, part) == modules.end()) modules.push_back(part);
  return modules;
}

bool is_of_adapter(std::string_view name) {
  return name.find(".lora_a") != std::string_view::npos ||
         name.find(".lora_b") != std::string_view::npos;
}

std::vector<std::string> all_but_adapters() {
  return {"*", "!*.lora_a.weight", "!*.lora_b.weight"};
}

bool has_adapters_apart(const ModelSpec& spec) {
  if (!spec.adapters) return false;
  const auto is_part = [&](std::string_view fused) {
    return std::ranges::any_of(parts_of_module(fused), [&](const std::string& part) {
      return has_adapters(*spec.adapters, part);
    });
  };
  // An up_proj that is fused with no gate is a linear of its own.
  return is_part("qkv_proj") || (spec.mlp == Mlp::Gated && is_part("gate_up_proj"));
}

}  // namespace meshplan::models
