#include "formats/torchtitan/pipeline.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

#include "core/error.hpp"
#include "program/schedule/csv.hpp"

namespace meshplan::planner::torchtitan {
namespace {

using program::ChunkPlacement;
using program::Plan;
using program::ScheduleKind;

constexpr std::array kNamed = {NamedSchedule{"1F1B", ScheduleKind::OneFOneB},
                               NamedSchedule{"GPipe", ScheduleKind::GPipe},
                               NamedSchedule{"Interleaved1F1B", ScheduleKind::Interleaved, false},
                               NamedSchedule{"ZBVZeroBubble", ScheduleKind::ZbV, false},
                               NamedSchedule{"DualPipeV", ScheduleKind::DualPipeV, false}};

/// Does torch.distributed.pipelining make the same tasks of the name?
bool is_made_alike(const Plan& plan) {
  const int microbatches = plan.num_microbatches();
  switch (plan.schedule) {
    case ScheduleKind::GPipe:
    case ScheduleKind::OneFOneB:
    case ScheduleKind::ZbV:
      return true;
    case ScheduleKind::Interleaved:  // its groups grow where pp does not divide their number
      return microbatches % plan.parallel.pp == 0;
    case ScheduleKind::DualPipeV:
      return microbatches >= 2 * plan.parallel.pp;
    default:
      return false;
  }
}

}  // namespace

ScheduleWords schedule_words(const Plan& plan) {
  if (is_made_alike(plan)) {
    const auto* named = std::ranges::find(kNamed, plan.schedule, &NamedSchedule::kind);
    return {.name = std::string(named->name)};
  }
  // With a file, the name only says how stages are placed.
  const program::Schedule schedule = program::schedule_of(plan);
  const std::string name = schedule.placement == ChunkPlacement::V ? "ZBVZeroBubble"
                           : schedule.num_chunks == 1              ? "PipelineScheduleSingle"
                                                                   : "PipelineScheduleMulti";
  return {.name = name, .csv = program::to_csv(schedule)};
}

const NamedSchedule* named_schedule(std::string_view name) {
  const auto* found = std::ranges::find(kNamed, name, &NamedSchedule::name);
  return found == kNamed.end() ? nullptr : found;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const NamedSchedule& each : kNamed) names.emplace_back(each.name);
  return names;
}

std::vector<int> own_division(int num_layers, int stages, int input_weight, int output_weight) {
  if (stages == 1) return {num_layers};
  const int effective = num_layers + input_weight + output_weight;
  const int each = effective / stages;
  if (each == 0 || input_weight > each || output_weight > each) return {};
  std::vector<int> layers(static_cast<std::size_t>(stages), each);
  for (int i = 0; i < effective % stages; ++i) ++layers[static_cast<std::size_t>(i)];
  layers.front() -= input_weight;
  layers.back() -= output_weight;
  return layers;
}

std::vector<std::vector<std::string>> modules_of(const std::vector<int>& layers_per_stage) {
  std::vector<std::vector<std::string>> modules(layers_per_stage.size());
  modules.front().emplace_back("tok_embeddings");
  int layer = 0;
  for (std::size_t i = 0; i < modules.size(); ++i)
    for (int count = 0; count < layers_per_stage[i]; ++count)
      modules[i].push_back(fmt::format("layers.{}", layer++));
  modules.back().emplace_back("norm");
  modules.back().emplace_back("lm_head");
  return modules;
}

std::vector<int> layers_of(const std::vector<std::vector<std::string>>& modules, int num_layers,
                           const std::string& where) {
  std::vector<int> layers(modules.size(), 0);
  int next = 0;
  for (std::size_t i = 0; i < modules.size(); ++i)
    for (const std::string& name : modules[i]) {
      if (!name.starts_with("layers.")) continue;
      int layer = -1;
      const char* const end = name.data() + name.size();
      const auto read = std::from_chars(name.data() + 7, end, layer);
      if (read.ec != std::errc() || read.ptr != end || layer != next)
        throw ConfigError(
            fmt::format("{}: part {} has '{}' where 'layers.{}' follows; parts must "
                        "hold the layers in their order",
                        where, i, name, next));
      ++next;
      ++layers[i];
    }
  if (next != num_layers)
    throw ConfigError(
        fmt::format("{}: the parts hold {} layers, the model has {}", where, next, num_layers));
  return layers;
}

void set_division(Plan& plan, std::vector<int> layers) {
  plan.layers_per_stage.clear();
  for (const bool ends : {false, true}) {
    plan.count_ends_as_layers = ends;
    if (program::resolved_layers_per_stage(plan) == layers) return;
  }
  plan.count_ends_as_layers = false;
  plan.layers_per_stage = std::move(layers);
}

}  // namespace meshplan::planner::torchtitan
