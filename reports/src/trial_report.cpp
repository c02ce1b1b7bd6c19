#include "reports/trial_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "planner/space.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

double error_of(double predicted, double measured) {
  return predicted / measured - 1;
}

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f} %", fraction * 100);
}

/// The fastest measured plan of one rank.
const TrialRow* one_rank(const Trial& trial) {
  const TrialRow* best = nullptr;
  for (const TrialRow& row : trial.rows)
    if (row.plan.parallel.world_size() == 1 &&
        (best == nullptr || row.measured_s < best->measured_s))
      best = &row;
  return best;
}

double naive_prediction(const TrialRow& row, const TrialRow& single) {
  return single.measured_s / row.plan.parallel.world_size();
}

std::string describe(const program::Plan& plan) {
  std::string text =
      fmt::format("{} mbs{}", program::to_string(plan.parallel), plan.micro_batch_size);
  if (plan.recompute.kind == program::RecomputeKind::Full) text += " full-recompute";
  if (plan.recompute.kind == program::RecomputeKind::Selective) text += " selective-recompute";
  if (plan.parallel.pp > 1 && plan.schedule != program::ScheduleKind::OneFOneB)
    text += fmt::format(" {}", planner::name_of(plan.schedule));
  return text;
}

std::string findings(const Trial& trial) {
  const auto by_measured = [](const TrialRow& row) { return row.measured_s; };
  const auto by_predicted = [](const TrialRow& row) { return row.predicted_s; };
  const TrialRow& fastest = *std::ranges::min_element(trial.rows, {}, by_measured);
  const TrialRow& slowest = *std::ranges::max_element(trial.rows, {}, by_measured);
  const TrialRow& choice = *std::ranges::min_element(trial.rows, {}, by_predicted);
  const TrialRow& worst = *std::ranges::max_element(trial.rows, {}, [](const TrialRow& row) {
    return std::abs(error_of(row.predicted_s, row.measured_s));
  });
  std::string text = fmt::format(
      "worst prediction  {}: {}\nfastest           {} at {:.1f} ms; the slowest takes {:.2f} x\n"
      "first choice      {}: {} slower than the fastest\n",
      describe(worst.plan), signed_percent(error_of(worst.predicted_s, worst.measured_s)),
      describe(fastest.plan), fastest.measured_s * kMilliseconds,
      slowest.measured_s / fastest.measured_s, describe(choice.plan),
      fmt::format("{:.1f} %", (choice.measured_s / fastest.measured_s - 1) * 100));
  if (const auto naive = naive_mean_absolute_error(trial))
    text += fmt::format("naive predictor   one rank's time / ranks: {:.1f} % mean absolute error\n",
                        *naive * 100);
  return text +
         fmt::format("mean absolute step-time error: {:.1f} %\n", mean_absolute_error(trial) * 100);
}

}  // namespace

double mean_absolute_error(const Trial& trial) {
  double sum = 0;
  for (const TrialRow& row : trial.rows) sum += std::abs(error_of(row.predicted_s, row.measured_s));
  return trial.rows.empty() ? 0 : sum / static_cast<double>(trial.rows.size());
}

std::optional<double> naive_mean_absolute_error(const Trial& trial) {
  const TrialRow* single = one_rank(trial);
  if (single == nullptr) return std::nullopt;
  double sum = 0;
  int count = 0;
  for (const TrialRow& row : trial.rows) {
    if (row.plan.parallel.world_size() == 1) continue;
    sum += std::abs(error_of(naive_prediction(row, *single), row.measured_s));
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

std::string to_text(const Trial& trial) {
  if (trial.rows.empty()) return {};
  const TrialRow* single = one_rank(trial);
  Table table{.columns = {{"plan", Align::Left},
                          {"ranks"},
                          {"predicted ms"},
                          {"measured ms"},
                          {"p10..p90"},
                          {"steps"},
                          {"error"},
                          {"naive ms"},
                          {"error"},
                          {"predicted MiB"},
                          {"measured MiB"},
                          {"error"},
                          {"loss"}}};
  for (const TrialRow& row : trial.rows) {
    const double naive = single == nullptr ? 0 : naive_prediction(row, *single);
    table.rows.push_back(
        {describe(row.plan), std::to_string(row.plan.parallel.world_size()),
         fmt::format("{:.1f}", row.predicted_s * kMilliseconds),
         fmt::format("{:.1f}", row.measured_s * kMilliseconds),
         fmt::format("{:.0f}..{:.0f}", row.p10_s * kMilliseconds, row.p90_s * kMilliseconds),
         std::to_string(row.steps), signed_percent(error_of(row.predicted_s, row.measured_s)),
         single == nullptr ? "-" : fmt::format("{:.1f}", naive * kMilliseconds),
         single == nullptr ? "-" : signed_percent(error_of(naive, row.measured_s)),
         fmt::format("{:.1f}", row.predicted_memory_bytes / kMib),
         fmt::format("{:.1f}", row.measured_memory_bytes / kMib),
         signed_percent(error_of(row.predicted_memory_bytes, row.measured_memory_bytes)),
         fmt::format("{:.3f} -> {:.3f}", row.first_loss, row.last_loss)});
  }
  return to_text(table) + "\n" + findings(trial);
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
                    {"last_loss", row.last_loss}});
  Json root{{"schema_version", 1},
            {"rounds", trial.rounds},
            {"rows", std::move(rows)},
            {"mean_absolute_error", mean_absolute_error(trial)}};
  if (const auto naive = naive_mean_absolute_error(trial))
    root["naive_mean_absolute_error"] = *naive;
  return root.dump(2) + "\n";
}

}  // namespace meshplan::reports
