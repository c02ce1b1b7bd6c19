#include "reports/simulation_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "core/index.hpp"
#include "core/json_fields.hpp"
#include "core/json_text.hpp"
#include "core/units.hpp"
#include "extrapolation_json.hpp"
#include "memory_timeline_json.hpp"
#include "plan_lines.hpp"
#include "planner/search/reasons.hpp"
#include "planner/search/space.hpp"
#include "program/cost/cost.hpp"
#include "program/lower/lower.hpp"
#include "program/plan/plan_names.hpp"
#include "program/plan_file/plan_file.hpp"
#include "reports/extrapolation_report.hpp"
#include "reports/search_report.hpp"
#include "reports/table.hpp"
#include "saving_report.hpp"
#include "sim/prices/pricing.hpp"
#include "terms_table.hpp"

namespace meshplan::reports {
namespace {

using sim::Category;
using sim::StageBreakdown;
using sim::StageMemory;

// Only categories that take time somewhere get a column.
std::vector<Category> used_categories(const std::vector<StageBreakdown>& stages) {
  std::vector<Category> used;
  for (const Category category : sim::all_categories())
    for (const StageBreakdown& stage : stages)
      if (stage.seconds[category] > 0) {
        used.push_back(category);
        break;
      }
  return used;
}

Table breakdown_table(const SimulationReport& report) {
  const std::vector<Category> used = used_categories(report.stages);
  Table table{.columns = {{"stage"}}};
  for (const Category category : used) table.columns.push_back({std::string(name_of(category))});
  for (const StageBreakdown& stage : report.stages) {
    std::vector<std::string> row{std::to_string(stage.stage)};
    for (const Category category : used)
      row.push_back(fmt::format("{:.2f}", stage.seconds[category] * kMilliseconds));
    table.rows.push_back(std::move(row));
  }
  return table;
}

struct MemoryPart {
  const char* name;
  double StageMemory::*bytes;
};
constexpr MemoryPart kMemoryParts[] = {
    {"parameters", &StageMemory::parameters},
    {"master_parameters", &StageMemory::master_parameters},
    {"gradients", &StageMemory::gradients},
    {"optimizer", &StageMemory::optimizer},
    {"activations", &StageMemory::activations},
    {"transient", &StageMemory::transient},
    {"workspace", &StageMemory::workspace},
    {"boundary", &StageMemory::boundary},
    {"communication", &StageMemory::communication},
    {"runtime_base", &StageMemory::runtime_base},
};

/// What a table of memory counts in.
struct MemoryUnit {
  const char* name;
  double bytes;
};
MemoryUnit unit_of(const sim::MemoryReport& memory) {
  return memory.peak_bytes >= kGib ? MemoryUnit{"GiB", kGib} : MemoryUnit{"MiB", kMib};
}

/// Its titles are short so that a line has no more than 100 columns.
Table memory_table(const sim::MemoryReport& memory) {
  const MemoryUnit unit = unit_of(memory);
  Table table{.columns = {{"stage"},
                          {"weights"},
                          {"master"},
                          {"grads"},
                          {"optim"},
                          {"acts"},
                          {"transient"},
                          {"workspace"},
                          {"boundary"},
                          {"comm"},
                          {"runtime"},
                          {"total"}}};
  for (const StageMemory& stage : memory.stages) {
    std::vector<std::string> row{std::to_string(stage.stage)};
    for (const MemoryPart& part : kMemoryParts)
      row.push_back(fmt::format("{:.2f}", stage.*part.bytes / unit.bytes));
    row.push_back(fmt::format("{:.2f}", stage.total() / unit.bytes));
    table.rows.push_back(std::move(row));
  }
  return table;
}

sim::MemoryNeed need_of(const sim::MemoryReport& memory) {
  return {.bytes = memory.peak_bytes,
          .capacity_bytes = memory.capacity_bytes,
          .of_host = memory.of_host};
}

std::string beside_device(const sim::MemoryReport& memory) {
  double host = 0;
  for (const StageMemory& stage : memory.stages) host = std::max(host, stage.host);
  return host > 0 ? fmt::format(", and {} of its host's memory", planner::format_bytes(host)) : "";
}

/// Spans are of all ranks and micro-batches: then all are played.
bool plays_all(const sim::SimulationOptions& options) {
  return options.record_spans || !options.fold;
}

/// Does compression pay? The same plan is played without it.
std::string compression_line(const SimulationReport& report) {
  if (!report.uncompressed_step_s) return {};
  const double with = report.simulation.step_time_s, without = *report.uncompressed_step_s;
  const program::GradientCompression& compression = report.plan.compression;
  std::string kind(name_of(compression.kind));
  if (compression.kind == program::CompressionKind::TopK)
    kind += fmt::format(" of {:.3g} %", 100 * compression.ratio);
  if (with < without)
    return fmt::format("compression  {} pays: {} without it ({:.1f} % more)\n", kind,
                       planner::format_seconds(without), 100 * (without / with - 1));
  return fmt::format("compression  {} does not pay: {} without it ({:.1f} % less)\n", kind,
                     planner::format_seconds(without), 100 * (1 - without / with));
}

}  // namespace

sim::PlayedPlan play(const program::Plan& plan, const sim::Cluster& cluster,
                     const sim::SimulationOptions& options) {
  if (!plays_all(options)) return sim::play_plan(plan, cluster);
  sim::PlayedPlan played{.microbatches = plan.num_microbatches(),
                         .programs = program::lower_all(plan)};
  played.result = sim::simulate(played.programs, cluster, options);
  return played;
}

SimulationReport simulation_report(const program::Plan& plan, const sim::Cluster& cluster,
                                   const SimulationReportOptions& options) {
  sim::PlayedPlan played = play(plan, cluster, options.simulation);
  std::vector<sim::LinkTraffic> traffic;
  if (options.communication) traffic = sim::link_traffic(played, cluster);
  SimulationReport report =
      simulation_report(played.programs, std::move(played.result), plan, cluster, options);
  report.traffic = std::move(traffic);
  return report;
}

SimulationReport simulation_report(const std::vector<program::Program>& programs,
                                   sim::SimulationResult result, const program::Plan& plan,
                                   const sim::Cluster& cluster,
                                   const SimulationReportOptions& options) {
  SimulationReport report{.plan = plan,
                          .cluster = cluster,
                          .simulation = std::move(result),
                          .peak_flop_per_s = sim::peak_flop_per_s(cluster, plan.workload)};
  if (plan.compression.kind != program::CompressionKind::None) {
    program::Plan whole = plan;
    whole.compression = {};
    report.uncompressed_step_s =
        plays_all(options.simulation)
            ? sim::simulate(
                  program::lower_all(whole), cluster,
                  {.fold = options.simulation.fold, .break_down = false, .record_spans = false})
                  .step_time_s
            : sim::simulate_step(whole, cluster).step.step_time_s;
  }
  if (options.memory_timelines)
    report.memory_timelines = sim::memory_timelines(programs, cluster, report.simulation.trace);
  report.stages = sim::by_stage(report.simulation.breakdown, plan);
  report.extrapolations = sim::extrapolations(plan, cluster);
  const double step = report.simulation.step_time_s;
  const StageBreakdown& longest = sim::busiest(report.stages);
  report.terms = sim::terms_of(programs[at(longest.stage)], cluster, longest.seconds, step);
  report.memory_reserve = options.memory_reserve;
  if (options.saving)
    report.saving = planner::predict_saving(programs, cluster, step, *options.saving);
  report.mfu = sim::model_flops_utilization(plan, cluster, step);
  report.tokens_per_s =
      static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len) / step;
  return report;
}

