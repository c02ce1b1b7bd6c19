#include "formats/megatron_bridge/precision.hpp"

#include <algorithm>

#include "python/tree.hpp"

namespace meshplan::planner::bridge {
namespace {

void set_fp8(Json& fields, const char* format, const char* recipe, bool gathers) {
  fields["fp8"] = format;
  fields["fp8_recipe"] = recipe;
  fields["fp8_param_gather"] = gathers;
}

/// Layers whose products stay in 16 bit.
void keep_layers(Json& fields, int at_start, int at_end) {
  fields["first_last_layers_bf16"] = true;
  fields["num_layers_at_start_in_bf16"] = at_start;
  fields["num_layers_at_end_in_bf16"] = at_end;
}

}  // namespace

// NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/mixed_precision.py: one function each.
std::optional<Json> named_precision(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  const bool bf16 = has("bf16");
  if ((!bf16 && !has("fp16")) || !text.ends_with("_mixed")) return std::nullopt;
  Json fields = {{bf16 ? "bf16" : "fp16", true}, {"grad_reduce_in_fp32", bf16}};
  if (has("mxfp8")) {
    set_fp8(fields, "e4m3", "mxfp8", true);
  } else if (has("fp8_delayed_scaling")) {
    set_fp8(fields, "hybrid", "delayed", true);
  } else if (has("fp8_subchannel_scaling")) {
    set_fp8(fields, "hybrid", "blockwise", false);
  } else if (has("fp8_current_scaling")) {
    set_fp8(fields, "hybrid", text.starts_with("nanov2") ? "blockwise" : "tensorwise", true);
    const int layers = text.starts_with("nanov2") || text.starts_with("nemotron_h") ? 2 : 1;
    keep_layers(fields, layers, layers);
  } else if (has("nvfp4")) {
    fields["fp4"] = "e2m1";
    if (text.starts_with("nemotron_3_super")) keep_layers(fields, 0, 14);
  } else if (has("with")) {
    return std::nullopt;
  }
  return fields;
}

std::optional<Json> precision_fields(const Json& given) {
  if (given.is_string()) return named_precision(given.get<std::string>());
  if (!python::is_call(given)) return std::nullopt;
  std::string name = python::call_name(given);
  name = name.substr(name.rfind('.') + 1);
  std::optional<Json> fields = Json{{"grad_reduce_in_fp32", true}};
  if (name == "get_mixed_precision_config") {
    const Json arguments = given.value(python::kArguments, Json::array());
    const Json named = given.value("name", arguments.empty() ? Json() : arguments[0]);
    fields =
        named.is_string() ? named_precision(named.get<std::string>()) : precision_fields(named);
  } else if (name.ends_with("MixedPrecisionConfig")) {
    // Its own defaults, which are not Megatron-LM's.
    (*fields)["num_layers_at_start_in_bf16"] = (*fields)["num_layers_at_end_in_bf16"] = 0;
  } else {
    fields = named_precision(name);
  }
  if (!fields) return std::nullopt;
  for (const auto& [key, value] : given.items())
    if (!key.starts_with('$') && key != "name") (*fields)[key] = value;
  return fields;
}

}  // namespace meshplan::planner::bridge
