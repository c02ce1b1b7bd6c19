#include "reports/trial_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/csv.hpp"
#include "core/json_fields.hpp"
#include "core/quoting.hpp"
#include "core/units.hpp"
#include "planner/search/space.hpp"
#include "reports/machine_drift.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

double error_of(double predicted, double measured) {
  return predicted / measured - 1;
}

/// The fastest measured plan of one rank that trains the same model.
const TrialRow* one_rank(const Trial& trial, const TrialRow& like) {
  const TrialRow* best = nullptr;
  for (const TrialRow& row : trial.rows)
    if (row.plan.parallel.world_size() == 1 && row.plan.model == like.plan.model &&
        (best == nullptr || row.measured_s < best->measured_s))
      best = &row;
  return best;
}

double naive_prediction(const TrialRow& row, const TrialRow& single) {
  return single.measured_s / row.plan.parallel.world_size();
}

std::string describe(const program::Plan& plan) {
  return planner::describe(planner::candidate_of(plan));
}

/// What the predictions would have chosen for one model, and what was best.
std::string choice_of(const std::vector<const TrialRow*>& rows) {
  const TrialRow& fastest = **std::ranges::min_element(rows, {}, &TrialRow::measured_s);
  const TrialRow& slowest = **std::ranges::max_element(rows, {}, &TrialRow::measured_s);
  const TrialRow& choice = **std::ranges::min_element(rows, {}, &TrialRow::predicted_s);
  return fmt::format(
      "fastest           {} at {:.1f} ms; the slowest takes {:.2f} x\n"
      "first choice      {}: {} slower than the fastest\n",
      describe(fastest.plan), fastest.measured_s * kMilliseconds,
      slowest.measured_s / fastest.measured_s, describe(choice.plan),
      fmt::format("{:.1f} %", (choice.measured_s / fastest.measured_s - 1) * 100));
}

/// Rows by the model that they train, in order of appearance.
std::vector<std::vector<const TrialRow*>> by_model(const Trial& trial) {
  std::vector<std::vector<const TrialRow*>> groups;
  for (const TrialRow& row : trial.rows) {
    const auto same = std::ranges::find_if(
        groups, [&row](const auto& group) { return group.front()->plan.model == row.plan.model; });
    if (same == groups.end())
      groups.push_back({&row});
    else
      same->push_back(&row);
  }
  return groups;
}

/// How fast and busy the machine was, and what its drift since the calibration explains.
std::string drift_of(const Trial& trial) {
  const auto then = mean_absolute_error_at_calibrated_speed(trial);
  if (!then) return {};
  double sum = 0;
  int known = 0;
  for (const TrialRow& row : trial.rows)
    if (row.slowdown) {
      sum += *row.slowdown;
      ++known;
    }
  const double now = mean_absolute_error(trial);
  const double points = (now - *then) * 100;
  std::string text = fmt::format("machine           reference product {} than at calibration\n",
                                 change(sum / known));
  if (const std::string busy = busy_cores(trial); !busy.empty())
    text += fmt::format("                  {}\n", busy);
  text += fmt::format("at that speed     {:.1f} % mean absolute step-time error: ", *then * 100);
  return text + (points > 0
                     ? fmt::format("drift explains {:.1f} of {:.1f} points\n", points, now * 100)
                     : std::string("drift explains nothing of the error\n"));
}

std::string findings(const Trial& trial) {
  const TrialRow& worst = *std::ranges::max_element(trial.rows, {}, [](const TrialRow& row) {
    return std::abs(error_of(row.predicted_s, row.measured_s));
  });
  std::string text = fmt::format("worst prediction  {}: {}\n", describe(worst.plan),
                                 signed_percent(error_of(worst.predicted_s, worst.measured_s)));
  const auto groups = by_model(trial);
  for (const auto& rows : groups) {
    if (groups.size() > 1) text += fmt::format("{}\n", rows.front()->plan.model.name);
    text += choice_of(rows);
  }
  if (const auto naive = naive_mean_absolute_error(trial))
    text += fmt::format("naive predictor   one rank's time / ranks: {:.1f} % mean absolute error\n",
                        *naive * 100);
  double memory = 0;
  for (const TrialRow& row : trial.rows)
    memory += std::abs(error_of(row.predicted_memory_bytes, row.measured_memory_bytes));
  return text +
         fmt::format("mean absolute memory error: {:.1f} %\n",
                     memory / static_cast<double>(trial.rows.size()) * 100) +
         drift_of(trial) +
         fmt::format("mean absolute step-time error: {:.1f} %\n", mean_absolute_error(trial) * 100);
}

}  // namespace

double mean_absolute_error(const Trial& trial) {
  double sum = 0;
  for (const TrialRow& row : trial.rows) sum += std::abs(error_of(row.predicted_s, row.measured_s));
  return trial.rows.empty() ? 0 : sum / static_cast<double>(trial.rows.size());
}

std::optional<double> mean_absolute_error_at_calibrated_speed(const Trial& trial) {
  double sum = 0;
  bool known = false;
  for (const TrialRow& row : trial.rows) {
    known = known || row.slowdown;
    sum += std::abs(
        error_at_calibrated_speed(row.predicted_s, row.measured_s, row.slowdown.value_or(1)));
  }
  if (!known) return std::nullopt;
  return sum / static_cast<double>(trial.rows.size());
}

