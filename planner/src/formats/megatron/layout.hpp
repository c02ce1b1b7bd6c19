// How layers are divided over pipeline stages, in Megatron-LM's words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/plan/plan.hpp"

namespace meshplan::planner::megatron {

/// Which of Megatron's ways says the plan's division.
enum class Division {
  Even,       // every stage holds the same
  Accounted,  // evenly, with embedding and head as a layer each
  Ends,       // the first and the last stage differ
  Layout,     // anything
};
Division division_of(const program::Plan& plan);

/// "E|(t|)*3,mL": E embedding, t layer, m prediction module, L loss, '|' between virtual stages in
/// the order of the forward pass (pipeline_parallel_layer_layout.py).
std::string layout_text(const std::vector<int>& layers_per_stage, int prediction_modules = 0);

struct ParsedLayout {
  std::vector<int> layers_per_stage;
  int mtp_layers = 0;
  std::optional<int> stage_of_mtp;  // the last one that has some
};
/// @throws ConfigError saying what is wrong, without the text's place
ParsedLayout parse_layout(std::string_view text);

}  // namespace meshplan::planner::megatron
