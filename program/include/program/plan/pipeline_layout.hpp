// How a pipeline's stages are written down where they do not follow from their number.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshplan::program {

/// What a virtual stage holds of a model.
struct LayoutStage {
  bool embedding = false;
  int layers = 0;
  int predictions = 0;  // modules of multi-token prediction, which follow the last layer
  bool loss = false;    // and the head
  bool operator==(const LayoutStage&) const = default;
};

/// "Et*2|(t*2|)*34,t*3|mL": virtual stages between bars, in the order of the forward pass; E
/// embedding, t layer, m prediction module, L loss; commas mean nothing, *n repeats what stands
/// before it. With all repetitions written out: {"Ett", "tt", "mL"}.
/// @throws ConfigError naming column and character, or what is too large
/// Source: Megatron-LM, pipeline_parallel_layer_layout.py (parse_str_to_list)
std::vector<std::string> layout_stages(std::string_view layout);

/// @throws ConfigError besides for what stands out of order (validate_layer_layout of the same)
std::vector<LayoutStage> parse_pipeline_layout(std::string_view layout);

}  // namespace meshplan::program
