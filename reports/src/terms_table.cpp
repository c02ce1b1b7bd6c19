#include "terms_table.hpp"

#include <fmt/format.h>

namespace meshplan::reports {

Table terms_table(const std::vector<sim::PredictionTerm>& terms, double step_time_s) {
  Table table{.columns = {{"term", Align::Left},
                          {"seconds"},
                          {"share"},
                          {"80 % interval"},
                          {"adds"},
                          {"source", Align::Left},
                          {"measure to know it better", Align::Left}}};
  for (const sim::PredictionTerm& term : terms) {
    const double share = term.seconds / step_time_s;
    const double width = 100 * sim::kDeviations80 * term.sigma;
    table.rows.push_back({std::string(term.name), fmt::format("{:.4g}", term.seconds),
                          fmt::format("{:.1f} %", 100 * share), fmt::format("+- {:.1f} %", width),
                          fmt::format("+- {:.1f} %", width * share),
                          std::string(name_of(term.source)), std::string(term.measure)});
  }
  return table;
}

}  // namespace meshplan::reports
