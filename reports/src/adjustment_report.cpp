#include "reports/adjustment_report.hpp"

#include <cmath>
#include <fmt/format.h>

#include "planner/search/reasons.hpp"
#include "reports/table.hpp"
#include "sim/engine/prediction_terms.hpp"

namespace meshplan::reports {
namespace {

/// "+3.1 % +- 2.0 %": a factor's logarithm, and half of its 80 % interval.
std::string factor_text(double mean, double sigma) {
  return fmt::format("{} +- {}", signed_percent(std::expm1(mean)),
                     percent(sim::half_width_80(sigma)));
}

}  // namespace

std::string anchors_in_words(const sim::Adjustment& adjustment) {
  const std::vector<sim::Anchor>& anchors = adjustment.anchors();
  if (anchors.size() == 1) return "one measured run, " + anchors.front().source;
  return fmt::format("{} measured runs, the first {}", anchors.size(), anchors.front().source);
}

std::string to_text(const sim::Adjustment& adjustment) {
  const sim::AnchoredTo& of = adjustment.of();
  Table anchors{.columns = {{"anchor", Align::Left},
                            {"measured"},
                            {"predicted"},
                            {"error"},
                            {"adjusted"},
                            {"error"},
                            {"configuration", Align::Left}}};
  for (const sim::Anchor& anchor : adjustment.anchors()) {
    const double adjusted_s = adjustment.adjusted_s(anchor);
    anchors.rows.push_back({anchor.source, planner::format_seconds(anchor.measured_s),
                            planner::format_seconds(anchor.predicted_s),
                            signed_percent(anchor.predicted_s / anchor.measured_s - 1),
                            planner::format_seconds(adjusted_s),
                            signed_percent(adjusted_s / anchor.measured_s - 1), anchor.errors.run});
  }
  Table factors{.columns = {{"takes longer than predicted", Align::Left},
                            {"before"},
                            {"after"},
                            {"shared by", Align::Left}}};
  for (const sim::Factor& factor : adjustment.factors())
    factors.rows.push_back({factor.term, factor_text(0, factor.prior_sigma),
                            factor_text(factor.mean, factor.sigma), factor.shared_by});
  return fmt::format(
      "software  {}\ncluster   {}\nmodel     {} in {}\n\nmeasured runs\n{}\n"
      "what they say (80 % intervals)\n{}",
      of.software, of.cluster, of.model, of.precision, to_text(anchors, 1), to_text(factors, 1));
}

}  // namespace meshplan::reports
