#include "reports/explain/waterfall_report.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/json_text.hpp"
#include "core/units.hpp"
#include "explain/mfu_convention.hpp"
#include "explain/standing_json.hpp"
#include "explain/step_part_names.hpp"
#include "planner/search/space.hpp"
#include "reports/explain/diff_report.hpp"
#include "reports/table.hpp"

namespace meshplan::reports {
namespace {

using planner::ComparedPlans;
using planner::PricedPlan;
using Json = nlohmann::ordered_json;

/// Counts times in thousandths of its unit, so that sums of what is shown are exact.
class ShownTime {
 public:
  explicit ShownTime(double longest_s)
      : unit_(longest_s >= 1 ? "s" : "ms"), per_second_(longest_s >= 1 ? 1 : kMilliseconds) {}
  std::int64_t thousandths(double seconds) const {
    return std::llround(seconds * per_second_ * kThousand);
  }
  std::string text(std::int64_t thousandths) const {
    return fmt::format("{:.3f} {}", static_cast<double>(thousandths) / kThousand, unit_);
  }
  std::string signed_text(std::int64_t thousandths) const {
    return fmt::format("{:+.3f} {}", static_cast<double>(thousandths) / kThousand, unit_);
  }

 private:
  static constexpr double kThousand = 1000;
  const char* unit_;
  double per_second_;
};

/// Each row shows the difference of two rounded sums: so rows add up to the last sum.
Table waterfall_table(const ComparedPlans& compared) {
  const PricedPlan &a = compared.a, &b = compared.b;
  const ShownTime shown(std::max(a.step.step_time_s, b.step.step_time_s));
  double step = a.step.step_time_s, ideal = a.parts[sim::StepPart::Ideal];
  std::int64_t shown_step = shown.thousandths(step);
  Table table{.columns = {{"", Align::Left}, {"B - A"}, {"step so far"}, {"MFU so far"}},
              .rows = {{"step of A", "", shown.text(shown_step), percent(a.step.mfu)}}};
  for (const auto& [part, seconds] : waterfall(compared)) {
    step += seconds;
    if (part == sim::StepPart::Ideal) ideal += seconds;
    const std::int64_t next = shown.thousandths(step);
    if (next != shown_step)
      table.rows.push_back({std::string(words_for(part)), shown.signed_text(next - shown_step),
                            shown.text(next), percent(ideal / step)});
    shown_step = next;
  }
  table.rows.push_back({"step of B",
                        shown.signed_text(shown_step - shown.thousandths(a.step.step_time_s)),
                        shown.text(shown_step), percent(b.step.mfu)});
  return table;
}

std::string convention_text(const ComparedPlans& compared) {
  const std::string of_a = mfu_peak(compared.a), of_b = mfu_peak(compared.b);
  return kMfuConvention + of_a + (of_a == of_b ? "" : " (A) and " + of_b + " (B)") + "\n";
}

}  // namespace

std::vector<WaterfallTerm> waterfall(const ComparedPlans& compared) {
  std::vector<WaterfallTerm> terms;
  for (const sim::StepPart part : sim::all_step_parts())
    if (compared.a.parts[part] != 0 || compared.b.parts[part] != 0)
      terms.push_back({part, compared.b.parts[part] - compared.a.parts[part]});
  return terms;
}

std::string waterfall_text(const ComparedPlans& compared) {
  std::string text;
  for (const auto& [name, priced] : {std::pair{"A", &compared.a}, {"B", &compared.b}})
    text += fmt::format("{}  {}\n", name, planner::describe(planner::candidate_of(priced->plan)));
  text += "\nfrom A's step to B's, term by term\n" + to_text(waterfall_table(compared), 2);
  return text + convention_text(compared) + "\n" + verdict_text(compared);
}

std::string waterfall_json(const ComparedPlans& compared) {
  Json terms = Json::array();
  for (const auto& [part, seconds] : waterfall(compared))
    terms.push_back({{"term", sim::name_of(part)}, {"seconds", seconds}});
  return json_text(Json({{"schema_version", 1},
                         {"a", priced_json(compared.a)},
                         {"b", priced_json(compared.b)},
                         {"peak_flop_per_s_a", compared.a.peak_flop_per_s},
                         {"peak_flop_per_s_b", compared.b.peak_flop_per_s},
                         {"terms", std::move(terms)},
                         {"mfu_convention", convention_text(compared)},
                         {"same_work", compared.same_work},
                         {"told_apart_s", compared.told_apart_s},
                         {"tie", compared.ties()}})) +
         "\n";
}

}  // namespace meshplan::reports
