#include "html/page_json.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sstream>
#include <utility>

#include "core/index.hpp"
#include "core/json_text.hpp"
#include "core/units.hpp"
#include "html/plan_words.hpp"
#include "html/step_json.hpp"
#include "plan_lines.hpp"
#include "planner/search/space.hpp"
#include "program/plan/mesh.hpp"
#include "reports/explain/explanation_report.hpp"
#include "reports/search_json.hpp"
#include "timeline_columns.hpp"

namespace meshplan::reports {
namespace {

using sim::MemoryClass;

constexpr int kMemoryColumns = 480;
constexpr int kMostMeshRanks = 4096;

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t end = line.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : line.substr(begin, end - begin + 1);
}

/// "model    llama3-8b ..." by its first word.
std::vector<LineJson> header_of(const Page& page) {
  const SimulationReport& report = page.simulation;
  std::istringstream text(plan_header(report.plan, report.cluster));
  std::vector<LineJson> lines;
  for (std::string line; std::getline(text, line);) {
    const std::size_t space = line.find(' ');
    lines.push_back({line.substr(0, space), trimmed(line.substr(space))});
  }
  return lines;
}

Json without_plans(Json json) {
  json.erase("plan");
  if (json.contains("ranked"))
    for (Json& ranked : json["ranked"]) ranked.erase("plan");
  return json;
}

MemoryStageJson stage_json(const sim::MemoryTimeline& timeline, double capacity_bytes) {
  MemoryStageJson stage{.stage = timeline.stage,
                        .rank = timeline.rank,
                        .end_s = timeline.end_s,
                        .planned_bytes = timeline.planned_bytes,
                        .capacity_bytes = capacity_bytes,
                        .peak_bytes = timeline.peak.use.total(),
                        .peak_s = timeline.peak.time_s,
                        .during = timeline.during,
                        .mib = {}};
  const std::vector<sim::MemoryUse> columns =
      fullest_in_columns(timeline, timeline.end_s, kMemoryColumns);
  const auto in_mib = [](double bytes) { return std::round(bytes / kMib * 10) / 10; };
  for (int c = 0; c < sim::kNumMemoryClasses; ++c) {
    const auto of = static_cast<MemoryClass>(c);
    std::vector<double>& mib = stage.mib.emplace_back();
    if (!sim::changes_over_step(of)) {
      mib.push_back(in_mib(timeline.peak.use[of]));
      continue;
    }
    for (const sim::MemoryUse& use : columns) mib.push_back(in_mib(use[of]));
  }
  return stage;
}

MemoryJson memory_json(const Page& page) {
  MemoryJson memory;
  for (int c = 0; c < sim::kNumMemoryClasses; ++c)
    memory.classes.emplace_back(sim::name_of(static_cast<MemoryClass>(c)));
  const std::vector<sim::StageMemory>& stages = page.simulation.simulation.memory.stages;
  for (const sim::MemoryTimeline* timeline : first_of_each_stage(page.memory))
    memory.stages.push_back(stage_json(*timeline, stages[at(timeline->stage)].capacity));
  return memory;
}

MeshJson mesh_json(const program::Plan& plan, const sim::Cluster& cluster) {
  const program::Mesh mesh = program::mesh_of(plan);
  const program::ParallelConfig& p = plan.parallel;
  MeshJson json{.ranks = p.world_size(),
                .ranks_per_node = cluster.devices_per_node,
                .node_types = {},
                .axes = {"tp", "cp", "dp", "pp"},
                .degrees = {p.tp, p.cp, p.dp, p.pp},
                .coordinates = {}};
  const bool experts = p.ep > 1;
  if (experts) {
    json.axes.emplace_back("ep");
    json.degrees.push_back(p.ep);
  }
  for (int type = 0; type < sim::num_node_types(cluster); ++type)
    json.node_types.push_back(
        {sim::device_of(cluster, type).name, sim::num_nodes_of(cluster, type)});
  for (int rank = 0; rank < std::min(json.ranks, kMostMeshRanks); ++rank) {
    const program::Coordinates c = mesh.coordinates(rank);
    json.coordinates.push_back({c.tp, c.cp, c.dp, c.pp});
    if (experts) json.coordinates.back().push_back(c.ep);
  }
  return json;
}

TimelineJson timeline_json(const StepTimeline& timeline) {
  PackedBars packed = pack_bars(timeline.trace);
  double end = 0;
  for (const program::Span& span : timeline.trace.spans) end = std::max(end, span.end_s);
  return {.measured = timeline.trace.measured,
          .source = timeline.trace.source,
          .step_s = end,
          .microbatches = timeline.microbatches,
          .all_microbatches = timeline.all_microbatches,
          .note = trimmed(timeline.note),
          .operations = std::move(packed.operations),
          .rows = std::move(packed.rows)};
}

std::string in_a_line(const program::Plan& plan) {
  return planner::describe(planner::candidate_of(plan));
}

PointJson point_json(const planner::RankedPlan& ranked) {
  return {in_a_line(ranked.plan), ranked.step_time_s(), ranked.step().peak_memory_bytes};
}

/// Of all plans that were played, those that none beats in both time and memory, fastest first.
std::vector<PointJson> frontier_of(const PageSearch& search) {
  std::vector<PointJson> points;
  for (const planner::RankedPlan& ranked : search.frontier) points.push_back(point_json(ranked));
  if (const auto* result = std::get_if<planner::SearchResult>(&search.outcome)) {
    for (const planner::RankedPlan& ranked : result->ranked) points.push_back(point_json(ranked));
    for (const planner::Alternative& alternative : result->alternatives)
      if (alternative.plan) points.push_back(point_json(*alternative.plan));
  }
  std::ranges::sort(points, {}, [](const PointJson& point) {
    return std::pair(point.step_time_s, point.peak_memory_bytes);
  });
  std::vector<PointJson> frontier;
  for (PointJson& point : points)
    if (frontier.empty() || point.peak_memory_bytes < frontier.back().peak_memory_bytes)
      frontier.push_back(std::move(point));
  return frontier;
}

PageSearchJson search_json(const PageSearch& search) {
  PageSearchJson json{.seconds = search.seconds, .outcome = {}, .reasons = {}};
  json.outcome.value = without_plans(Json::parse(to_json(search.outcome)));
  if (const auto* result = std::get_if<planner::SearchResult>(&search.outcome))
    json.reasons = result->ranked.front().plan.prediction->reasons;
  for (const planner::DegreeCell& cell : search.cells) {
    CellJson& one = json.cells.emplace_back();
    one = {
        .tp = cell.tp, .pp = cell.pp, .step_time_s = {}, .description = {}, .reason = cell.reason};
    if (!cell.plan) continue;
    one.step_time_s = cell.plan->step_time_s();
    one.description = in_a_line(cell.plan->plan);
    one.peak_memory_bytes = cell.plan->step().peak_memory_bytes;
  }
  json.frontier = frontier_of(search);
  return json;
}

}  // namespace

