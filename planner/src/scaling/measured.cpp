#include "planner/scaling/measured.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/limits.hpp"
#include "core/parse_number.hpp"
#include "core/statistics.hpp"
#include "program/cost/model_flops.hpp"

namespace meshplan::planner {
namespace {

const std::vector<std::string> kMeasuredColumns{"devices", "step_time_s", "tokens_per_s"};

/// Where each column stands.
std::map<std::string, std::size_t> header_of(const CsvRow& row, const std::string& file) {
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    const std::string& name = row.cells[i];
    if (std::ranges::find(kMeasuredColumns, name) == kMeasuredColumns.end())
      throw ConfigError(fmt::format("{}:{}: {}", file, row.line,
                                    unknown_name_message("column", name, kMeasuredColumns)));
    if (!columns.emplace(name, i).second)
      throw ConfigError(
          fmt::format("{}:{}: column '{}' stands twice in the header", file, row.line, name));
  }
  if (!columns.contains("devices"))
    throw ConfigError(fmt::format("{}:{}: column 'devices' is missing", file, row.line));
  if (columns.contains("step_time_s") == columns.contains("tokens_per_s"))
    throw ConfigError(fmt::format(
        "{}:{}: expected one of the columns 'step_time_s' and 'tokens_per_s' beside 'devices'",
        file, row.line));
  return columns;
}

template <class T>
T required_number(std::optional<T> number, const CsvRow& row, const std::string& column,
                  const std::string& cell, const std::string& file, const std::string& expected) {
  if (number) return *number;
  throw ConfigError(
      fmt::format("{}:{}: column {}: '{}', expected {}", file, row.line, column, cell, expected));
}

MeasuredSize run_of(const CsvRow& row, const std::map<std::string, std::size_t>& columns,
                    const std::string& file) {
  constexpr double kLeast = 1e-9, kMostTokens = 1e18;
  if (row.cells.size() != columns.size())
    throw ConfigError(fmt::format("{}:{}: {} cells, expected {} as in the header", file, row.line,
                                  row.cells.size(), columns.size()));
  MeasuredSize run;
  for (const auto& [name, index] : columns) {
    const std::string& cell = row.cells[index];
    if (name == "devices")
      run.devices = required_number(
          parse_integer(cell, 1, static_cast<int>(limits::kRanks)), row, name, cell, file,
          fmt::format("an integer from 1 to {}", std::int64_t{limits::kRanks}));
    else if (name == "step_time_s")
      run.step_time_s = required_number(parse_number(cell, kLeast, limits::kSeconds), row, name,
                                        cell, file, "seconds, more than 0");
    else
      run.tokens_per_s = required_number(parse_number(cell, kLeast, kMostTokens), row, name, cell,
                                         file, "tokens a second of all devices, more than 0");
  }
  return run;
}

std::size_t index_of(const ScalingCurve& curve, int devices) {
  const auto found = std::ranges::find(curve.points, devices, &ScalingPoint::devices);
  require_invariant(found != curve.points.end(), "the curve has all sizes that were measured");
  return static_cast<std::size_t>(found - curve.points.begin());
}

double seconds_of(const MeasuredSize& run, const ScalingPoint& point, const std::string& file) {
  if (run.step_time_s) return *run.step_time_s;
  if (!point.is_valid())
    throw ConfigError(
        fmt::format("{}: tokens_per_s of {} devices: there is no such plan ({}), so the tokens of "
                    "its step are not known; give step_time_s",
                    file, run.devices, point.message));
  const program::Workload& workload = point.figures->plan.workload;
  return static_cast<double>(workload.global_batch_size * workload.seq_len) / *run.tokens_per_s;
}

/// Model FLOPs of a step; of points that have a plan.
double work_of(const ScalingPoint& point) {
  return program::model_flops_per_step(point.figures->plan);
}

void set_measured_ratios(MeasuredCurve& measured, const ScalingCurve& curve) {
  const auto base = std::ranges::find_if(
      measured.points, [](const MeasuredPoint& point) { return point.point.has_value(); });
  if (base == measured.points.end()) return;
  const MeasuredPoint first = *base;
  std::vector<SpeedUp> seen;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < measured.points.size(); ++i) {
    MeasuredPoint& point = measured.points[i];
    if (!point.point) continue;
    const double scale = static_cast<double>(point.devices) / first.devices;
    point.speed_up = work_of(curve.points[*point.point]) / point.step_time_s /
                     (work_of(curve.points[*first.point]) / first.step_time_s);
    point.efficiency = point.speed_up / scale;
    point.serial = serial_part(curve.request.mode, {scale, point.speed_up});
    seen.push_back({scale, point.speed_up});
    index.push_back(i);
  }
  measured.serial = fit_serial(curve.request.mode, seen);
  if (measured.serial) measured.serial->worst = index[measured.serial->worst];
}

}  // namespace

std::vector<MeasuredSize> parse_measured_runs(std::string_view text, const std::string& file) {
  const std::vector<CsvRow> rows = parse_csv_rows(text, file);
  if (rows.empty())
    throw ConfigError(fmt::format(
        "{}: empty; expected a header 'devices,step_time_s' and a row for each run", file));
  const std::map<std::string, std::size_t> columns = header_of(rows.front(), file);
  if (rows.size() == 1) throw ConfigError(fmt::format("{}: no row below the header", file));
  std::vector<MeasuredSize> runs;
  for (std::size_t i = 1; i < rows.size(); ++i) runs.push_back(run_of(rows[i], columns, file));
  return runs;
}

std::vector<int> sizes_of(const std::vector<MeasuredSize>& runs) {
  std::set<int> sizes;
  for (const MeasuredSize& run : runs) sizes.insert(run.devices);
  return {sizes.begin(), sizes.end()};
}

MeasuredCurve beside(const ScalingCurve& curve, const std::vector<MeasuredSize>& runs,
                     const std::string& file) {
  std::map<int, std::vector<double>> times;
  for (const MeasuredSize& run : runs)
    times[run.devices].push_back(seconds_of(run, curve.points[index_of(curve, run.devices)], file));
  MeasuredCurve measured;
  for (auto& [devices, seconds] : times) {
    std::ranges::sort(seconds);
    MeasuredPoint point{.devices = devices,
                        .runs = static_cast<int>(seconds.size()),
                        .step_time_s = median(seconds),
                        .low_s = seconds.front(),
                        .high_s = seconds.back()};
    const std::size_t index = index_of(curve, devices);
    if (const auto& figures = curve.points[index].figures) {
      const sim::Interval interval = figures->interval();
      point.point = index;
      point.error = figures->step.step_time_s / point.step_time_s - 1;
      point.inside = interval.low_s <= point.step_time_s && point.step_time_s <= interval.high_s;
      measured.mean_absolute_error += std::abs(point.error);
      measured.inside += point.inside ? 1 : 0;
      ++measured.predicted;
    }
    measured.points.push_back(point);
  }
  if (measured.predicted > 0) measured.mean_absolute_error /= measured.predicted;
  set_measured_ratios(measured, curve);
  return measured;
}

}  // namespace meshplan::planner
