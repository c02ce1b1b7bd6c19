// What `meshplan lesson` shows: its runs, predicted beside measured, and where the last one's step
// went.
#pragma once

#include <string>

#include "reports/comparison.hpp"
#include "reports/trial_report.hpp"

namespace meshplan::reports {

struct LessonReport {
  int number = 0;
  std::string title;
  Trial trial;  // its rows have the runs' names; the first is what others are compared with
  Comparison comparison;          // of the last run
  std::vector<std::string> look;  // what to see in the figures
};

std::string to_text(const LessonReport& report);
std::string to_json(const LessonReport& report);

}  // namespace meshplan::reports
