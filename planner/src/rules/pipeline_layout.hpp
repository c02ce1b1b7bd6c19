// Megatron-LM's --pipeline-model-parallel-layout as facts.
#pragma once

#include <cstdint>
#include <string_view>

#include "planner/rules/rules.hpp"

namespace meshplan::planner {

/// @param layout  as program/plan/pipeline_layout.hpp describes it
/// @returns layout, layout_stages, layout_layers, layout_ends, layout_mtp, and layout_mtp_in_place
/// where pp divides the stages
/// @throws ConfigError naming column and character, or what is too large
/// Source: Megatron-LM, pipeline_parallel_layer_layout.py (parse_str_to_list,
/// validate_layer_layout)
Facts layout_facts(std::string_view layout, std::int64_t pp);

}  // namespace meshplan::planner
