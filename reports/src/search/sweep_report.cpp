#include "reports/sweep_report.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "planner/search/reasons.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::DevicePoint;
using planner::DeviceSweep;
using planner::RankedPlan;
using planner::TrainingRunAnswer;
using planner::TrainingRunQuestion;

double tokens_of(const program::Plan& plan) {
  return static_cast<double>(plan.workload.global_batch_size * plan.workload.seq_len);
}

std::string plan_name(const RankedPlan& ranked) {
  return planner::describe(planner::candidate_of(ranked.plan));
}

Json plan_json(const RankedPlan& ranked) {
  return {{"plan", plan_name(ranked)},
          {"step_time_s", ranked.step_time_s()},
          {"peak_memory_bytes", ranked.step().peak_memory_bytes},
          {"mfu", ranked.step().mfu}};
}

Json run_json(const TrainingRunAnswer& answer) {
  Json json = {{"steps", answer.steps},
               {"training_s", answer.training_s},
               {"elapsed_s", answer.elapsed_s},
               {"goodput", answer.goodput},
               {"failures", answer.failures},
               {"checkpoint_interval_s", answer.checkpoint_interval_s},
               {"device_hours", answer.device_hours}};
  if (answer.money) json["money"] = *answer.money;
  if (!answer.price_of.empty())
    json["assumed_price"] = {{"usd_per_device_hour", *answer.price_per_device_hour},
                             {"of", answer.price_of}};
  if (answer.energy_kwh) json["energy_kwh"] = *answer.energy_kwh;
  return json;
}

std::string days(double seconds) {
  constexpr double kDay = 86400;
  return seconds < kDay ? planner::format_seconds(seconds)
                        : fmt::format("{:.3g} days", seconds / kDay);
}

std::string devices_text(const DeviceSweep& sweep, std::size_t i) {
  return grouped(sweep.points[i].devices);
}

}  // namespace

std::string assumed_price_text(const TrainingRunQuestion& question) {
  if (question.price_of.empty()) return "";
  return fmt::format("assumed    {:.4g} USD a device and hour ({}; --price-per-gpu-hour)\n",
                     *question.price_per_device_hour, question.price_of);
}

std::string training_run_text(const TrainingRunAnswer& answer) {
  std::string text =
      fmt::format("{} steps, {}, {} device hours", grouped(static_cast<std::int64_t>(answer.steps)),
                  days(answer.elapsed_s), short_count(answer.device_hours));
  if (answer.money) text += fmt::format(", costs {}", short_count(*answer.money));
  if (!answer.price_of.empty()) text += " USD";
  if (answer.energy_kwh) text += fmt::format(", {} kWh", short_count(*answer.energy_kwh));
  if (answer.checkpoint_interval_s > 0)
    text +=
        fmt::format("; {:.3g} failures, goodput {}, a checkpoint every {}", answer.failures,
                    percent(answer.goodput), planner::format_seconds(answer.checkpoint_interval_s));
  return text;
}

std::string to_text(const DeviceSweep& sweep, const std::optional<TrainingRunQuestion>& run) {
  Table table{.columns = {{"devices"},
                          {"step time"},
                          {"tokens/s"},
                          {"per device"},
                          {"MFU"},
                          {"memory"},
                          {run ? "run" : "", Align::Left},
                          {"plan", Align::Left}}};
  std::optional<double> first_rate;
  for (const DevicePoint& point : sweep.points) {
    if (!point.plan) {
      table.rows.push_back({grouped(point.devices), "-", "-", "-", "-", "-", "", point.reason});
      continue;
    }
    const double rate = tokens_of(point.plan->plan) / point.plan->step_time_s();
    if (!first_rate) first_rate = rate / point.devices;
    table.rows.push_back(
        {grouped(point.devices), planner::format_seconds(point.plan->step_time_s()),
         short_count(rate), percent(rate / point.devices / *first_rate),
         percent(point.plan->step().mfu),
         planner::format_bytes(point.plan->step().peak_memory_bytes),
         run ? training_run_text(training_run(*run, *point.plan)) : "", plan_name(*point.plan)});
  }
  std::string text = to_text(table, 1);
  if (sweep.worth_having)
    text += fmt::format(
        "\nworth having: {} devices; up to there each doubling makes a step at least {:g} times as "
        "fast\n",
        devices_text(sweep, *sweep.worth_having), planner::kWorthDoubling);
  if (sweep.fastest)
    text += fmt::format(
        "fastest: {} devices{}\n", devices_text(sweep, *sweep.fastest),
        *sweep.fastest + 1 < sweep.points.size() ? "; more are better left unused" : "");
  if (sweep.fewest_in_time)
    text += fmt::format("in time: {} devices are the fewest\n",
                        devices_text(sweep, *sweep.fewest_in_time));
  if (run) text += assumed_price_text(*run);
  return text;
}

std::string to_json(const DeviceSweep& sweep, const std::optional<TrainingRunQuestion>& run) {
  Json points = Json::array();
  for (const DevicePoint& point : sweep.points) {
    Json one = {{"devices", point.devices}};
    if (point.plan) {
      one.update(plan_json(*point.plan));
      if (run) one["run"] = run_json(training_run(*run, *point.plan));
    } else {
      one["reason"] = point.reason;
    }
    points.push_back(std::move(one));
  }
  Json json = {{"points", std::move(points)}};
  const auto devices = [&](const char* name, std::optional<std::size_t> i) {
    if (i) json[name] = sweep.points[*i].devices;
  };
  devices("worth_having", sweep.worth_having);
  devices("fastest", sweep.fastest);
  devices("fewest_in_time", sweep.fewest_in_time);
  return json.dump(2) + "\n";
}

std::string frontier_text(const std::vector<RankedPlan>& frontier) {
  Table table{.columns = {{"memory"}, {"step time"}, {"slower"}, {"plan", Align::Left}}};
  for (const RankedPlan& ranked : frontier)
    table.rows.push_back(
        {planner::format_bytes(ranked.step().peak_memory_bytes),
         planner::format_seconds(ranked.step_time_s()),
         fmt::format("+{}", percent(ranked.step_time_s() / frontier.front().step_time_s() - 1)),
         plan_name(ranked)});
  return to_text(table, 1) + "each is the fastest plan that needs less memory than the one above\n";
}

std::string frontier_json(const std::vector<RankedPlan>& frontier) {
  Json json = Json::array();
  for (const RankedPlan& ranked : frontier) json.push_back(plan_json(ranked));
  return json.dump(2) + "\n";
}

std::string largest_text(const planner::LargestThatFits& largest, const std::string& what) {
  return fmt::format("{} {} fit: {}, {} a step, {}\n", grouped(largest.value), what,
                     plan_name(largest.plan), planner::format_seconds(largest.plan.step_time_s()),
                     planner::format_bytes(largest.plan.step().peak_memory_bytes));
}

std::string largest_json(const planner::LargestThatFits& largest, const std::string& what) {
  Json json = plan_json(largest.plan);
  json[what] = largest.value;
  return json.dump(2) + "\n";
}

}  // namespace meshplan::reports