PageJson json_of(const Page& page) {
  const SimulationReport& report = page.simulation;
  PageJson json{.generator = page.generator,
                .title = fmt::format("{} on {}", report.plan.model.name, report.cluster.name),
                .description = in_a_line(report.plan),
                .header = header_of(page),
                .words = plan_in_words(report.plan),
                .reasons = {},
                .verdict = trimmed(memory_verdict(report)),
                .categories = {},
                .simulation = {without_plans(Json::parse(to_json(report)))},
                .parts = parts_json(page.parts),
                .terms = {},
                .sensitivities = {},
                .rule_of_thumb = trimmed(thumb_line(page.thumb, page.timed, report.memory_reserve)),
                .memory = memory_json(page),
                .levels = levels_json(report.cluster),
                .traffic = traffic_json(page.traffic),
                .mesh = mesh_json(report.plan, report.cluster),
                .timelines = {},
                .comparison = {},
                .search = {}};
  if (report.plan.prediction) json.reasons = report.plan.prediction->reasons;
  for (const sim::Category category : sim::all_categories())
    json.categories.emplace_back(sim::name_of(category));
  for (const sim::PredictionTerm& term : report.terms)
    json.terms.push_back({std::string(term.name), term.seconds, term.sigma,
                          std::string(sim::name_of(term.source)), std::string(term.measure)});
  for (const planner::Sensitivity& one : page.sensitivities)
    json.sensitivities.push_back({one.figure, one.seconds_of_10_percent});
  json.timelines.push_back(timeline_json(page.predicted));
  if (page.measured) json.timelines.push_back(timeline_json(*page.measured));
  if (page.comparison) json.comparison = RawJson{Json::parse(to_json(*page.comparison))};
  if (page.search) json.search = search_json(*page.search);
  return json;
}

std::string page_json(const Page& page) {
  return json_text(write_json(json_of(page)), -1) + "\n";
}

std::string page_schema() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "what a page of meshplan report holds"}};
  schema.update(json_schema<PageJson>());
  return schema.dump(2) + "\n";
}

}  // namespace meshplan::reports
