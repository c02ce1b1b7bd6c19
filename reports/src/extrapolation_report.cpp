#include "reports/extrapolation_report.hpp"

#include <fmt/format.h>

#include "core/units.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

constexpr std::size_t kMostRows = 6;

std::string size_text(double size, bool message) {
  return fmt::format("{}{}", short_count(size), message ? "B" : "");
}

}  // namespace

std::vector<sim::Extrapolation> extrapolations_of(const program::Plan& plan) {
  if (plan.cluster_json.empty()) return {};
  return sim::extrapolations(plan, sim::parse_cluster(plan.cluster_json, "the plan's cluster"));
}

std::string to_text(const std::vector<sim::Extrapolation>& extrapolations,
                    const std::optional<sim::Interval>& interval) {
  if (extrapolations.empty()) return {};
  Table table{.columns = {{"", Align::Left}, {"measured"}, {"asked"}, {"beyond"}, {"ms a step"}}};
  for (const sim::Extrapolation& one : extrapolations) {
    if (table.rows.size() == kMostRows) break;
    table.rows.push_back({one.what,
                          fmt::format("{} to {}", size_text(one.sizes.least, one.message),
                                      size_text(one.sizes.most, one.message)),
                          size_text(one.sizes.asked, one.message),
                          fmt::format("{:.3g} x", one.sizes.beyond()),
                          fmt::format("{:.2f}", one.seconds * kMilliseconds)});
  }
  std::string text = fmt::format(
      "\nwarning: prices of more than {:g} times beyond the sizes that were measured\n{}",
      sim::kFarBeyond, to_text(table, 2));
  if (extrapolations.size() > kMostRows)
    text += fmt::format("  and {} more (--json lists all)\n", extrapolations.size() - kMostRows);
  if (interval)
    text += fmt::format("  80 % interval of the step time with them: {:.4g} to {:.4g} s\n",
                        interval->low_s, interval->high_s);
  return text +
         "  calibrate the shapes of this plan (--model, --micro-batches), and communication "
         "longer (--communication-seconds)\n";
}

}  // namespace meshplan::reports
