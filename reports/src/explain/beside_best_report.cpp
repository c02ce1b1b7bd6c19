#include "reports/explain/beside_best_report.hpp"

#include "reports/explain/explanation_report.hpp"
#include "reports/explain/why_not_report.hpp"

namespace meshplan::reports {

std::string to_text(const BesideBest& beside, double memory_reserve) {
  std::string text = "\n" + thumb_line(beside.thumb, beside.best, memory_reserve);
  if (!beside.turning_points.empty())
    text += "\nwhat would have to change for #2 (as estimated)\n" +
            turning_points_text(beside.turning_points, "#2");
  if (beside.why_not) text += "\n" + to_text(*beside.why_not, beside.best, memory_reserve);
  return text;
}

}  // namespace meshplan::reports
