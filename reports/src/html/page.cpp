#include "reports/html/page.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "html/step_timeline.hpp"
#include "program/lower/lower.hpp"
#include "program/plan_file/plan_file.hpp"

namespace meshplan::reports {
namespace {

program::Trace with_plan(program::Trace trace, const program::Plan& plan) {
  trace.plan = plan;
  return trace;
}

/// The first place where two JSON values differ, below `path`: "workload.global_batch_size"; empty
/// if nowhere.
std::string first_difference(const Json& a, const Json& b, const std::string& path = "") {
  if (a == b) return "";
  if (!a.is_object() || !b.is_object()) return path;
  for (const auto& [key, value] : a.items()) {
    std::string below = path.empty() ? key : fmt::format("{}.{}", path, key);
    if (!b.contains(key)) return below;
    std::string found = first_difference(value, b[key], below);
    if (!found.empty()) return found;
  }
  return path;
}

Json at_path(const Json& root, const std::string& path) {
  const Json* value = &root;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (!value->contains(key)) return nullptr;
    value = &(*value)[key];
    begin = end + 1;
  }
  return *value;
}

/// What a run depends on, without what was believed of it.
Json what_is_run(const program::Plan& plan) {
  Json json = Json::parse(program::to_json(plan));
  for (const char* key : {"prediction", "cluster", "cluster_name", "cluster_hash"}) json.erase(key);
  return json;
}

}  // namespace

void require_run_of(const program::Plan& plan, const std::string& plan_file,
                    const program::Trace& measured, const std::string& file) {
  if (!measured.measured)
    throw ConfigError(
        fmt::format("{}: measured: false, expected true: the trace of a run (`meshplan run {} "
                    "--trace`); the prediction is made from the plan",
                    file, plan_file));
  const Json of_plan = what_is_run(plan), of_trace = what_is_run(measured.plan);
  const std::string path = first_difference(of_trace, of_plan);
  if (path.empty()) return;
  throw ConfigError(
      fmt::format("{}: plan.{}: {}, expected {} as in {}: the trace is of another plan", file, path,
                  quoted(at_path(of_trace, path)), quoted(at_path(of_plan, path)), plan_file));
}

Page page_of(const program::Plan& plan, const sim::Cluster& cluster, const PageOptions& options,
             const std::optional<program::Trace>& measured) {
  const SimulationReportOptions as_simulated{.simulation = {.record_spans = false},
                                             .memory_reserve = options.memory_reserve};
  const sim::PlayedPlan played = play(plan, cluster, as_simulated.simulation);
  Page page{
      .simulation = simulation_report(played.programs, played.result, plan, cluster, as_simulated),
      .parts = sim::parts_of(played, plan, cluster),
      .traffic = sim::of_all_operations(sim::link_traffic(played, cluster))};
  const sim::SimulatedStep step = sim::step_of(played, plan, cluster);
  page.timed = {plan, step.step, step.terms};
  const planner::PricedOn on{cluster, options.memory_reserve};
  page.sensitivities = planner::sensitivities(page.timed, on);
  page.thumb = planner::rule_of_thumb_beside(page.timed, on);
  page.predicted =
      predicted_timeline(plan, cluster, measured ? options.most_bars / 2 : options.most_bars);
  if (!page.predicted.trace.spans.empty())
    page.memory = sim::memory_timelines(program::lower_all(page.predicted.trace.plan), cluster,
                                        page.predicted.trace);
  if (!measured) return page;
  const bool whole = page.predicted.microbatches == page.predicted.all_microbatches;
  page.comparison = compare(
      with_plan(whole ? page.predicted.trace : page.simulation.simulation.trace, plan), *measured);
  page.measured = measured_timeline(*measured, page.predicted,
                                    options.most_bars - std::ssize(page.predicted.trace.spans));
  return page;
}

}  // namespace meshplan::reports
