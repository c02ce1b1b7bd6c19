#include "reports/validation/operator_report.hpp"

#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/json_fields.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

/// The medians of a row of the report, as its JSON names them.
struct OperatorMedian {
  const char* key;
  double sim::OperatorErrors::*member;
};
constexpr std::array kOperatorMedians{
    OperatorMedian{"formula", &sim::OperatorErrors::formula},
    OperatorMedian{"interpolated", &sim::OperatorErrors::interpolated},
    OperatorMedian{"left_out", &sim::OperatorErrors::left_out},
    OperatorMedian{"shipped", &sim::OperatorErrors::shipped}};

std::string name_of_row(const std::string& file, const std::string& device,
                        const std::string& group) {
  return fmt::format("{} {}{}{}", file, device, group.empty() ? "" : " ", group);
}

}  // namespace

std::string to_text(const sim::OperatorReport& report) {
  Table table{.columns = {{"file", Align::Left},
                          {"device", Align::Left},
                          {"dtype", Align::Left},
                          {"rows"},
                          {"formula"},
                          {"bias"},
                          {"shape left out"},
                          {"device left out"},
                          {"presets' shapes"},
                          {"targets", Align::Left}}};
  for (const sim::OperatorErrors& own : report.errors) {
    const sim::OperatorTargets targets = sim::targets_of(own.file);
    const bool met = own.formula <= targets.formula && own.interpolated <= targets.interpolated &&
                     own.left_out <= targets.left_out;
    table.rows.push_back({own.file, own.device, own.group.empty() ? "all" : own.group,
                          grouped(own.rows), percent(own.formula), signed_percent(own.bias),
                          percent(own.interpolated), percent(own.left_out), percent(own.shipped),
                          own.group.empty() ? (met ? "met" : "not met") : ""});
  }
  std::string text =
      "median size of predicted / measured - 1, operators alone\n" + to_text(table, 1);
  text +=
      "targets: formula 12 % (moe.csv 20 %), a shape left out 5 %, a device left out 1.5 times the "
      "formula's\npresets' shapes: corrected by the nearest others of the tables that the presets "
      "hold "
      "(sim/operators; none of experts)\n";
  for (const std::string& sentence : report.unpriced) text += "not priced: " + sentence + "\n";
  return text;
}

std::string to_json(const sim::OperatorReport& report) {
  Json errors = Json::array();
  for (const sim::OperatorErrors& own : report.errors) {
    Json row{{"file", own.file},
             {"device", own.device},
             {"dtype", own.group},
             {"rows", own.rows},
             {"bias", own.bias}};
    for (const OperatorMedian& median : kOperatorMedians) row[median.key] = own.*median.member;
    errors.push_back(row);
  }
  return Json{{"operators", errors}, {"not_priced", report.unpriced}}.dump(
             2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::vector<std::string> worse_operators(const sim::OperatorReport& report,
                                         std::string_view committed, const std::string& file) {
  constexpr double kAllowed = 0.005;
  const Json earlier = parse_json(committed, file);
  const auto rows = earlier.is_object() ? earlier.find("operators") : earlier.end();
  if (rows == earlier.end() || !rows->is_array())
    throw ConfigError(file + ": operators: is missing; expected the output of validate --json");
  std::vector<std::string> sentences;
  for (const Json& row : *rows) {
    const auto text = [&](const char* key) {
      const auto found = row.is_object() ? row.find(key) : row.end();
      if (found == row.end() || !found->is_string())
        throw ConfigError(fmt::format("{}: operators.{}: expected a string", file, key));
      return found->get<std::string>();
    };
    const std::string name = name_of_row(text("file"), text("device"), text("dtype"));
    for (const sim::OperatorErrors& own : report.errors) {
      if (name_of_row(own.file, own.device, own.group) != name) continue;
      for (const OperatorMedian& median : kOperatorMedians) {
        const auto before = row.find(median.key);
        if (before == row.end() || !before->is_number())
          throw ConfigError(fmt::format("{}: operators.{}: expected a number", file, median.key));
        if (own.*median.member > before->get<double>() + kAllowed)
          sentences.push_back(fmt::format("{}: median error ({}) {} is worse than the committed {}",
                                          name, median.key, percent(own.*median.member),
                                          percent(before->get<double>())));
      }
    }
  }
  return sentences;
}

}  // namespace meshplan::reports