std::string memory_verdict(const SimulationReport& report) {
  const sim::MemoryReport& memory = report.simulation.memory;
  return memory_verdict(need_of(memory), memory.largest_stage, report.plan.stack,
                        report.memory_reserve, beside_device(memory));
}

std::string to_text(const SimulationReport& report) {
  const program::Plan& plan = report.plan;
  const double step = report.simulation.step_time_s;
  const sim::Interval interval = sim::interval_of(report.terms, step);
  std::string text = plan_header(plan, report.cluster);
  if (!plan.frozen.empty()) text += "frozen   " + frozen_line(plan.model, plan.frozen) + "\n";
  text += fmt::format(
      "\nstep time  {} (80 % interval {} to {})   MFU {} of {:.4g} TFLOP/s a rank   {} tokens/s\n",
      planner::format_seconds(step), planner::format_seconds(interval.low_s),
      planner::format_seconds(interval.high_s), percent(report.mfu), report.peak_flop_per_s / kTera,
      short_count(report.tokens_per_s));
  text += compression_line(report);
  if (!report.simulation.periodic)
    text += fmt::format("           (no steady period within {} steps; the last one is shown)\n",
                        report.simulation.steps_played);
  text += "\ntime of each stage, ms (communication only where nothing hides it)\n" +
          to_text(breakdown_table(report), 2);
  text += fmt::format("\nmemory of each stage's largest rank, {}\n",
                      unit_of(report.simulation.memory).name) +
          to_text(memory_table(report.simulation.memory), 2);
  text += "  " + memory_verdict(report);
  if (report.saving) text += to_text(*report.saving);
  if (report.extrapolations.empty()) return text;
  return text + to_text(report.extrapolations, interval);
}

