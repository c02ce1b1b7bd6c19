#include "reports/validation/anchors_report.hpp"

#include <fmt/format.h>

#include "core/csv.hpp"
#include "core/json_fields.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

/// A figure, as files name it.
struct AnchoredFigure {
  const char* name;
  double sim::AnchoredErrors::*value;
};

constexpr AnchoredFigure kAnchoredFigures[] = {
    {"mape_before", &sim::AnchoredErrors::before},
    {"mape_after", &sim::AnchoredErrors::after},
    {"bias_before", &sim::AnchoredErrors::bias_before},
    {"bias_after", &sim::AnchoredErrors::bias_after},
    {"coverage_before", &sim::AnchoredErrors::covered_before},
    {"coverage_after", &sim::AnchoredErrors::covered_after},
    {"half_width_before", &sim::AnchoredErrors::half_width_before},
    {"half_width_after", &sim::AnchoredErrors::half_width_after},
};

/// The rows that count, as text and files name them.
struct AnchoredKind {
  const char* title;
  const char* name;
  sim::AnchoredErrors sim::AnchoredSuite::*errors;
};

constexpr AnchoredKind kAnchoredKinds[] = {
    {"all other rows", "all", &sim::AnchoredSuite::all},
    {"rows whose layers do the same on a device as an anchor's", "equal_layers",
     &sim::AnchoredSuite::equal_layers},
    {"rows with other layers", "other_layers", &sim::AnchoredSuite::other_layers},
};

std::vector<std::string> anchored_cells(const std::string& suite,
                                        const sim::AnchoredErrors& errors) {
  return {suite,
          std::to_string(errors.rows),
          std::to_string(errors.families),
          percent(errors.before),
          percent(errors.after),
          signed_percent(errors.bias_before),
          signed_percent(errors.bias_after),
          percent(errors.covered_before),
          percent(errors.covered_after),
          percent(errors.half_width_before),
          percent(errors.half_width_after)};
}

std::string anchored_text(const std::vector<sim::AnchoredSuite>& suites, const AnchoredKind& kind) {
  const bool all = kind.errors == &sim::AnchoredSuite::all;
  Table table{.columns = {{"suite", Align::Left},
                          {"rows"},
                          {"families"},
                          {"MAPE"},
                          {"after"},
                          {"bias"},
                          {"after"},
                          {"in 80 %"},
                          {"after"},
                          {"half-width"},
                          {"after"}}};
  if (all) table.columns.insert(table.columns.end(), {{"groups"}, {"largest rise"}});
  double count = 0, before = 0, after = 0, rows = 0, covered_before = 0, covered_after = 0;
  for (const sim::AnchoredSuite& suite : suites) {
    const sim::AnchoredErrors& errors = suite.*kind.errors;
    if (errors.rows == 0) continue;
    table.rows.push_back(anchored_cells(suite.suite, errors));
    if (all)
      table.rows.back().insert(
          table.rows.back().end(),
          {std::to_string(suite.groups),
           suite.largest_rise > 0 ? signed_percent(suite.largest_rise) : "none"});
    ++count;
    before += errors.before;
    after += errors.after;
    rows += errors.rows;
    covered_before += errors.rows * errors.covered_before;
    covered_after += errors.rows * errors.covered_after;
  }
  if (count == 0) return fmt::format("\n{}: none\n", kind.title);
  return fmt::format("\n{}\n{} mean of suites {} -> {}; 80 % intervals hold {} -> {} of the rows\n",
                     kind.title, to_text(table, 1), percent(before / count), percent(after / count),
                     percent(covered_before / rows), percent(covered_after / rows));
}

Json anchored_json(const sim::AnchoredErrors& errors) {
  Json own{{"rows", errors.rows}, {"families", errors.families}};
  for (const AnchoredFigure& figure : kAnchoredFigures) own[figure.name] = errors.*figure.value;
  return own;
}

}  // namespace

std::string to_text(const AnchorsReport& report) {
  const std::string anchors =
      report.num_anchors == 1 ? "one run" : fmt::format("{} runs", report.num_anchors);
  if (report.suites.empty())
    return fmt::format(
        "anchored by {}: no row has as many others of its cluster, software, release, model and "
        "precision\n",
        anchors);
  std::string text = fmt::format(
      "anchored by {} of equal cluster, software, release, model and precision: every choice in "
      "turn, the others predicted\n",
      anchors);
  for (const AnchoredKind& kind : kAnchoredKinds) text += anchored_text(report.suites, kind);
  return text;
}

std::string to_json(const AnchorsReport& report) {
  Json suites = Json::array();
  for (const sim::AnchoredSuite& suite : report.suites) {
    Json own{
        {"suite", suite.suite}, {"groups", suite.groups}, {"largest_rise", suite.largest_rise}};
    for (const AnchoredKind& kind : kAnchoredKinds)
      own[kind.name] = anchored_json(suite.*kind.errors);
    suites.push_back(std::move(own));
  }
  return Json{{"anchors", report.num_anchors}, {"suites", std::move(suites)}}.dump(
             2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string to_csv(const AnchorsReport& report) {
  std::string csv = "anchors,suite,of,rows,families";
  for (const AnchoredFigure& figure : kAnchoredFigures) csv += fmt::format(",{}", figure.name);
  csv += "\n";
  for (const sim::AnchoredSuite& suite : report.suites)
    for (const AnchoredKind& kind : kAnchoredKinds) {
      const sim::AnchoredErrors& errors = suite.*kind.errors;
      csv += fmt::format("{},{},{},{},{}", report.num_anchors, csv_cell(suite.suite), kind.name,
                         errors.rows, errors.families);
      for (const AnchoredFigure& figure : kAnchoredFigures)
        csv += fmt::format(",{:.6g}", errors.*figure.value);
      csv += "\n";
    }
  return csv;
}

}  // namespace meshplan::reports
