#include "formats/megatron/layout.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <functional>

#include "core/error.hpp"
#include "program/plan/pipeline_layout.hpp"

namespace meshplan::planner::megatron {
namespace {

/// "t*5", "tt", "t", "".
std::string layers_text(int layers) {
  if (layers > 3) return fmt::format("t*{}", layers);
  return std::string(static_cast<std::size_t>(layers), 't');
}

}  // namespace

Division division_of(const program::Plan& plan) {
  const std::vector<int> layers = resolved_layers_per_stage(plan);
  const auto same = [](auto begin, auto end) {
    return std::adjacent_find(begin, end, std::not_equal_to<>()) == end;
  };
  if (same(layers.begin(), layers.end())) return Division::Even;
  const bool has_middle = layers.size() > 2;
  const bool even_middle = same(layers.begin() + 1, layers.end() - 1);
  const int each = has_middle ? layers[1] : layers.front() + 1;
  if (even_middle && layers.front() + 1 == each && layers.back() + 1 == each)
    return Division::Accounted;
  if (even_middle && plan.parallel.vpp == 1 && layers.front() > 0 && layers.back() > 0)
    return Division::Ends;
  return Division::Layout;
}

std::string layout_text(const std::vector<int>& layers_per_stage, int prediction_modules) {
  const std::string end = std::string(static_cast<std::size_t>(prediction_modules), 'm') + "L";
  if (layers_per_stage.size() == 1) return "E" + layers_text(layers_per_stage.front()) + end;
  std::string text = "E" + layers_text(layers_per_stage.front()) + "|";
  const auto last = layers_per_stage.end() - 1;
  for (auto begin = layers_per_stage.begin() + 1; begin != last;) {
    const auto same = std::find_if(begin, last, [&](int layers) { return layers != *begin; });
    const std::string stage = layers_text(*begin) + "|";
    text += same - begin == 1 ? stage : fmt::format("({})*{}", stage, same - begin);
    begin = same;
  }
  return text + layers_text(*last) + end;
}

ParsedLayout parse_layout(std::string_view text) {
  ParsedLayout parsed;
  for (const program::LayoutStage& stage : program::parse_pipeline_layout(text)) {
    parsed.layers_per_stage.push_back(stage.layers);
    parsed.mtp_layers += stage.predictions;
    if (stage.predictions > 0)
      parsed.stage_of_mtp = static_cast<int>(parsed.layers_per_stage.size()) - 1;
  }
  return parsed;
}

}  // namespace meshplan::planner::megatron