std::string explain_text(const SimulationReport& report) {
  return terms_text(report.terms, report.simulation.step_time_s, sim::busiest(report.stages).stage);
}

std::string to_json(const SimulationReport& report) {
  Json stages = Json::array();
  for (const StageBreakdown& stage : report.stages) {
    Json seconds = Json::object();
    for (const Category category : sim::all_categories())
      seconds[std::string(name_of(category))] = stage.seconds[category];
    stages.push_back({{"stage", stage.stage}, {"breakdown_s", std::move(seconds)}});
  }
  Json memory = Json::array();
  for (const StageMemory& stage : report.simulation.memory.stages) {
    Json bytes{{"stage", stage.stage}};
    for (const MemoryPart& part : kMemoryParts)
      bytes[std::string(part.name) + "_bytes"] = stage.*part.bytes;
    bytes["total_bytes"] = stage.total();
    bytes["host_bytes"] = stage.host;
    if (std::isfinite(stage.host_capacity)) bytes["host_capacity_bytes"] = stage.host_capacity;
    memory.push_back(std::move(bytes));
  }
  const sim::Interval interval = sim::interval_of(report.terms, report.simulation.step_time_s);
  Json root{{"schema_version", 1},
            {"description", planner::describe(planner::candidate_of(report.plan))},
            {"step_time_s", report.simulation.step_time_s},
            {"interval_80_s", {interval.low_s, interval.high_s}},
            {"periodic", report.simulation.periodic},
            {"steps_played", report.simulation.steps_played},
            {"mfu", report.mfu},
            {"peak_flop_per_s", report.peak_flop_per_s},
            {"tokens_per_s", report.tokens_per_s},
            {"stages", std::move(stages)},
            {"memory", std::move(memory)},
            {"largest_stage", report.simulation.memory.largest_stage},
            {"peak_memory_bytes", report.simulation.memory.peak_bytes},
            {"capacity_bytes", report.simulation.memory.capacity_bytes},
            {"fits", report.simulation.memory.fits()},
            {"memory_verdict", verdict_json(need_of(report.simulation.memory), report.plan.stack,
                                            report.memory_reserve)},
            {"memory_reserve", report.memory_reserve},
            {"keeps_reserve", report.simulation.memory.fits(report.memory_reserve)},
            {"plan", Json::parse(program::to_json(report.plan))}};
  if (!report.extrapolations.empty())
    root["extrapolations"] = extrapolations_json(report.extrapolations);
  if (report.saving) root["saving"] = saving_json(*report.saving);
  if (!report.memory_timelines.empty())
    root["memory_timeline"] = memory_timeline_json(report.memory_timelines);
  return json_text(root) + "\n";
}

}  // namespace meshplan::reports
