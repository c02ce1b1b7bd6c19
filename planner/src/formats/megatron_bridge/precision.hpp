// Megatron-Bridge's named recipes of numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json_fields.hpp"

namespace meshplan::planner::bridge {

/// Fields of the MixedPrecisionConfig that a function of training/mixed_precision.py returns:
/// "bf16_with_fp8_current_scaling_mixed"; hyphens are as good. Absent of other names.
std::optional<Json> named_precision(std::string_view name);

/// Fields of what stands in `mixed_precision`: a name, a call of a function of that name or of
/// get_mixed_precision_config(), or a MixedPrecisionConfig; what is set afterwards stands above.
/// Absent: it is not understood.
std::optional<Json> precision_fields(const Json& given);

}  // namespace meshplan::planner::bridge
