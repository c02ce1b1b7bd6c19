#include "rules/pipeline_layout.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "program/plan/pipeline_layout.hpp"

namespace meshplan::planner {
namespace {

std::int64_t count(std::string_view text, char wanted) {
  return std::ranges::count(text, wanted);
}

/// Prediction modules lie behind all layers, all in one virtual stage, which is its rank's last.
bool modules_in_place(const std::vector<std::string>& stages, const std::string& parts,
                      std::int64_t pp) {
  const std::int64_t modules = count(parts, 'm');
  if (modules == 0) return true;
  if (parts.find('t', parts.find('m')) != std::string::npos) return false;
  const auto first_of_last_chunks = static_cast<std::int64_t>(stages.size()) - pp;
  for (std::int64_t stage = 0; stage < static_cast<std::int64_t>(stages.size()); ++stage) {
    const std::int64_t here = count(stages[static_cast<std::size_t>(stage)], 'm');
    if (here > 0 && (here != modules || stage < first_of_last_chunks)) return false;
  }
  return true;
}

}  // namespace

Facts layout_facts(std::string_view layout, std::int64_t pp) {
  const std::vector<std::string> stages = program::layout_stages(layout);
  const auto size = static_cast<std::int64_t>(stages.size());
  std::string parts;  // without the bars
  for (const std::string& stage : stages) parts += stage;
  const bool ends = !parts.empty() && parts.front() == 'E' && parts.back() == 'L' &&
                    count(parts, 'E') == 1 && count(parts, 'L') == 1;
  Facts facts{{"layout", 1},
              {"layout_stages", size},
              {"layout_layers", count(parts, 't')},
              {"layout_mtp", count(parts, 'm')},
              {"layout_ends", ends ? 1 : 0}};
  if (pp >= 1 && size % pp == 0)
    facts["layout_mtp_in_place"] = modules_in_place(stages, parts, pp) ? 1 : 0;
  return facts;
}

}  // namespace meshplan::planner
