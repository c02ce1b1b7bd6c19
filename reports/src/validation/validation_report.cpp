#include "reports/validation/validation_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/csv.hpp"
#include "core/json_fields.hpp"
#include "core/units.hpp"
#include "reports/table.hpp"
#include "terms_table.hpp"

namespace meshplan::reports {
namespace {

void append_errors(std::vector<std::string>& cells, const sim::ErrorSummary& errors) {
  cells.insert(cells.end(), {std::to_string(errors.rows), std::to_string(errors.families),
                             percent(errors.mean_absolute), signed_percent(errors.bias),
                             percent(errors.median), percent(errors.p90), percent(errors.maximum)});
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

template <class T>
std::string short_number(const std::optional<T>& value) {
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
  times.columns.insert(times.columns.end(), {{"in 80 %"},
                                             {"half-width"},
                                             {"groups"},
                                             {"mean regret"},
                                             {"max regret"},
                                             {"pairs in order"}});
  Table memories{.columns = error_columns()};
  memories.columns.push_back({"said not to fit"});
  for (const sim::SuiteSummary& suite : report.suites) {
    std::vector<std::string> cells{suite.suite};
    append_errors(cells, suite.step_time);
    cells.push_back(percent(suite.intervals.covered));
    cells.push_back(percent(suite.intervals.half_width));
    if (suite.choice.groups > 0)
      cells.insert(cells.end(),
                   {std::to_string(suite.choice.groups), percent(suite.choice.mean_regret),
                    percent(suite.choice.largest_regret), percent(suite.choice.ordered_pairs)});
    times.rows.push_back(cells);
    cells = {suite.suite};
    append_errors(cells, suite.memory);
    cells.push_back(std::to_string(suite.misfits));
    memories.rows.push_back(cells);
  }
  std::string text = "step time (averaged within a family first)\n" + to_text(times, 1) +
                     "\npeak memory\n" + to_text(memories, 1);
  std::string unpredicted, noted;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const sim::RowPrediction& own = report.predictions[i];
    if (!own.note.empty())
      (own.prediction ? noted : unpredicted) +=
          fmt::format(" {}: {}\n", report.rows[i].id, own.note);
  }
  text += unpredicted.empty() ? "\nevery row was predicted\n" : "\nnot predicted\n" + unpredicted;
  if (!noted.empty()) text += "predicted with less than they state\n" + noted;
  const sim::IntervalSummary intervals = sim::intervals_of(report.rows, report.predictions);
  text += fmt::format("80 % intervals hold {} of the rows; median half-width {}\n",
                      percent(intervals.covered), percent(intervals.half_width));
  text += fmt::format("{} fitted constants\n", report.num_constants);
  if (!report.adjusted_by.empty())
    text += fmt::format("{} of {} rows adjusted by {}\n", report.num_adjusted, report.rows.size(),
                        report.adjusted_by);
  return text;
}

std::string explain_text(const sim::PublishedRow& row, const sim::RowPrediction& own,
                         const std::vector<sim::PredictionTerm>& terms,
                         const sim::TimedShares& timed) {
  if (!own.prediction) return fmt::format("{}: not predicted: {}\n", row.id, own.note);
  const double step = own.prediction->step_time_s;
  const double width = own.prediction->half_width_80();
  std::string text = fmt::format("{}: predicted {:.4g} s, 80 % interval {:.4g} to {:.4g} s", row.id,
                                 step, step / (1 + width), step * (1 + width));
  if (row.step_time_s)
    text += fmt::format("; measured {:.4g} s ({})", *row.step_time_s, signed_percent(*own.error));
  return text + "\n" + to_text(terms_table(terms, step), 1) + timed_text(timed);
}

std::string to_csv(const ValidationReport& report) {
  std::string csv =
      "id,family,suite,step_time_s,predicted_step_time_s,error,peak_mem_gib,"
      "predicted_peak_mem_gib,memory_error,fits,note\n";
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& row = report.rows[i];
    const auto& own = report.predictions[i];
    csv += fmt::format("{},{},{},{},", csv_cell(row.id), csv_cell(row.family), csv_cell(row.suite),
                       short_number(row.step_time_s));
    if (own.prediction)
      csv += fmt::format("{:.6g},{},{},{},{},{},{}\n", own.prediction->step_time_s,
                         short_number(own.error), short_number(row.peak_mem_gib),
                         short_number(own.predicted_mem_gib), short_number(own.memory_error),
                         own.prediction->memory.fits() ? "yes" : "no", csv_cell(own.note));
    else
      csv += fmt::format(",,{},,,,{}\n", short_number(row.peak_mem_gib), csv_cell(own.note));
  }
  return csv;
}

std::string parts_csv(const ValidationReport& report) {
  std::string csv =
      "id,measured_s,predicted_s,compute_s,tensor_s,host_s,pipeline_s,data_parallel_s,optimizer_s,"
      "offload_s,overhead_s,products_s,attention_s,starts_s,constants_sigma,relative_sigma,"
      "parameters_gib,"
      "gradients_gib,optimizer_gib,activations_gib,transient_gib\n";
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    const auto& own = report.predictions[i];
    if (!own.prediction) continue;
    const sim::RunBreakdown& s = own.prediction->seconds;
    const sim::RunMemory& m = own.prediction->memory;
    csv +=
        fmt::format("{},{}", csv_cell(report.rows[i].id), short_number(report.rows[i].step_time_s));
    for (const double part :
         {own.prediction->step_time_s, s.compute, s.tensor, s.host, s.pipeline, s.data_parallel,
          s.optimizer, s.offload, s.overhead, s.products, s.attention, s.starts,
          own.prediction->constants_sigma, own.prediction->relative_sigma})
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
                      {"interval_coverage", suite.intervals.covered},
                      {"interval_half_width", suite.intervals.half_width},
                      {"said_not_to_fit", suite.misfits},
                      {"unpredicted", suite.unpredicted}});
  Json json{{"suites", suites}, {"num_constants", report.num_constants}};
  if (!report.adjusted_by.empty()) json["rows_adjusted"] = report.num_adjusted;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_string())
    throw ConfigError(fmt::format("{}: {}: expected a string", where, key));
  return found->get<std::string>();
}