std::string busy_cores(const Trial& trial) {
  std::string worst;
  double most = 0;
  for (const TrialRow& row : trial.rows) {
    std::string text = busy_cores(row.machine);
    const double share = row.machine.cores > 0 ? row.machine.other_cores / row.machine.cores : 0;
    if (text.empty() || share <= most) continue;
    most = share;
    worst = fmt::format("{} ({})", text, describe(row.plan));
  }
  return worst;
}

std::optional<double> naive_mean_absolute_error(const Trial& trial) {
  double sum = 0;
  int count = 0;
  for (const TrialRow& row : trial.rows) {
    const TrialRow* single = one_rank(trial, row);
    if (single == nullptr || row.plan.parallel.world_size() == 1) continue;
    sum += std::abs(error_of(naive_prediction(row, *single), row.measured_s));
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

namespace {

Table table_of(const Trial& trial) {
  Table table{.columns = {{"plan", Align::Left},
                          {"ranks"},
                          {"predicted ms"},
                          {"measured ms"},
                          {"p10..p90"},
                          {"steps"},
                          {"error"},
                          {"machine"},
                          {"naive ms"},
                          {"error"},
                          {"predicted MiB"},
                          {"measured MiB"},
                          {"error"},
                          {"loss"}}};
  for (const TrialRow& row : trial.rows) {
    const TrialRow* single = one_rank(trial, row);
    const double naive = single == nullptr ? 0 : naive_prediction(row, *single);
    table.rows.push_back(
        {describe(row.plan), std::to_string(row.plan.parallel.world_size()),
         fmt::format("{:.1f}", row.predicted_s * kMilliseconds),
         fmt::format("{:.1f}", row.measured_s * kMilliseconds),
         fmt::format("{:.0f}..{:.0f}", row.p10_s * kMilliseconds, row.p90_s * kMilliseconds),
         std::to_string(row.steps), signed_percent(error_of(row.predicted_s, row.measured_s)),
         row.slowdown ? signed_percent(*row.slowdown - 1) : "-",
         single == nullptr ? "-" : fmt::format("{:.1f}", naive * kMilliseconds),
         single == nullptr ? "-" : signed_percent(error_of(naive, row.measured_s)),
         fmt::format("{:.1f}", row.predicted_memory_bytes / kMib),
         fmt::format("{:.1f}", row.measured_memory_bytes / kMib),
         signed_percent(error_of(row.predicted_memory_bytes, row.measured_memory_bytes)),
         fmt::format("{:.3f} -> {:.3f}", row.first_loss, row.last_loss)});
  }
  return table;
}

}  // namespace

std::string to_text(const Trial& trial) {
  if (trial.rows.empty()) return {};
  return to_text(table_of(trial)) + "\n" + findings(trial);
}

std::string to_markdown(const Trial& trial) {
  if (trial.rows.empty()) return {};
  const Table table = table_of(trial);
  std::string text, rule;
  for (const Column& column : table.columns) {
    text += fmt::format("| {} ", column.title);
    rule += column.align == Align::Left ? "| --- " : "| ---: ";
  }
  text += "|\n" + rule + "|\n";
  for (const auto& row : table.rows) {
    for (const std::string& cell : row) text += fmt::format("| {} ", markdown_text(cell));
    text += "|\n";
  }
  return text + "\n```text\n" + findings(trial) + "```\n";
}

std::string to_csv(const Trial& trial) {
  std::string text =
      "name,model,plan,ranks,predicted_s,measured_s,p10_s,p90_s,steps,predicted_bytes,"
      "measured_bytes,first_loss,last_loss,slowdown,other_cores\n";
  for (const TrialRow& row : trial.rows)
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{:.0f},{:.0f},{},{},{},{}\n", csv_cell(row.name),
        csv_cell(row.plan.model.name), csv_cell(describe(row.plan)), row.plan.parallel.world_size(),
        row.predicted_s, row.measured_s, row.p10_s, row.p90_s, row.steps,
        row.predicted_memory_bytes, row.measured_memory_bytes, row.first_loss, row.last_loss,
        row.slowdown ? fmt::format("{}", *row.slowdown) : "", row.machine.other_cores);
  return text;
}

std::string to_json(const Trial& trial) {
  Json rows = Json::array();
  for (const TrialRow& row : trial.rows)
    rows.push_back({{"name", row.name},
                    {"plan", describe(row.plan)},
                    {"ranks", row.plan.parallel.world_size()},
                    {"predicted_step_time_s", row.predicted_s},
                    {"measured_step_time_s", row.measured_s},
                    {"p10_s", row.p10_s},
                    {"p90_s", row.p90_s},
                    {"steps", row.steps},
                    {"error", error_of(row.predicted_s, row.measured_s)},
                    {"predicted_memory_bytes", row.predicted_memory_bytes},
                    {"measured_memory_bytes", row.measured_memory_bytes},
                    {"first_loss", row.first_loss},
                    {"last_loss", row.last_loss},
                    {"slowdown", row.slowdown ? Json(*row.slowdown) : Json(nullptr)},
                    {"other_cores", row.machine.other_cores}});
  Json root{{"schema_version", 1},
            {"rounds", trial.rounds},
            {"rows", std::move(rows)},
            {"mean_absolute_error", mean_absolute_error(trial)}};
  if (const auto then = mean_absolute_error_at_calibrated_speed(trial))
    root["mean_absolute_error_at_calibrated_speed"] = *then;
  if (const auto naive = naive_mean_absolute_error(trial))
    root["naive_mean_absolute_error"] = *naive;
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
