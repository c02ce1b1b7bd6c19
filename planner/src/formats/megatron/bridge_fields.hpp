// Flags of Megatron-LM as fields of a Megatron-Bridge configuration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron_flags/flag.hpp"

namespace meshplan::planner::megatron {

/// "cfg.model.num_layers" and "80": a line of a recipe, or an argument of the model's provider.
struct BridgeField {
  std::string object;  // "model", "ddp", "optimizer", "scheduler", "train", "dataset", "dist"
  std::string name;
  std::string literal;  // Python
  std::string_view why;
};

/// All that the plan's flags say, in their order.
std::vector<BridgeField> bridge_fields(const program::Plan& plan);

/// The other way: a flag that a field of a configuration stands for.
struct FieldFlag {
  std::string flag;  // "--norm-epsilon"
  /// Of a switch that the field turns on with this value alone: "False", "F.silu"; else empty.
  std::string_view literal;
};

/// All flags that a field may stand for; empty where Megatron-LM has none.
std::vector<FieldFlag> flags_of_field(std::string_view object, const std::string& name);

}  // namespace meshplan::planner::megatron
