// Low-rank adapters (AdapterSpec): which linears of a model may have them, and what trains them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/model_spec.hpp"

namespace meshplan::models {

/// The last part of a weight's name: "qkv_proj" of "self_attn.qkv_proj".
std::string module_of_weight(std::string_view weight);

/// Of a linear that is fused of several: "q_proj", "k_proj" and "v_proj" of "qkv_proj", in the
/// order of its sections. Empty: it is none.
std::vector<std::string> parts_of_module(std::string_view module);

/// Does the spec name this linear?
bool has_adapters(const AdapterSpec& adapters, std::string_view module);

/// Linears of the model's layers, and the parts of fused ones, by the names that
/// AdapterSpec::modules knows; each once.
std::vector<std::string> adaptable_modules(const ModelSpec& spec);

/// The same without the parts of fused ones: the weights as they are.
std::vector<std::string> linear_modules(const ModelSpec& spec);

/// Is it A or B of an adapter? @param name  of an operation or a parameter
bool is_of_adapter(std::string_view name);

/// Patterns of Plan::frozen that leave the adapters alone to train.
std::vector<std::string> all_but_adapters();

/// Are some of the adapters beside a part of a fused linear?
bool has_adapters_apart(const ModelSpec& spec);

}  // namespace meshplan::models
