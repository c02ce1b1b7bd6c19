// What `meshplan report` writes: one HTML file that shows a plan, its step and what is known of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/explain/explanation.hpp"
#include "planner/objectives/sweeps.hpp"
#include "program/trace/trace.hpp"
#include "reports/comparison.hpp"
#include "reports/simulation_report.hpp"
#include "sim/engine/link_traffic.hpp"
#include "sim/engine/step_parts.hpp"

namespace meshplan::reports {

/// Operations whose bars a page holds, predicted and measured together: 6 MB of its file.
constexpr std::int64_t kMostBars = 500'000;

/// A step's operations, as a timeline draws them.
struct StepTimeline {
  program::Trace trace;      // one step
  int microbatches = 0;      // that it shows, the first ones of all
  int all_microbatches = 0;  // of the plan
  std::string note = {};     // why it shows fewer, or nothing
};

/// What a search for the plan's work found.
struct PageSearch {
  planner::SearchOutcome outcome;
  double seconds = 0;                         // that it took
  std::vector<planner::DegreeCell> cells;     // best step time by tp and pp, as estimated
  std::vector<planner::RankedPlan> frontier;  // time against memory
};

struct Page {
  std::string generator;  // "meshplan 0.1.0"
  SimulationReport simulation;
  sim::StepParts parts;
  std::vector<sim::LinkTraffic> traffic;
  std::vector<planner::Sensitivity> sensitivities;
  planner::ThumbStanding thumb;
  planner::TimedPlan timed;
  StepTimeline predicted;
  std::vector<sim::MemoryTimeline> memory;  // over the predicted timeline
  std::optional<StepTimeline> measured;
  std::optional<Comparison> comparison;
  std::optional<PageSearch> search;
};

struct PageOptions {
  double memory_reserve = sim::kMemoryReserve;
  std::int64_t most_bars = kMostBars;  // of predicted and measured operations
};

/// Plays the plan and gathers all that the page shows. Where a step has more operations than bars
/// may be drawn, its timeline is of fewer micro-batches; all else is of the whole step.
/// @param measured  of a run of this plan
/// @throws ConfigError as simulation_report and compare
Page page_of(const program::Plan& plan, const sim::Cluster& cluster, const PageOptions& options,
             const std::optional<program::Trace>& measured = {});

/// @throws ConfigError naming the file and what differs, if the trace is not of a run of this plan
void require_run_of(const program::Plan& plan, const std::string& plan_file,
                    const program::Trace& measured, const std::string& file);

/// The whole file: it needs neither other files nor a network.
std::string to_html(const Page& page);
/// What it shows, as JSON, and the JSON Schema of that.
std::string page_json(const Page& page);
std::string page_schema();

}  // namespace meshplan::reports
