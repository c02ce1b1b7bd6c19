// Megatron-LM's --pipeline-model-parallel-layout as facts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/rules/rules.hpp"

namespace meshplan::planner {

/// Its virtual stages with all repetitions written out: {"Ett", "tt", "tL"}.
/// @throws ConfigError naming column and character, or what is too large
std::vector<std::string> layout_stages(std::string_view layout);

/// "Et*2|(t*2|)*34,t*3|tL": virtual stages between bars, in the order of the forward pass; E
/// embedding, t layer, m prediction module, L loss; commas mean nothing, *n repeats what stands
/// before it.
/// @returns layout, layout_stages, layout_layers, layout_ends, layout_mtp, and layout_mtp_in_place
/// where pp divides the stages
/// @throws ConfigError naming column and character, or what is too large
/// Source: Megatron-LM, pipeline_parallel_layer_layout.py (parse_str_to_list,
/// validate_layer_layout)
Facts layout_facts(std::string_view layout, std::int64_t pp);

}  // namespace meshplan::planner
