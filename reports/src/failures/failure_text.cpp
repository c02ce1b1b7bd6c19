#include <fmt/format.h>
#include <string_view>

#include "plan_lines.hpp"
#include "planner/failures/failure_names.hpp"
#include "planner/search/reasons.hpp"
#include "reports/failures/failure_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::CheckpointCosts;
using planner::FailurePlay;
using planner::FailureStudy;
using planner::format_duration;

std::string_view words_for(planner::CheckpointPlace place) {
  return place == planner::CheckpointPlace::Storage ? "file system" : "partner's memory";
}

std::string_view words_for(planner::SmallerWorld world) {
  switch (world) {
    case planner::SmallerWorld::KeepBatch:
      return "fewer replicas share the batch";
    case planner::SmallerWorld::ShrinkBatch:
      return "fewer replicas, and a smaller batch";
    case planner::SmallerWorld::Wait:
      return "the job waits";
  }
  return "";
}

/// "93.0 % to 95.1 %"
std::string spread(const FailurePlay& play) {
  return fmt::format("{} to {}", percent(play.low), percent(play.high));
}

/// What one failure costs and where it comes from.
std::string costs_text(const FailureStudy& study) {
  const CheckpointCosts& checkpoint = study.costs.checkpoint;
  const int left = study.costs.num_nodes - 1;
  std::string text =
      fmt::format("a failure costs {}: {} to notice, {} to start, {} to load, {} of lost work\n",
                  format_duration(study.costs.restart_s() + study.closed_form.interval_s / 2 +
                                  checkpoint.lag_s),
                  format_duration(study.costs.detection_s), format_duration(study.costs.start_s),
                  format_duration(checkpoint.load_s),
                  format_duration(study.closed_form.interval_s / 2 + checkpoint.lag_s));
  if (study.costs.spare_nodes > 0)
    return text + fmt::format("  {} spare node{} replace{} a node at once; else {}\n",
                              study.costs.spare_nodes, study.costs.spare_nodes == 1 ? "" : "s",
                              study.costs.spare_nodes == 1 ? "s" : "",
                              words_for(study.assumptions.smaller_world));
  if (study.costs.worlds.speed(left) == 0)
    return text + fmt::format("  and the job waits for {} until the node is back\n",
                              format_duration(study.costs.repair_s));
  return text +
         fmt::format("  then {} of {} nodes work at {} for {}: {} replicas of {}; {}\n",
                     grouped(left), grouped(study.costs.num_nodes),
                     percent(study.costs.worlds.speed(left)), format_duration(study.costs.repair_s),
                     grouped(study.costs.worlds.replicas(left)), grouped(study.plan.parallel.dp),
                     words_for(study.assumptions.smaller_world));
}

std::string parts_text(const FailureStudy& study) {
  const planner::TimeParts& parts = study.play.parts;
  Table table{.columns = {{"", Align::Left}, {""}}};
  for (const auto& [name, part] :
       {std::pair{"useful work", parts.useful}, std::pair{"lost work", parts.lost},
        std::pair{"saving", parts.saving}, std::pair{"restarts and loading", parts.restart},
        std::pair{"smaller world, idle", parts.smaller}})
    table.rows.push_back({name, fmt::format("{:.2f} %", 100 * part)});
  return fmt::format(
             "\n{:g} days, {} trials, seed {}: goodput {} on average, {} in 9 of 10 trials; {:.3g} "
             "failures each\n  closed form (Daly 2006): {}; a step of {} takes {} with failures\n",
             study.options.days, grouped(study.options.trials), study.options.seed,
             percent(study.play.parts.useful), spread(study.play), study.play.failures,
             percent(study.closed_form.goodput), planner::format_seconds(study.step_time_s),
             planner::format_seconds(study.play.effective_s(study.step_time_s))) +
         to_text(table, 2);
}

std::string places_text(const FailureStudy& study) {
  Table table{.columns = {{"checkpoints in", Align::Left},
                          {"every"},
                          {"stall"},
                          {"complete after"},
                          {"load"},
                          {"host memory a node"},
                          {"goodput"},
                          {"9 of 10", Align::Left}}};
  for (const planner::PlacePlay& place : study.places) {
    if (!place.play) {
      table.rows.push_back({std::string(words_for(place.place)), "-", "-", "-", "-", "-", "-",
                            "needs a second node"});
      continue;
    }
    const CheckpointCosts& costs = place.closed_form->checkpoint;
    table.rows.push_back(
        {std::string(words_for(place.place)), format_duration(place.closed_form->interval_s),
         planner::format_seconds(costs.stall_s), format_duration(costs.lag_s),
         format_duration(costs.load_s),
         planner::format_bytes(costs.host_node_bytes) + (costs.fits_host() ? "" : " (too much)"),
         percent(place.play->parts.useful), spread(*place.play)});
  }
  return "\n" + to_text(table);
}

std::string intervals_text(const FailureStudy& study) {
  Table table{.columns = {{"checkpoint every"}, {"goodput"}, {"saving"}, {"lost work"}}};
  for (const planner::IntervalPlay& interval : study.intervals)
    table.rows.push_back({format_duration(interval.interval_s),
                          fmt::format("{:.2f} %", 100 * interval.play.parts.useful),
                          fmt::format("{:.2f} %", 100 * interval.play.parts.saving),
                          fmt::format("{:.2f} %", 100 * interval.play.parts.lost)});
  return "\n" + to_text(table);
}

std::string spares_text(const FailureStudy& study) {
  Table table{
      .columns = {{"spare nodes"}, {"goodput"}, {"9 of 10", Align::Left}, {"per paid device"}}};
  for (const planner::SparesPlay& spares : study.spares)
    table.rows.push_back({grouped(spares.spare_nodes), percent(spares.play.parts.useful),
                          spread(spares.play), percent(spares.play.paid_goodput)});
  const int best = study.spares[study.worth_having].spare_nodes;
  return "\n" + to_text(table) +
         (best == 0 ? std::string("no spare node is worth what it costs\n")
                    : fmt::format("worth having: {} spare node{}\n", grouped(best),
                                  best == 1 ? "" : "s"));
}

}  // namespace

std::string failures_text(double device_mtbf_hours, int devices) {
  const double mtbf_s = device_mtbf_hours * planner::kHourSeconds / devices;
  return fmt::format("one device in {} h: one of {} every {}, {:.3g} a day",
                     grouped(static_cast<std::int64_t>(device_mtbf_hours)), grouped(devices),
                     format_duration(mtbf_s), planner::kDaySeconds / mtbf_s);
}

std::string goodput_text(const planner::Goodput& goodput) {
  return fmt::format("goodput {}, {:.3g} failures a day, a checkpoint every {}",
                     percent(goodput.goodput), goodput.failures_per_day,
                     format_duration(goodput.interval_s));
}

std::string to_text(const FailureStudy& study) {
  std::string text = plan_header(study.plan, study.cluster) +
                     fmt::format("failures {}\n", failures_text(study.assumptions.device_mtbf_hours,
                                                                study.costs.devices));
  for (const std::string& line : study.assumed) text += "assumed  " + line + "\n";
  const CheckpointCosts& checkpoint = study.costs.checkpoint;
  text += fmt::format("\ncheckpoint of {}, {} of the fullest rank, in a {}\n",
                      planner::format_bytes(checkpoint.bytes),
                      planner::format_bytes(checkpoint.rank_bytes),
                      words_for(study.assumptions.checkpoints));
  return text + costs_text(study) + parts_text(study) + places_text(study) + intervals_text(study) +
         spares_text(study);
}

}  // namespace meshplan::reports
