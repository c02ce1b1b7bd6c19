#include "sim/fit/operator_validation.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

#include "fit/device_works.hpp"
#include "fit/upper_median.hpp"
#include "prices/device_speeds.hpp"
#include "prices/measured_shapes.hpp"

namespace meshplan::sim {
namespace {

constexpr double kFormulaTarget = 0.12;
constexpr double kExpertsTarget = 0.2;
constexpr double kInterpolatedTarget = 0.05;
constexpr double kLeftOutTimes = 1.5;  // of the formula's target

/// Predicted over measured of every row, in their order.
std::vector<double> ratios_of(const DeviceWorks& works, const OperatorConstants& constants) {
  const Cluster cluster = with_operator_speeds(works.data_sheet, constants);
  std::vector<double> ratios;
  for (const MeasuredWork* row : works.rows)
    ratios.push_back(work_seconds(*row, cluster, constants) / row->seconds);
  return ratios;
}

/// Each row's ratio after what its nearest neighbours of other shapes say of the formula.
std::vector<double> interpolated_ratios(const DeviceWorks& works,
                                        const std::vector<double>& ratios) {
  MeasuredShapes shapes;
  for (std::size_t i = 0; i < ratios.size(); ++i) shapes.add(*works.rows[i], 1 / ratios[i]);
  std::vector<double> result;
  for (std::size_t i = 0; i < ratios.size(); ++i)
    result.push_back(ratios[i] * shapes.of(*works.rows[i], MeasuredShapes::Shape::Others).factor);
  return result;
}

/// The same from the tables that the presets hold.
std::vector<double> shipped_ratios(const DeviceWorks& works, const std::vector<double>& ratios) {
  std::vector<double> result;
  for (std::size_t i = 0; i < ratios.size(); ++i)
    result.push_back(
        ratios[i] *
        shape_correction(*works.rows[i], works.device, MeasuredShapes::Shape::Others).factor);
  return result;
}

/// Ratios of one file and device: by formula, from neighbours, with the device left out, from what
/// the presets hold.
struct DeviceRatios {
  std::vector<double> formula, interpolated, left_out, shipped;
};

OperatorErrors errors_of_group(const DeviceWorks& works, const DeviceRatios& ratios,
                               const std::string& group) {
  OperatorErrors errors{.file = works.file, .device = works.device, .group = group};
  std::vector<double> formula, signed_formula, interpolated, left_out, shipped;
  for (std::size_t i = 0; i < works.rows.size(); ++i) {
    if (!group.empty() && works.rows[i]->group != group) continue;
    formula.push_back(std::abs(ratios.formula[i] - 1));
    signed_formula.push_back(ratios.formula[i] - 1);
    interpolated.push_back(std::abs(ratios.interpolated[i] - 1));
    left_out.push_back(std::abs(ratios.left_out[i] - 1));
    shipped.push_back(std::abs(ratios.shipped[i] - 1));
  }
  errors.rows = static_cast<int>(formula.size());
  errors.formula = upper_median(formula);
  errors.bias = upper_median(signed_formula);
  errors.interpolated = upper_median(interpolated);
  errors.left_out = upper_median(left_out);
  errors.shipped = upper_median(shipped);
  return errors;
}

/// Constants of a fit without the device; of its architecture, if it was the only one, what the
/// others say.
OperatorConstants constants_without(const std::string& device, const std::vector<WorkTable>& tables,
                                    const std::vector<ConstantRecord>& records,
                                    const ForEach& for_each) {
  std::vector<WorkTable> others;
  std::set<Architecture> known;
  for (const WorkTable& table : tables) {
    others.push_back({.file = table.file, .rows = {}});
    for (const MeasuredWork& row : table.rows) {
      if (row.device == device) continue;
      others.back().rows.push_back(row);
    }
    for (const DeviceWorks& works : by_device(others.back()))
      known.insert(works.data_sheet.device.architecture);
  }
  const OperatorConstants fitted =
      values_of(fit_operators(others, records, for_each), operator_constant_members());
  const Architecture own = load_data_sheet(data_sheet_name(device)).device.architecture;
  return known.contains(own) ? fitted : without_architecture(fitted, own);
}

}  // namespace

std::vector<DeviceWorks> by_device(const WorkTable& table) {
  std::map<std::string, DeviceWorks> devices;
  for (const MeasuredWork& row : table.rows) {
    const std::string sheet = data_sheet_name(row.device);
    if (sheet.empty() || !is_judged(row)) continue;
    const auto [entry, fresh] = devices.try_emplace(row.device);
    DeviceWorks& works = entry->second;
    if (fresh) {
      works = {table.file, row.device, load_data_sheet(sheet), {}};
      works.data_sheet = without_measured_shapes(works.data_sheet);  // formulas are judged
    }
    works.data_sheet = holding(works.data_sheet, row);
    works.rows.push_back(&row);
  }
  std::vector<DeviceWorks> works;
  for (auto& [device, own] : devices) works.push_back(std::move(own));
  return works;
}

OperatorTargets targets_of(const std::string& file) {
  const double formula = file == "moe.csv" ? kExpertsTarget : kFormulaTarget;
  return {formula, kInterpolatedTarget, kLeftOutTimes * formula};
}

OperatorReport validate_operators(const std::vector<WorkTable>& tables,
                                  const std::vector<ConstantRecord>& records,
                                  const ForEach& for_each) {
  std::vector<DeviceWorks> works;
  std::map<std::string, OperatorConstants> without;
  OperatorReport report;
  std::set<std::string> unknown;
  for (const WorkTable& table : tables) {
    for (DeviceWorks& own : by_device(table)) {
      without.try_emplace(own.device);
      works.push_back(std::move(own));
    }
    for (const MeasuredWork& row : table.rows)
      if (data_sheet_name(row.device).empty() && unknown.insert(row.device).second)
        report.unpriced.push_back(row.device + ": no preset holds its data sheet");
  }
  for (auto& [device, constants] : without)
    constants = constants_without(device, tables, records, for_each);
  const OperatorConstants fitted = values_of(records, operator_constant_members());
  std::vector<DeviceRatios> ratios(works.size());
  for_each(works.size(), [&](std::size_t i) {
    ratios[i].formula = ratios_of(works[i], fitted);
    ratios[i].interpolated = interpolated_ratios(works[i], ratios[i].formula);
    ratios[i].shipped = shipped_ratios(works[i], ratios[i].formula);
    ratios[i].left_out = ratios_of(works[i], without.at(works[i].device));
  });
  for (std::size_t i = 0; i < works.size(); ++i) {
    std::set<std::string> groups;
    for (const MeasuredWork* row : works[i].rows) groups.insert(row->group);
    if (groups.size() > 1)
      for (const std::string& group : groups)
        report.errors.push_back(errors_of_group(works[i], ratios[i], group));
    report.errors.push_back(errors_of_group(works[i], ratios[i], ""));
  }
  return report;
}

}  // namespace meshplan::sim
