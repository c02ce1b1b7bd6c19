#include "terms_table.hpp"

#include <fmt/format.h>

namespace meshplan::reports {

std::string terms_text(const std::vector<sim::PredictionTerm>& terms, double step_time_s,
                       int stage) {
  const sim::Interval interval = sim::interval_of(terms, step_time_s);
  return fmt::format("80 % interval {:.4g} to {:.4g} s; what it is made of, on stage {}:\n{}",
                     interval.low_s, interval.high_s, stage,
                     to_text(terms_table(terms, step_time_s), 1));
}

std::string timed_text(const sim::TimedShares& timed) {
  return fmt::format(
      " timed near their shapes on such a device: {:.0f} % of matrix products, {:.0f} % of "
      "attention; formulas say the rest\n",
      100 * timed.products, 100 * timed.attention);
}

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
