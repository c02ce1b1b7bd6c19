#include "reports/validation_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

std::string signed_percent(double fraction) {
  return fmt::format("{:+.1f} %", 100 * fraction);
}

std::string plain_percent(double fraction) {
  return fmt::format("{:.1f} %", 100 * fraction);
}

void append_errors(std::vector<std::string>& cells, const sim::ErrorSummary& errors) {
  cells.insert(cells.end(), {std::to_string(errors.rows), std::to_string(errors.families),
                             plain_percent(errors.mean_absolute), signed_percent(errors.bias),
                             plain_percent(errors.median), plain_percent(errors.p90),
                             plain_percent(errors.maximum)});
}

std::vector<Column> error_columns() {
  return {{"suite", Align::Left},
          {"rows"},
          {"families"},
          {"MAPE"},
          {"bias"},
          {"median"},
          {"p90"},
          {"max"}};
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

template <class T>
std::string number(const std::optional<T>& value) {
  return value ? fmt::format("{:.6g}", *value) : "";
}

Json errors_json(const sim::ErrorSummary& errors) {
  return {{"rows", errors.rows},  {"families", errors.families}, {"mape", errors.mean_absolute},
          {"bias", errors.bias},  {"median", errors.median},     {"p90", errors.p90},
          {"max", errors.maximum}};
}

}  // namespace

std::string to_text(const ValidationReport& report) {
  Table times{.columns = error_columns()};
  times.columns.insert(times.columns.end(),
                       {{"groups"}, {"mean regret"}, {"max regret"}, {"pairs in order"}});
  Table memories{.columns = error_columns()};
  memories.columns.push_back({"said not to fit"});
  for (const sim::SuiteSummary& suite : report.suites) {
    std::vector<std::string> cells{suite.suite};
    append_errors(cells, suite.step_time);
    if (suite.choice.groups > 0)
      cells.insert(
          cells.end(),
          {std::to_string(suite.choice.groups), plain_percent(suite.choice.mean_regret),
           plain_percent(suite.choice.largest_regret), plain_percent(suite.choice.ordered_pairs)});
    times.rows.push_back(cells);
    cells = {suite.suite};
    append_errors(cells, suite.memory);
    cells.push_back(std::to_string(suite.misfits));
    memories.rows.push_back(cells);
  }
  std::string text = "step time (averaged within a family first)\n" + to_text(times, 1) +
                     "\npeak memory\n" + to_text(memories, 1);
  std::string unpredicted;
  for (std::size_t i = 0; i < report.rows.size(); ++i)
    if (!report.predictions[i].prediction)
      unpredicted += fmt::format(" {}: {}\n", report.rows[i].id, report.predictions[i].note);
  text += unpredicted.empty() ? "\nevery row was predicted\n" : "\nnot predicted\n" + unpredicted;
  text += fmt::format("{} fitted constants\n", report.num_constants);
  return text;
}

std::string to_csv(const ValidationReport& report) {
  std::string csv =
      "id,family,suite,step_time_s,predicted_step_time_s,error,peak_mem_gib,"
      "predicted_peak_mem_gib,memory_error,fits,note\n";
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& row = report.rows[i];
    const auto& own = report.predictions[i];
    csv += fmt::format("{},{},{},{},", quoted(row.id), quoted(row.family), quoted(row.suite),
                       number(row.step_time_s));
    if (own.prediction)
      csv += fmt::format("{:.6g},{},{},{},{},{},{}\n", own.prediction->step_time_s,
                         number(own.error), number(row.peak_mem_gib), number(own.predicted_mem_gib),
                         number(own.memory_error), own.prediction->memory.fits() ? "yes" : "no",
                         quoted(own.note));
    else
      csv += fmt::format(",,{},,,,{}\n", number(row.peak_mem_gib), quoted(own.note));
  }
  return csv;
}

std::string parts_csv(const ValidationReport& report) {
  std::string csv =
      "id,measured_s,predicted_s,compute_s,tensor_s,host_s,pipeline_s,data_parallel_s,optimizer_s,"
      "overhead_s,parameters_gib,gradients_gib,optimizer_gib,activations_gib,transient_gib\n";
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& own = report.predictions[i];
    if (!own.prediction) continue;
    const sim::RunBreakdown& s = own.prediction->seconds;
    const sim::RunMemory& m = own.prediction->memory;
    csv += fmt::format("{},{}", quoted(report.rows[i].id), number(report.rows[i].step_time_s));
    for (const double part : {own.prediction->step_time_s, s.compute, s.tensor, s.host, s.pipeline,
                              s.data_parallel, s.optimizer, s.overhead})
      csv += fmt::format(",{:.6g}", part);
    for (const double bytes : {m.parameters, m.gradients, m.optimizer, m.activations, m.transient})
      csv += fmt::format(",{:.4f}", bytes / kGib);
    csv += "\n";
  }
  return csv;
}

std::string to_json(const ValidationReport& report) {
  Json suites = Json::array();
  for (const sim::SuiteSummary& suite : report.suites)
    suites.push_back({{"suite", suite.suite},
                      {"step_time", errors_json(suite.step_time)},
                      {"memory", errors_json(suite.memory)},
                      {"groups", suite.choice.groups},
                      {"mean_regret", suite.choice.mean_regret},
                      {"largest_regret", suite.choice.largest_regret},
                      {"ordered_pairs", suite.choice.ordered_pairs},
                      {"said_not_to_fit", suite.misfits},
                      {"unpredicted", suite.unpredicted}});
  return Json{{"suites", suites}, {"num_constants", report.num_constants}}.dump(2) + "\n";
}

}  // namespace meshplan::reports