double mape_of(const Json& suite, const std::string& where) {
  const auto time = suite.find("step_time");
  const auto mape = time != suite.end() && time->is_object() ? time->find("mape") : suite.end();
  if (time == suite.end() || !time->is_object() || mape == time->end() || !mape->is_number())
    throw ConfigError(fmt::format("{}: step_time.mape: expected a number", where));
  return mape->get<double>();
}

}  // namespace

std::vector<std::string> worse_suites(const ValidationReport& report, std::string_view committed,
                                      const std::string& file) {
  constexpr double kAllowed = 0.005;
  const Json earlier = parse_json(committed, file);
  const auto suites = earlier.is_object() ? earlier.find("suites") : earlier.end();
  if (suites == earlier.end() || !suites->is_array())
    throw ConfigError(file + ": suites: is missing; expected the output of validate --json");
  std::vector<std::string> known;
  for (const sim::SuiteSummary& suite : report.suites) known.push_back(suite.suite);
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < suites->size(); ++i) {
    const Json& suite = (*suites)[i];
    const std::string where = fmt::format("{}: suites[{}]", file, i);
    const std::string name = text_of(suite, "suite", where);
    const auto found = std::ranges::find(report.suites, name, &sim::SuiteSummary::suite);
    if (found == report.suites.end())
      throw ConfigError(fmt::format("{}: {}", where, unknown_name_message("suite", name, known)));
    const double before = mape_of(suite, where);
    const double now = found->step_time.mean_absolute;
    if (now > before + kAllowed)
      sentences.push_back(fmt::format("suite {}: step-time MAPE {} is worse than the committed {}",
                                      name, percent(now), percent(before)));
  }
  return sentences;
}

ValidationReport left_out_report(const std::vector<sim::PublishedRow>& rows,
                                 const std::vector<sim::LeftOutGroup>& groups) {
  ValidationReport report{.rows = rows,
                          .predictions = std::vector<sim::RowPrediction>(rows.size())};
  for (const sim::LeftOutGroup& group : groups)
    for (const auto& [row, prediction] : group.predictions) report.predictions[row] = prediction;
  report.suites = sim::summarize(report.rows, report.predictions);
  return report;
}

std::string leave_one_out_text(const std::vector<sim::PublishedRow>& rows, sim::LeaveOut by,
                               const std::vector<sim::LeftOutGroup>& groups) {
  Table table{.columns = {{std::string(sim::name_of(by)), Align::Left},
                          {"rows"},
                          {"families"},
                          {"fitted"},
                          {"left out"}}};
  double fitted = 0, left_out = 0, families = 0;
  const ValidationReport report = left_out_report(rows, groups);
  for (const sim::LeftOutGroup& group : groups) {
    table.rows.push_back({group.group, std::to_string(group.rows), std::to_string(group.families),
                          percent(group.fitted), percent(group.left_out)});
    fitted += group.fitted * group.families;
    left_out += group.left_out * group.families;
    families += group.families;
  }
  const sim::IntervalSummary intervals = sim::intervals_of(rows, report.predictions);
  Table suites{
      .columns = {
          {"suite", Align::Left}, {"left-out MAPE"}, {"bias"}, {"in 80 %"}, {"half-width"}}};
  for (const sim::SuiteSummary& suite : report.suites)
    suites.rows.push_back({suite.suite, percent(suite.step_time.mean_absolute),
                           signed_percent(suite.step_time.bias), percent(suite.intervals.covered),
                           percent(suite.intervals.half_width)});
  return fmt::format(
      "leave one {} out of the fit\n{}\n{}families: fitted {}, left out {} ({:.2f} x)\n"
      "80 % intervals hold {} of the left-out rows\n",
      sim::name_of(by), to_text(table, 1), to_text(suites, 1), percent(fitted / families),
      percent(left_out / families), left_out / fitted, percent(intervals.covered));
}

std::string ablation_text(const std::vector<sim::SuiteSummary>& all,
                          const std::vector<sim::Ablation>& ablations) {
  Table table{.columns = {{"without", Align::Left}}};
  std::vector<std::string> first{"(all constants)"};
  for (const sim::SuiteSummary& suite : all) {
    table.columns.push_back({suite.suite});
    first.push_back(percent(suite.step_time.mean_absolute));
  }
  table.rows.push_back(first);
  for (const sim::Ablation& ablation : ablations) {
    std::vector<std::string> cells{ablation.constant};
    for (const sim::SuiteSummary& suite : ablation.suites)
      cells.push_back(percent(suite.step_time.mean_absolute));
    table.rows.push_back(cells);
  }
  return "step-time MAPE without one constant (at its neutral value, the others fitted again)\n" +
         to_text(table, 1);
}

}  // namespace meshplan::reports
